//! `docs/configuration.md`, written from the schema: what a key means is said once, in the structs.

use super::schema;
use super::{
    Admin, Allow, Also, Approvals, Approvers, Audit, BehindProxy, Checkpoints, Client, Condition, Config, Deny, Hold,
    HttpUpstream, Identity, Issuer, IssuerTls, Limits, MetadataDocuments, Metrics, OAuth, Otlp, Policy, PolicyTest,
    RecordedArguments, Rule, SandboxUpstream, Sink, SshCertificates, SshUpstream, StdoutSink, SyslogSink, Timeouts,
    Tls, Traces, UpstreamTimeouts, UpstreamTls, User, Webhook, Who,
};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::Value;
use std::fmt::{self, Write};

/// A file that needs nothing else: one server, one rule.
const EXAMPLE: &str = "\
# yaml-language-server: $schema=./gateway.schema.json
listen: 127.0.0.1:8080
upstreams:
  files:
    http: { url: http://127.0.0.1:3000/mcp }
policy:
  rules:
    - { name: read, tools: [\"files/read_*\", \"files/list_*\"], allow: { reads: true } }
";

const INTRODUCTION: &str = "\
# Configuration

<!-- Written from the structs in `src/config` by `UPDATE=1 cargo test --test all generated`. Edit their doc comments instead. -->

Everything is in one YAML file, `gateway.yaml`.
`gateway.schema.json` lets editors complete and check it; `portcullis check` does the same and more.

- The file is read strictly: a key that is unknown, written twice or left without a value is an error. All errors are reported at once.
- YAML anchors, aliases and tags are not read, nor words that YAML versions read differently (`yes`, `no`, `on`, `off`, `0755`): put them in quotes.
- Paths are relative to the file.
- Secrets are never written in it: they are `{ env: NAME }` or `{ file: path }`.
- A length of time is a whole number and `ms`, `s`, `m`, `h` or `d`; a size is a whole number and `B`, `KiB`, `MiB` or `GiB`.
- In the headings, `[*]` stands for each element of a list and `.*` for each key of a mapping.
";

/// The contents of `docs/configuration.md`.
pub fn reference() -> String {
    let mut page = Page { sections: Vec::new() };
    page.section("", "Config");
    let mut text = format!("{INTRODUCTION}\nThe smallest file:\n\n```yaml\n{EXAMPLE}```\n");
    for Section { path, name } in &page.sections {
        text.push('\n');
        page.write(&mut text, path, name).expect("a String takes every write");
    }
    text
}

/// The sections in the order of the file, each definition once: where it is first met.
struct Page {
    sections: Vec<Section>,
}

struct Section {
    path: String,
    name: &'static str,
}

impl Page {
    fn section(&mut self, path: &str, name: &'static str) {
        if is_value(name) || self.sections.iter().any(|section| section.name == name) {
            return;
        }
        self.sections.push(Section { path: path.to_owned(), name });
        let part = part(name);
        for (key, property) in properties(name, part) {
            let inner = match path {
                "" => key.to_owned(),
                path => format!("{path}.{key}"),
            };
            self.part(&inner, property);
        }
        for form in forms(part) {
            for (tag, value) in form.get("properties").and_then(Value::as_object).into_iter().flatten() {
                self.part(&format!("{path}.{tag}"), value);
            }
        }
    }

    fn part(&mut self, path: &str, part: &'static Value) {
        if let Some(name) = schema::reference(part) {
            self.section(path, name);
        } else if let Some(items) = part.get("items") {
            self.part(&format!("{path}[*]"), items);
        } else if let Some(values) = part.get("additionalProperties") {
            self.part(&format!("{path}.*"), values);
        }
    }

    fn write(&self, to: &mut String, path: &str, name: &str) -> fmt::Result {
        let part = part(name);
        writeln!(to, "## {}\n\n{}\n", heading(path), described(part))?;
        if forms(part).is_empty() {
            writeln!(to, "| Key | Type | Default | Meaning |\n|---|---|---|---|")?;
            for (key, property) in properties(name, part) {
                let default = default(key, property, part);
                let kind = self.kind(property);
                writeln!(to, "| `{key}` | {kind} | {default} | {} |", described(property))?;
            }
            return Ok(());
        }
        writeln!(to, "| Written | Type | Meaning |\n|---|---|---|")?;
        for form in forms(part) {
            let (written, kind) = match form.get("const").and_then(Value::as_str) {
                Some(word) => (word, "word".to_owned()),
                None => match form.get("properties").and_then(Value::as_object).and_then(|all| all.iter().next()) {
                    Some((tag, value)) => (tag.as_str(), self.kind(value)),
                    None => ("", "text".to_owned()),
                },
            };
            writeln!(to, "| `{written}` | {kind} | {} |", described(form))?;
        }
        Ok(())
    }

    /// The type of a value, in words, with a link where it has a section.
    fn kind(&self, part: &'static Value) -> String {
        if let Some(name) = schema::reference(part) {
            return match self.sections.iter().find(|section| section.name == name) {
                Some(section) => format!("[{}](#{})", noun(name), slug(&section.path)),
                None => noun(name).to_owned(),
            };
        }
        match part.get("type").and_then(Value::as_str) {
            Some("array") => match part.get("items") {
                Some(items) => format!("list of {}", self.kind(items)),
                None => "list".to_owned(),
            },
            Some("object") => match part.get("additionalProperties") {
                Some(values) if values.is_object() => format!("mapping to {}", self.kind(values)),
                _ => "mapping".to_owned(),
            },
            Some("string") => "text".to_owned(),
            Some("boolean") => "`true` or `false`".to_owned(),
            Some("integer") => "whole number".to_owned(),
            Some(kind) => kind.to_owned(),
            None => "any value".to_owned(),
        }
    }
}

// === Parts of the schema ===

fn part(name: &str) -> &'static Value {
    schema::definition(name).unwrap_or_else(|| schema::value())
}

/// The properties in the order of the struct: the schema itself has them sorted.
fn properties(name: &str, part: &'static Value) -> Vec<(&'static str, &'static Value)> {
    let Some(all) = part.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let ordered = fields(name).iter().filter_map(|key| Some((*key, all.get(*key)?)));
    ordered.collect()
}

/// The forms of an enum.
fn forms(part: &'static Value) -> &'static [Value] {
    part.get("oneOf").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Types explained in the introduction.
fn is_value(name: &str) -> bool {
    matches!(name, "Period" | "ByteSize" | "SecretRef" | "Text")
}

fn noun(name: &str) -> &str {
    match name {
        "Period" => "length of time",
        "ByteSize" => "size",
        "SecretRef" => "`{ env: … }` or `{ file: … }`",
        "Text" => "text, `{ env: … }` or `{ file: … }`",
        "Sync" | "Expect" | "Algorithm" | "TokenType" | "SandboxBackend" => "word",
        _ => "section",
    }
}

fn default(key: &str, property: &Value, part: &Value) -> String {
    let required = part.get("required").and_then(Value::as_array);
    if required.is_some_and(|keys| keys.iter().any(|required| required == key)) {
        return "needed".to_owned();
    }
    match property.get("default") {
        Some(Value::String(text)) => format!("`{text}`"),
        Some(Value::Array(all)) if all.is_empty() => "none".to_owned(),
        Some(Value::Object(all)) if all.is_empty() => "none".to_owned(),
        Some(value) => format!("`{value}`"),
        None => String::new(),
    }
}

fn described(part: &Value) -> String {
    let text = part.get("description").and_then(Value::as_str);
    text.unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

fn heading(path: &str) -> String {
    match path {
        "" => "The file".to_owned(),
        path => format!("`{path}`"),
    }
}

/// The anchor that Markdown renderers make of a heading.
fn slug(path: &str) -> String {
    let heading = heading(path).to_lowercase().replace(' ', "-");
    heading.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
}

// === Order of keys ===

/// The keys of a struct as they are written in it.
fn fields(name: &str) -> &'static [&'static str] {
    match name {
        "Config" => fields_of::<Config>(),
        "Tls" => fields_of::<Tls>(),
        "BehindProxy" => fields_of::<BehindProxy>(),
        "Metrics" => fields_of::<Metrics>(),
        "Identity" => fields_of::<Identity>(),
        "User" => fields_of::<User>(),
        "Also" => fields_of::<Also>(),
        "Client" => fields_of::<Client>(),
        "Issuer" => fields_of::<Issuer>(),
        "IssuerTls" => fields_of::<IssuerTls>(),
        "OAuth" => fields_of::<OAuth>(),
        "MetadataDocuments" => fields_of::<MetadataDocuments>(),
        "HttpUpstream" => fields_of::<HttpUpstream>(),
        "SandboxUpstream" => fields_of::<SandboxUpstream>(),
        "SshUpstream" => fields_of::<SshUpstream>(),
        "SshCertificates" => fields_of::<SshCertificates>(),
        "UpstreamTls" => fields_of::<UpstreamTls>(),
        "UpstreamTimeouts" => fields_of::<UpstreamTimeouts>(),
        "Policy" => fields_of::<Policy>(),
        "Rule" => fields_of::<Rule>(),
        "Who" => fields_of::<Who>(),
        "Condition" => fields_of::<Condition>(),
        "Allow" => fields_of::<Allow>(),
        "Deny" => fields_of::<Deny>(),
        "Hold" => fields_of::<Hold>(),
        "Approvers" => fields_of::<Approvers>(),
        "Admin" => fields_of::<Admin>(),
        "Approvals" => fields_of::<Approvals>(),
        "Webhook" => fields_of::<Webhook>(),
        "PolicyTest" => fields_of::<PolicyTest>(),
        "Limits" => fields_of::<Limits>(),
        "Timeouts" => fields_of::<Timeouts>(),
        "Audit" => fields_of::<Audit>(),
        "Checkpoints" => fields_of::<Checkpoints>(),
        "RecordedArguments" => fields_of::<RecordedArguments>(),
        "Sink" => fields_of::<Sink>(),
        "StdoutSink" => fields_of::<StdoutSink>(),
        "SyslogSink" => fields_of::<SyslogSink>(),
        "Otlp" => fields_of::<Otlp>(),
        "Traces" => fields_of::<Traces>(),
        _ => &[],
    }
}

/// A derived `Deserialize` begins by naming its fields in order; that is all that is asked of it.
fn fields_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    match T::deserialize(Asked) {
        Err(Fields(fields)) => fields,
        Ok(_) => &[],
    }
}

struct Asked;

#[derive(Debug)]
struct Fields(&'static [&'static str]);

impl<'de> Deserializer<'de> for Asked {
    type Error = Fields;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Fields> {
        Err(Fields(fields))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fields> {
        Err(Fields(&[]))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

impl std::error::Error for Fields {}

impl de::Error for Fields {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Fields(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Known, load};

    #[test]
    fn every_key_of_the_schema_is_in_the_reference() {
        let text = reference();
        let definitions = schema::value()["$defs"].as_object().expect("definitions");
        let root = ("Config", schema::value());
        let all = definitions.iter().map(|(name, part)| (name.as_str(), part));

        for (name, part) in all.chain([root]).filter(|(name, _)| !is_value(name)) {
            let empty = serde_json::Map::new();
            let keys = part["properties"].as_object().unwrap_or(&empty);
            assert_eq!(properties(name, part).len(), keys.len(), "order of {name}");
            for key in keys.keys() {
                assert!(text.contains(&format!("\n| `{key}` | ")), "{name}.{key}");
            }
        }
    }

    #[test]
    fn every_link_leads_to_a_section() {
        let text = reference();

        for (_, rest) in text.split("](#").skip(1).map(|rest| ("", rest)) {
            let slug = rest.split(')').next().expect("a link ends");
            let headings = text.lines().filter_map(|line| line.strip_prefix("## "));
            let is_there = headings
                .map(|heading| heading.trim_matches('`'))
                .any(|heading| super::slug(if heading == "The file" { "" } else { heading }) == slug);
            assert!(is_there, "{slug}");
        }
    }

    #[test]
    fn the_smallest_file_is_a_good_one() {
        let loaded = load(EXAMPLE, "gateway.yaml").expect("form");

        assert_eq!(loaded.check(Known::default()).to_string(), "");
    }
}
