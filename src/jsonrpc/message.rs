//! The envelope: which members a message has, and what they make of it.
//!
//! Names are exact. A parser that folds case, or one that ignores what it does not know, would see another message in
//! `Method` or `paramſ` than we do; so a name that the specification does not have is refused.

use super::error::{Error, Fault, shown};
use super::quoted::Quoted;
use super::scan::{Halves, Scanner};
use super::{Id, Kind, Limits, Member, Message, Node, Notification, Outcome, Params, Request, Response, Span};

/// The members found so far.
#[derive(Default)]
struct Envelope {
    has_version: bool,
    id: Option<IdMember>,
    method: Option<String>,
    params: Option<Params>,
    result: Option<Span>,
    error: Option<Span>,
}

/// `null` stands only in answers, and whether this is one is known at the end.
enum IdMember {
    Null,
    Given(Id),
}

/// In bytes, as written.
const LONGEST_METHOD: usize = 256;

/// Reads the one message that `text` is.
pub(super) fn read(text: &[u8], limits: Limits, halves: Halves) -> Result<Message, Error> {
    let mut scanner = Scanner::new(text, limits, halves).map_err(|fault| Error::new(fault, None))?;
    let mut envelope = Envelope::default();
    match envelope.fill(&mut scanner) {
        Ok(()) => envelope.into_message(),
        Err(fault) => {
            // A message that names one of its own members twice may have done so with its id: then it has none.
            let is_own_twin = matches!(fault, Fault::Duplicate { .. }) && scanner.depth() == 1;
            let id = envelope.given_id().filter(|_| !is_own_twin);
            Err(Error::new(fault, id))
        }
    }
}

/// Reads an array of values, whatever they are.
pub(super) fn batch(text: &[u8], limits: Limits) -> Result<Vec<Span>, Error> {
    let fault = |fault| Error::new(fault, None);
    let mut scanner = Scanner::new(text, limits, Halves::Refused).map_err(fault)?;
    scanner.space();
    if scanner.peek() != Some(b'[') {
        return Err(fault(Fault::invalid("not a batch")));
    }
    let span = scanner.value().map_err(fault)?;
    scanner.finish().map_err(fault)?;
    let spans: Vec<Span> = Node::of(text, span).elements().filter_map(|message| message.span_in(text)).collect();
    //= JSON-RPC 2.0 §6
    //# if the batch rpc call itself fails to be recognized as an valid JSON or as an Array with at least one value
    if spans.is_empty() { Err(fault(Fault::invalid("an empty batch"))) } else { Ok(spans) }
}

// === impl Envelope: reading ===

impl Envelope {
    fn fill(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        scanner.space();
        match scanner.peek() {
            Some(b'{') => {}
            // Told apart before it is read: what stands inside makes no difference.
            Some(b'[') => return Err(Fault::Batch),
            None => return Err(scanner.unexpected("a message")),
            Some(_) => {
                let span = scanner.value()?;
                scanner.finish()?;
                let kind = Node::of_text(scanner.cut(span)).kind();
                return Err(Fault::invalid(format!("{} instead of an object", a(kind))));
            }
        }
        scanner.object(|scanner, name| self.member(scanner, name))?;
        scanner.finish()
    }

    fn member<'a>(&mut self, scanner: &mut Scanner<'a>, name: Quoted<'a>) -> Result<(), Fault> {
        match &*name.decoded() {
            "jsonrpc" => self.read_version(scanner),
            "id" => self.read_id(scanner),
            "method" => self.read_method(scanner),
            "params" => self.read_params(scanner),
            "result" => {
                self.result = Some(scanner.value()?);
                Ok(())
            }
            "error" => self.read_error(scanner),
            unknown => Err(Fault::invalid(format!("unknown member at byte {}: `{}`", name.at, shown(unknown)))),
        }
    }

    fn read_version(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        let (span, node) = read_node(scanner)?;
        if node.as_str().as_deref() != Some("2.0") {
            return Err(wrong("`jsonrpc` must be \"2.0\"", span, node));
        }
        self.has_version = true;
        Ok(())
    }

    fn read_id(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        let (span, node) = read_node(scanner)?;
        let id = match node.kind() {
            Kind::Null => Some(IdMember::Null),
            Kind::Bool | Kind::Number | Kind::String | Kind::Array | Kind::Object => Id::of(node).map(IdMember::Given),
        };
        if id.is_none() {
            let rule = "`id` must be a string or an integer of at most 256 bytes";
            return Err(wrong(rule, span, node));
        }
        self.id = id;
        Ok(())
    }

    fn read_method(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        let (span, node) = read_node(scanner)?;
        let method = node
            .as_str()
            .filter(|method| !method.is_empty())
            .filter(|_| node.text().len() <= LONGEST_METHOD.saturating_add(2));
        let Some(method) = method else {
            let rule = "`method` must be a string of 1 to 256 bytes";
            return Err(wrong(rule, span, node));
        };
        self.method = Some(method.into_owned());
        Ok(())
    }

    fn read_params(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        if scanner.peek() != Some(b'{') {
            let (span, node) = read_node(scanner)?;
            return Err(wrong("`params` must be an object", span, node));
        }
        let mut members = Vec::new();
        let span = scanner.object(|scanner, name| {
            let key = name.decoded().into_owned();
            let value = scanner.value()?;
            members.push(Member { key, value });
            Ok(())
        })?;
        self.params = Some(Params { span, members });
        Ok(())
    }

    //= JSON-RPC 2.0 §5.1
    //# code: A Number that indicates the error type that occurred. This MUST be an integer.
    //# message: A String providing a short description of the error.
    fn read_error(&mut self, scanner: &mut Scanner<'_>) -> Result<(), Fault> {
        let (span, node) = read_node(scanner)?;
        if node.kind() != Kind::Object {
            return Err(wrong("`error` must be an object", span, node));
        }
        let code = node.get("code").and_then(Node::as_number);
        if code.is_none_or(|code| code.contains(['.', 'e', 'E'])) {
            return Err(Fault::invalid("`error.code` must be an integer"));
        }
        if node.get("message").and_then(Node::as_str).is_none() {
            return Err(Fault::invalid("`error.message` must be a string"));
        }
        self.error = Some(span);
        Ok(())
    }
}

fn read_node<'a>(scanner: &mut Scanner<'a>) -> Result<(Span, Node<'a>), Fault> {
    let span = scanner.value()?;
    Ok((span, Node::of_text(scanner.cut(span))))
}

/// A member whose value breaks a rule of the envelope. Short values are shown, long ones named by their kind.
fn wrong(rule: &str, span: Span, node: Node<'_>) -> Fault {
    let at = span.start;
    let found = match node.kind() {
        Kind::Object | Kind::Array => a(node.kind()).to_owned(),
        Kind::Null | Kind::Bool | Kind::Number | Kind::String => {
            format!("`{}`", shown(node.text()))
        }
    };
    Fault::invalid(format!("{rule}; at byte {at} found {found}"))
}

fn a(kind: Kind) -> &'static str {
    match kind {
        Kind::Null => "null",
        Kind::Bool => "a truth value",
        Kind::Number => "a number",
        Kind::String => "a string",
        Kind::Array => "an array",
        Kind::Object => "an object",
    }
}

// === impl Envelope: judging ===

impl Envelope {
    fn given_id(&self) -> Option<Id> {
        match &self.id {
            Some(IdMember::Given(id)) => Some(id.clone()),
            Some(IdMember::Null) | None => None,
        }
    }

    fn into_message(self) -> Result<Message, Error> {
        if let Some(what) = self.contradiction() {
            return Err(Error::new(Fault::invalid(what), self.given_id()));
        }
        let id = self.given_id();
        let outcome = self.result.map(Outcome::Result).or(self.error.map(Outcome::Error));
        Ok(match (self.method, id, outcome) {
            (Some(method), Some(id), _) => Message::Request(Request { id, method, params: self.params }),
            (Some(method), None, _) => Message::Notification(Notification { method, params: self.params }),
            (None, id, Some(outcome)) => Message::Response(Response { id, outcome }),
            (None, id, None) => {
                let what = "neither `method` nor `result` nor `error`";
                return Err(Error::new(Fault::invalid(what), id));
            }
        })
    }

    /// What its members, each good in itself, cannot be together.
    fn contradiction(&self) -> Option<&'static str> {
        let is_call = self.method.is_some();
        let is_answer = self.result.is_some() || self.error.is_some();
        match self.id {
            _ if !self.has_version => Some("`jsonrpc` is missing"),
            _ if is_call && is_answer => Some("`method` together with `result` or `error`"),
            _ if self.result.is_some() && self.error.is_some() => Some("both `result` and `error`"),
            _ if self.params.is_some() && !is_call => Some("`params` without `method`"),
            Some(IdMember::Null) if is_call => Some("`id` of a request is null"),
            Some(IdMember::Null) if self.result.is_some() => Some("`id` of a result is null"),
            None if is_answer => Some("`id` of an answer is missing"),
            Some(_) | None => None,
        }
    }
}
