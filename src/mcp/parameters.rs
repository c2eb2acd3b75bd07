//! Arguments that a tool's schema mirrors into headers, `Mcp-Param-*` (MCP 2026-07-28, "Custom Headers from Tool
//! Parameters").
//!
//! A server behind a router may trust such a header for where a call goes, and executes the body: so whoever reads the
//! body must see that both say the same. What is sent on is made anew from the judged body.

use super::{Error, decode_value, encode_value};
use crate::jsonrpc::{Kind, Node, Span};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The mirrored arguments of one tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<Parameter>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    header: HeaderName,
    /// From `arguments` down through objects.
    path: Vec<String>,
}

/// Mirrored arguments of one tool that are looked at; the specification names no limit.
const MAX_PARAMETERS: usize = 64;
/// Objects inside one another that are searched for them.
const MAX_DEPTH: usize = 16;

impl Parameters {
    /// As a tool's definition, one object of `tools/list`, declares them. What the specification calls invalid (on
    /// another type than string, integer or boolean, no token, a name twice) is not mirrored.
    pub fn of_definition(json: &[u8]) -> Parameters {
        let mut found = Vec::new();
        if let Some(schema) = Node::of(json, Span::whole(json)).get("inputSchema") {
            collect(schema, &mut Vec::new(), &mut found);
        }
        let is_twice = |one: &Parameter| found.iter().filter(|other| other.header == one.header).count() > 1;
        Parameters(found.iter().filter(|one| !is_twice(one)).cloned().collect())
    }

    /// The headers that mirror `arguments`, made from them, if those of the client say the same.
    ///
    /// # Errors
    /// A header that is missing, stands there twice, differs from the argument, or mirrors none.
    pub fn mirror(
        &self,
        arguments: Option<Node<'_>>,
        headers: &HeaderMap,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, Error> {
        let mut mirrored = Vec::with_capacity(self.0.len());
        for Parameter { header, path } in &self.0 {
            let value = path.iter().try_fold(arguments, |node, key| node.map(|node| node.get(key)));
            let value = value.flatten().and_then(Mirrored::of);
            let mut sent = headers.get_all(header).iter();
            match (value, sent.next(), sent.next()) {
                (None, None, None) => {}
                (Some(value), Some(sent), None) if value.is_said_by(sent) => {
                    mirrored.push((header.clone(), value.encoded()));
                }
                (Some(_), None, _) => return Err(mismatch(header, "is missing")),
                (_, Some(_), Some(_)) => return Err(mismatch(header, "stands there twice")),
                _ => return Err(mismatch(header, "differs from the body")),
            }
        }
        Ok(mirrored)
    }

    /// The headers that mirror `arguments`, made from them alone.
    pub fn made_from(&self, arguments: Option<Node<'_>>) -> Vec<(HeaderName, HeaderValue)> {
        let made = self.0.iter().filter_map(|Parameter { header, path }| {
            let value = path.iter().try_fold(arguments?, |node, key| node.get(key))?;
            Some((header.clone(), Mirrored::of(value)?.encoded()))
        });
        made.collect()
    }

    /// Whether `header` mirrors an argument of this tool.
    pub fn contains(&self, header: &HeaderName) -> bool {
        self.0.iter().any(|parameter| parameter.header == *header)
    }
}

fn mismatch(header: &HeaderName, what: &str) -> Error {
    Error::HeaderMismatch(format!("{header} {what}"))
}

fn collect<'a>(schema: Node<'a>, path: &mut Vec<String>, found: &mut Vec<Parameter>) {
    if path.len() >= MAX_DEPTH {
        return;
    }
    for (key, property) in schema.get("properties").into_iter().flat_map(Node::members) {
        path.push(key.into_owned());
        let name = property.get("x-mcp-header").and_then(Node::as_str);
        let kind = property.get("type").and_then(Node::as_str);
        let is_plain = matches!(kind.as_deref(), Some("string" | "integer" | "boolean"));
        let header = name.and_then(|name| HeaderName::try_from(format!("mcp-param-{name}")).ok());
        if let (Some(header), true, true) = (header, is_plain, found.len() < MAX_PARAMETERS) {
            found.push(Parameter { header, path: path.clone() });
        }
        collect(property, path, found);
        path.pop();
    }
}

/// The value of an argument, as a header says it.
enum Mirrored<'a> {
    Text(std::borrow::Cow<'a, str>),
    Number(&'a str),
    Bool(bool),
}

impl<'a> Mirrored<'a> {
    /// `None` for `null`, which counts as absent, and for what no header can mirror.
    fn of(node: Node<'a>) -> Option<Self> {
        match node.kind() {
            Kind::String => node.as_str().map(Mirrored::Text),
            Kind::Number => node.as_number().map(Mirrored::Number),
            Kind::Bool => node.as_bool().map(Mirrored::Bool),
            Kind::Null | Kind::Array | Kind::Object => None,
        }
    }

    fn is_said_by(&self, header: &HeaderValue) -> bool {
        let Some(said) = header.to_str().ok().map(|text| text.trim_matches([' ', '\t'])).and_then(decode_value) else {
            return false;
        };
        match self {
            Mirrored::Text(text) => said == *text,
            Mirrored::Number(number) => is_same_number(&said, number),
            Mirrored::Bool(value) => said == if *value { "true" } else { "false" },
        }
    }

    fn encoded(&self) -> HeaderValue {
        match self {
            Mirrored::Text(text) => encode_value(text),
            Mirrored::Number(number) => encode_value(number),
            Mirrored::Bool(value) => HeaderValue::from_static(if *value { "true" } else { "false" }),
        }
    }
}

/// Integers are compared as numbers, `42.0` and `42` being one; those that no float holds exactly, digit by digit.
fn is_same_number(a: &str, b: &str) -> bool {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let parse = |text: &str| text.parse::<f64>().ok().filter(|number| number.abs() < EXACT);
    #[expect(clippy::float_cmp, reason = "both are exact")]
    let is_equal = matches!((parse(a), parse(b)), (Some(a), Some(b)) if a == b);
    a == b || is_equal
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOL: &[u8] = br#"{"name":"t","inputSchema":{"properties":{
        "region":{"type":"string","x-mcp-header":"Region"},
        "size":{"type":"integer","x-mcp-header":"Size"},
        "dry":{"type":"boolean","x-mcp-header":"Dry"},
        "where":{"type":"object","properties":{"zone":{"type":"string","x-mcp-header":"Zone"}}},
        "one":{"type":"string","x-mcp-header":"Twice"},"two":{"type":"string","x-mcp-header":"twice"},
        "list":{"type":"array","x-mcp-header":"List"},"odd":{"type":"string","x-mcp-header":"a b"}}}}"#;

    fn mirror(arguments: &str, sent: &[(&'static str, &'static str)]) -> Result<Vec<String>, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let arguments = Node::of(arguments.as_bytes(), Span::whole(arguments.as_bytes()));
        let mirrored = Parameters::of_definition(TOOL).mirror(Some(arguments), &headers);
        let shown = |(name, value): (HeaderName, HeaderValue)| format!("{name}: {}", value.to_str().unwrap());
        mirrored.map(|list| list.into_iter().map(shown).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_agrees_is_made_anew_from_the_body() {
        let sent = [("mcp-param-region", "=?base64?ZXU=?="), ("mcp-param-size", "42.0"), ("mcp-param-zone", " a ")];
        let mirrored = mirror(r#"{"region":"eu","size":42,"where":{"zone":"a"},"dry":null,"list":[1]}"#, &sent);
        assert_eq!(mirrored.unwrap(), ["mcp-param-region: eu", "mcp-param-size: 42", "mcp-param-zone: a"]);
    }

    #[test]
    fn what_does_not_agree_is_a_mismatch() {
        for (arguments, sent) in [
            (r#"{"region":"eu"}"#, &[][..]),
            (r#"{"region":"eu"}"#, &[("mcp-param-region", "us")]),
            (r#"{"region":"eu"}"#, &[("mcp-param-region", "eu"), ("mcp-param-region", "eu")]),
            (r#"{"region":"eu"}"#, &[("mcp-param-region", "=?base64?!?=")]),
            ("{}", &[("mcp-param-region", "eu")]),
            (r#"{"region":null}"#, &[("mcp-param-region", "")]),
            (r#"{"size":9007199254740993}"#, &[("mcp-param-size", "9007199254740992")]),
            (r#"{"dry":true}"#, &[("mcp-param-dry", "True")]),
            (r#"{"where":{"zone":"a"}}"#, &[("mcp-param-zone", "b")]),
        ] {
            let refused = mirror(arguments, sent).expect_err(arguments);
            assert!(refused.contains("mcp-param-"), "{refused}");
        }
    }

    #[test]
    fn only_valid_annotations_count() {
        let parameters = Parameters::of_definition(TOOL);
        let is_mirrored = |name: &'static str| parameters.contains(&HeaderName::from_static(name));
        assert!(is_mirrored("mcp-param-zone"));
        for name in ["mcp-param-twice", "mcp-param-list", "mcp-param-odd"] {
            assert!(!is_mirrored(name), "{name}");
        }
        assert_eq!(Parameters::of_definition(b"{}"), Parameters::default());
    }
}
