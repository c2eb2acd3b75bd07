//! One message of a client as MCP understands it: which method, on which object, with which arguments.

use super::{Era, Error, LATEST, Method, MirroredHeaders, SUPPORTED, Verb};
use crate::jsonrpc::{Id, Message, Node, Params, Span};

/// One judged unit: a request, or a notification (then `id` is `None`).
#[derive(Debug)]
pub struct Call {
    /// The request's id, as sent. `None`: a notification.
    pub id: Option<Id>,
    /// Its row in the method table.
    pub method: &'static Method,
    /// What it acts on.
    pub object: Object,
    /// Where its `arguments` stand in the body; absent ones are `None`.
    pub arguments: Option<Span>,
    /// Where the `requestState` of a round trip stands in the body (MCP 2026-07-28, "Multi Round-Trip Requests").
    pub state: Option<Span>,
    /// The era it belongs to.
    pub era: Era,
    /// The protocol version that headers and `_meta` agree on; `None` where neither says one.
    pub version: Option<String>,
}

/// What a call acts on, by the upstream's own name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// Nothing that has a name.
    None,
    /// A tool.
    Tool(String),
    /// A prompt.
    Prompt(String),
    /// Resources by URI (or URI template): one, or as many as a subscription names.
    Resources(Vec<String>),
    /// A task (Tasks extension).
    Task(String),
}

impl Object {
    /// The name shown in records: of several resources, the first.
    pub fn name(&self) -> Option<&str> {
        match self {
            Object::None => None,
            Object::Tool(name) | Object::Prompt(name) | Object::Task(name) => Some(name),
            Object::Resources(uris) => uris.first().map(String::as_str),
        }
    }
}

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// A subscription may name this many resources.
const MAX_RESOURCES: usize = 256;

impl Call {
    /// Understands `message`, which `jsonrpc::parse` found in `body`, together with the headers it came with.
    ///
    /// # Errors
    /// [`Error`] says what MCP does not allow.
    pub fn read(body: &[u8], message: Message, headers: &MirroredHeaders) -> Result<Call, (Option<Id>, Error)> {
        let (id, method, params) = match message {
            Message::Request(request) => (Some(request.id), request.method, request.params),
            Message::Notification(notification) => (None, notification.method, notification.params),
            Message::Response(_) => return Call::answer(headers).map_err(|error| (None, error)),
        };
        let fault = |error| (id.clone(), error);
        let params = Reader { body, params: params.as_ref() };
        params.refuse_look_alikes().map_err(fault)?;
        let (era, version) = era(&params, headers, id.is_some()).map_err(fault)?;
        let method = method_row(&method, era, id.is_some()).map_err(fault)?;
        let object = params.object(method.verb).map_err(fault)?;
        headers.agree(method.name, &object, era).map_err(fault)?;
        let arguments = params.arguments().map_err(fault)?;
        let state = params.state(method.name, era).map_err(fault)?;
        Ok(Call { id, method, object, arguments, state, era, version })
    }

    /// A response: what the server asked, and this client answers. Nothing in it is for us to judge.
    fn answer(headers: &MirroredHeaders) -> Result<Call, Error> {
        Call::without_body(Method::ANSWER, headers)?
            .ok_or_else(|| Error::InvalidRequest("a response, which clients of this revision do not send".to_owned()))
    }

    /// What an older client asks for by the HTTP method alone; `None` where the revision has no such thing.
    ///
    /// # Errors
    /// A revision that is not spoken here.
    pub fn without_body(method: &'static Method, headers: &MirroredHeaders) -> Result<Option<Call>, Error> {
        let version = headers.version.clone();
        let era = match version.as_deref() {
            Some(name) => Era::of(name).ok_or_else(|| unsupported(name, &SUPPORTED))?,
            None => Era::Legacy,
        };
        let call = Call { id: None, method, object: Object::None, arguments: None, state: None, era, version };
        Ok((era == Era::Legacy).then_some(call))
    }
}

/// Calls that a server may answer with `input_required` (MCP 2026-07-28, "Multi Round-Trip Requests").
pub fn may_take_rounds(method: &str) -> bool {
    matches!(method, "tools/call" | "prompts/get" | "resources/read")
}

/// MCP 2026-07-28, Streamable HTTP, "Protocol Version Header": header and `_meta` say the same, or the request is refused.
fn era(params: &Reader<'_>, headers: &MirroredHeaders, is_request: bool) -> Result<(Era, Option<String>), Error> {
    let in_header = headers.version.as_deref();
    let in_meta = params.meta(VERSION_KEY)?;
    if let Some(version) = in_header.or(in_meta.as_deref())
        && Era::of(version).is_none()
    {
        return Err(unsupported(version, if in_meta.is_some() { &[LATEST] } else { &SUPPORTED }));
    }
    match (in_header, in_meta) {
        (None, None) => Ok((Era::Legacy, None)),
        (Some(version), None) if Era::of(version) == Some(Era::Modern) => {
            // Notifications carry no required `_meta` in this revision.
            if is_request {
                return Err(Error::InvalidParams(format!("params._meta has no `{VERSION_KEY}`")));
            }
            Ok((Era::Modern, Some(version.to_owned())))
        }
        (Some(version), None) => Ok((Era::Legacy, Some(version.to_owned()))),
        (None, Some(_)) => Err(Error::HeaderMismatch("MCP-Protocol-Version is missing".to_owned())),
        (Some(header), Some(meta)) if header != meta => {
            Err(Error::HeaderMismatch(format!("MCP-Protocol-Version is {header}, `{VERSION_KEY}` is {meta}")))
        }
        (Some(version), Some(_)) => {
            if is_request && !params.has_meta(CAPABILITIES_KEY) {
                return Err(Error::InvalidParams(format!("params._meta has no `{CAPABILITIES_KEY}`")));
            }
            Ok((Era::of(version).unwrap_or(Era::Modern), Some(version.to_owned())))
        }
    }
}

fn unsupported(version: &str, supported: &'static [&'static str]) -> Error {
    Error::UnsupportedVersion { version: version.to_owned(), supported }
}

fn method_row(name: &str, era: Era, is_request: bool) -> Result<&'static Method, Error> {
    let unknown = || Error::UnknownMethod(name.to_owned());
    let method = Method::named(name).ok_or_else(unknown)?;
    if (method.verb == Verb::Notify) == is_request {
        // A call without an id would run and leave no answer; a notification with one would wait for ever.
        let what = if is_request { "a notification with an id" } else { "a request without an id" };
        return Err(Error::InvalidRequest(format!("{what}: {name}")));
    }
    let added = ["server/discover", "subscriptions/listen"];
    // 2025-11-25 has tasks of another kind, and by the same names; those are not offered.
    if era == Era::Legacy && (added.contains(&name) || method.verb == Verb::Task) {
        return Err(unknown());
    }
    let removed = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
    if era == Era::Modern && removed.contains(&name) {
        return Err(unknown());
    }
    Ok(method)
}

/// The members of `params` that are read here.
const LOOKED_AT: &[&str] =
    &["name", "arguments", "uri", "ref", "notifications", "_meta", "requestState", "inputResponses", "taskId"];

/// Looks into `params`, of which only the spans of its members are known.
struct Reader<'a> {
    body: &'a [u8],
    params: Option<&'a Params>,
}

impl<'a> Reader<'a> {
    fn get(&self, key: &str) -> Option<Node<'a>> {
        let span = self.params?.get(key)?;
        Some(Node::of(self.body, span))
    }

    /// A server that reads names without regard to case would find another call in `Name` beside `name` than we judge.
    /// What lies in `arguments` is the tool's own and is not looked at.
    fn refuse_look_alikes(&self) -> Result<(), Error> {
        for member in self.params.iter().flat_map(|params| &params.members) {
            refuse_look_alike("params", &member.key, LOOKED_AT)?;
        }
        for (key, _) in self.get("ref").into_iter().flat_map(Node::members) {
            refuse_look_alike("params.ref", &key, &["type", "name", "uri"])?;
        }
        for (key, _) in self.get("notifications").into_iter().flat_map(Node::members) {
            refuse_look_alike("params.notifications", &key, &["resourceSubscriptions"])?;
        }
        Ok(())
    }

    fn has_meta(&self, key: &str) -> bool {
        self.get("_meta").is_some_and(|meta| meta.get(key).is_some())
    }

    fn meta(&self, key: &str) -> Result<Option<String>, Error> {
        let Some(value) = self.get("_meta").and_then(|meta| meta.get(key)) else {
            return Ok(None);
        };
        let wrong = || Error::InvalidParams(format!("params._meta `{key}` is not a string"));
        let text = value.as_str().ok_or_else(wrong)?;
        Ok(Some(text.into_owned()))
    }

    fn string(&self, key: &str) -> Result<String, Error> {
        let missing = || Error::InvalidParams(format!("params.{key} is missing"));
        let wrong = || Error::InvalidParams(format!("params.{key} is not a string"));
        Ok(self.get(key).ok_or_else(missing)?.as_str().ok_or_else(wrong)?.into_owned())
    }

    fn arguments(&self) -> Result<Option<Span>, Error> {
        let Some(span) = self.params.and_then(|params| params.get("arguments")) else {
            return Ok(None);
        };
        match Node::of(self.body, span).kind() {
            crate::jsonrpc::Kind::Object => Ok(Some(span)),
            _ => Err(Error::InvalidParams("params.arguments is not an object".to_owned())),
        }
    }

    fn state(&self, method: &str, era: Era) -> Result<Option<Span>, Error> {
        let Some(span) = self.params.and_then(|params| params.get("requestState")) else {
            return Ok(None);
        };
        if era == Era::Legacy || !may_take_rounds(method) {
            return Ok(None);
        }
        match Node::of(self.body, span).kind() {
            crate::jsonrpc::Kind::String => Ok(Some(span)),
            _ => Err(Error::InvalidParams("params.requestState is not a string".to_owned())),
        }
    }

    fn object(&self, verb: Verb) -> Result<Object, Error> {
        match verb {
            Verb::CallTool => Ok(Object::Tool(self.string("name")?)),
            Verb::GetPrompt => Ok(Object::Prompt(self.string("name")?)),
            // Which it is is complained of where tasks are offered; elsewhere there is no such method.
            Verb::Task => Ok(self.string("taskId").map_or(Object::None, Object::Task)),
            Verb::ReadResource => Ok(Object::Resources(vec![self.string("uri")?])),
            Verb::Complete => self.completed(),
            Verb::Listen => self.listened_to(),
            Verb::Lifecycle | Verb::List(_) | Verb::Notify | Verb::Answer | Verb::Stream | Verb::EndSession => {
                Ok(Object::None)
            }
        }
    }

    /// The `ref` of `completion/complete`: a prompt by name, or a resource template by URI.
    fn completed(&self) -> Result<Object, Error> {
        let wrong = |what: &str| Error::InvalidParams(format!("params.ref {what}"));
        let reference = self.get("ref").ok_or_else(|| wrong("is missing"))?;
        let text = |key: &str| {
            let value = reference.get(key).and_then(Node::as_str);
            value.map(std::borrow::Cow::into_owned).ok_or_else(|| wrong(&format!("has no string `{key}`")))
        };
        match text("type")?.as_str() {
            "ref/prompt" => Ok(Object::Prompt(text("name")?)),
            "ref/resource" => Ok(Object::Resources(vec![text("uri")?])),
            _ => Err(wrong("is of an unknown type")),
        }
    }

    /// The resources that `subscriptions/listen` names; a subscription to lists alone names none.
    fn listened_to(&self) -> Result<Object, Error> {
        let Some(named) = self.get("notifications").and_then(|wanted| wanted.get("resourceSubscriptions")) else {
            return Ok(Object::None);
        };
        let wrong = || Error::InvalidParams("notifications.resourceSubscriptions is not a list of strings".to_owned());
        if named.kind() != crate::jsonrpc::Kind::Array {
            return Err(wrong());
        }
        let uris: Vec<String> = named
            .elements()
            .take(MAX_RESOURCES.saturating_add(1))
            .map(|uri| uri.as_str().map(std::borrow::Cow::into_owned).ok_or_else(wrong))
            .collect::<Result<_, _>>()?;
        match uris.len() {
            0 => Ok(Object::None),
            n if n > MAX_RESOURCES => Err(Error::InvalidParams(format!("more than {MAX_RESOURCES} resources"))),
            _ => Ok(Object::Resources(uris)),
        }
    }
}

fn refuse_look_alike(within: &str, key: &str, names: &[&str]) -> Result<(), Error> {
    // Nearly every name: plain, and one of those that are read, or unlike them all.
    let is_plain = key.bytes().all(|byte| byte.is_ascii() && byte != 0);
    if is_plain && names.iter().all(|name| key == *name || !key.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    match names.iter().find(|name| key != **name && folded(key).eq(folded(name))) {
        Some(name) => Err(Error::InvalidRequest(format!("{within} has a name that some read as `{name}`"))),
        None => Ok(()),
    }
}

/// As the most careless reader takes it: up to a NUL, and without regard to case, the Kelvin sign and the long s included.
fn folded(text: &str) -> impl Iterator<Item = char> {
    let text = text.split('\0').next().unwrap_or_default();
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase)
}
