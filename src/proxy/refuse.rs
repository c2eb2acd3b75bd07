//! Refusals, and the one place where they become an answer.
//!
//! What a person or a model can act on goes into the message; the cause goes to the log. Policy's refusals are answers
//! to the call (HTTP 200), never 401 or 403: those make clients log in again (docs/decisions/0003).

use super::exchange::{Exchange, Gone};
use super::record::Outcome;
use crate::jsonrpc::Id;
use crate::mcp::Era;
use crate::redact::Redactor;
use crate::snapshot::Route;
use bytes::Bytes;
use http::header::{ALLOW, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

/// An answer from us instead of the upstream's. Boxed, since every step's result has room for one.
#[derive(Debug)]
pub(super) struct Refusal(Box<Parts>);

#[derive(Debug)]
struct Parts {
    code: Code,
    message: String,
    form: Form,
    status: Option<StatusCode>,
    id: Option<Id>,
    data: Vec<(&'static str, Value)>,
    /// Of a tool result, for programs.
    meta: Option<(&'static str, Value)>,
    challenge: Option<HeaderValue>,
    allow: Option<&'static str>,
    /// For the log only.
    cause: Option<String>,
}

/// How a refusal is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A JSON-RPC error.
    Error,
    /// A tool result with `isError`, which a model reads and can act on.
    ToolResult(Era),
}

/// Why; stable, and listed in `docs/refusals.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    ForeignPeer,
    ForeignHost,
    ForeignOrigin,
    UnknownRoute,
    NoToken,
    BadToken,
    Scope,
    Unavailable,
    HttpMethod,
    ContentType,
    ContentEncoding,
    Accept,
    TooLarge,
    TooSlow,
    Incomplete,
    Syntax,
    Invalid,
    Batch,
    Method,
    Params,
    HeaderMismatch,
    Version,
    Session,
    EventId,
    State,
    Capability,
    Task,
    Denied,
    Unlisted,
    UnlistedResource,
    Held,
    ApprovalRunning,
    ApprovalDenied,
    ApprovalExpired,
    ApprovalWithdrawn,
    ApprovalInvalidated,
    ApprovalIndeterminate,
    ApprovalFailed,
    ApprovalTooMany,
    ApprovalArguments,
    ApprovalDefinition,
    ApprovalUnavailable,
    AuditUnavailable,
    Stale,
    Broken,
    Upstream(&'static str),
}

impl Code {
    /// Its name, the HTTP status it is answered with, and its JSON-RPC code.
    fn row(self) -> (&'static str, u16, i64) {
        match self {
            Code::ForeignPeer => ("request.peer", 403, -32600),
            Code::ForeignHost => ("request.host", 403, -32600),
            Code::ForeignOrigin => ("request.origin", 403, -32600),
            Code::UnknownRoute => ("request.route", 404, -32600),
            Code::NoToken => ("token.missing", 401, -32600),
            Code::BadToken => ("token.invalid", 401, -32600),
            Code::Scope => ("token.scope", 403, -32600),
            Code::Unavailable => ("token.unavailable", 503, 31503),
            Code::HttpMethod => ("request.http_method", 405, -32600),
            Code::ContentType => ("request.content_type", 415, -32600),
            Code::ContentEncoding => ("request.content_encoding", 415, -32600),
            Code::Accept => ("request.accept", 406, -32600),
            Code::TooLarge => ("request.too_large", 413, -32600),
            Code::TooSlow => ("request.too_slow", 408, -32600),
            Code::Incomplete => ("request.incomplete", 400, -32600),
            Code::Syntax => ("jsonrpc.syntax", 400, -32700),
            Code::Invalid => ("jsonrpc.invalid", 400, -32600),
            Code::Batch => ("jsonrpc.batch", 400, -32600),
            Code::Method => ("mcp.method", 200, -32601),
            Code::Params => ("mcp.params", 200, -32602),
            Code::HeaderMismatch => ("mcp.header", 400, -32020),
            Code::Version => ("mcp.version", 400, -32022),
            Code::Session => ("mcp.session", 404, -32600),
            Code::EventId => ("mcp.event_id", 400, -32600),
            Code::State => ("mcp.state", 200, -32602),
            Code::Capability => ("mcp.capability", 400, -32021),
            Code::Task => ("mcp.task", 200, -32602),
            Code::Denied => ("policy.denied", 200, 31403),
            Code::Unlisted => ("policy.unlisted", 200, -32602),
            Code::UnlistedResource => ("policy.unlisted", 200, -32002),
            Code::Held => ("policy.held", 200, 31202),
            Code::ApprovalRunning => ("approval.running", 200, 31202),
            Code::ApprovalDenied => ("approval.denied", 200, 31403),
            Code::ApprovalExpired => ("approval.expired", 200, 31408),
            Code::ApprovalWithdrawn => ("approval.withdrawn", 200, 31410),
            Code::ApprovalInvalidated => ("approval.invalidated", 200, 31409),
            Code::ApprovalIndeterminate => ("approval.indeterminate", 200, 31409),
            Code::ApprovalFailed => ("approval.failed", 200, 31500),
            Code::ApprovalTooMany => ("approval.too_many", 200, 31429),
            Code::ApprovalArguments => ("approval.arguments", 200, 31400),
            Code::ApprovalDefinition => ("approval.definition", 200, 31404),
            Code::ApprovalUnavailable => ("approval.unavailable", 200, 31503),
            Code::AuditUnavailable => ("audit.unavailable", 200, 31503),
            Code::Stale => ("token.stale", 200, 31503),
            Code::Broken => ("gateway.broken", 500, -32603),
            Code::Upstream(name) => (name, 200, -32603),
        }
    }

    /// As it stands in answers, metrics and records.
    pub(super) fn as_str(self) -> &'static str {
        self.row().0
    }
}

// === impl Refusal ===

impl Refusal {
    /// A refusal of the HTTP request, before anything is known of the message in it.
    pub(super) fn http(code: Code, message: impl Into<String>) -> Self {
        Refusal(Box::new(Parts {
            code,
            message: message.into(),
            form: Form::Error,
            status: None,
            id: None,
            data: Vec::new(),
            meta: None,
            challenge: None,
            allow: None,
            cause: None,
        }))
    }

    /// A refusal of the request `id`, as a JSON-RPC error.
    pub(super) fn error(code: Code, id: Option<&Id>, message: impl Into<String>) -> Self {
        let mut refusal = Refusal::http(code, message);
        refusal.0.id = id.cloned();
        refusal
    }

    /// A refusal of the tool call `id`, as a result that a model reads.
    pub(super) fn tool_result(code: Code, id: Option<&Id>, era: Era, message: impl Into<String>) -> Self {
        let mut refusal = Refusal::error(code, id, message);
        refusal.0.form = Form::ToolResult(era);
        refusal
    }

    /// With another HTTP status than the code's own.
    pub(super) fn status(mut self, status: StatusCode) -> Self {
        self.0.status = Some(status);
        self
    }

    /// With the HTTP methods that would be answered here (RFC 9110 §15.5.6).
    pub(super) fn allow(mut self, methods: &'static str) -> Self {
        self.0.allow = Some(methods);
        self
    }

    /// With a member of its own in the error's `data`.
    pub(super) fn data(mut self, key: &'static str, value: Value) -> Self {
        self.0.data.push((key, value));
        self
    }

    /// With a member of the tool result's `_meta`.
    pub(super) fn meta(mut self, key: &'static str, value: Value) -> Self {
        self.0.meta = Some((key, value));
        self
    }

    /// With this before its message.
    pub(super) fn say_first(mut self, text: &str) -> Self {
        self.0.message = format!("{text} {}", self.0.message);
        self
    }

    /// With what lies behind it, for the log.
    pub(super) fn because(mut self, cause: impl std::fmt::Display) -> Self {
        self.0.cause = Some(cause.to_string());
        self
    }

    /// With the challenge that tells a client where to get a token for `route` (RFC 9728 §5.1), and, where one was
    /// sent, what is wrong with it (RFC 6750 §3.1). Without a token no error is named (RFC 6750 §3).
    pub(super) fn challenge(self, route: &Route, error: Option<(&str, &str)>) -> Self {
        let scopes = route.server.scopes.join(" ");
        self.challenged(route, error, &scopes)
    }

    /// As [`Refusal::challenge`], naming every scope the call needs, as the authorization server calls them.
    pub(super) fn challenge_scope(self, route: &Route, error: Option<(&str, &str)>, scopes: &[String]) -> Self {
        let names: Vec<String> = scopes.iter().filter_map(|scope| route.server.name_of_scope(scope)).collect();
        self.challenged(route, error, &names.join(" "))
    }

    fn challenged(mut self, route: &Route, error: Option<(&str, &str)>, scope: &str) -> Self {
        let mut text = format!("Bearer resource_metadata=\"{}\"", route.metadata_url);
        if !scope.is_empty() {
            text.push_str(&format!(", scope=\"{scope}\""));
        }
        if let Some((error, description)) = error {
            text.push_str(&format!(", error=\"{error}\", error_description=\"{description}\""));
        }
        self.0.challenge = HeaderValue::try_from(text).ok();
        self
    }
}

// === impl Parts ===

impl Parts {
    fn body(&self) -> Bytes {
        let (name, _, number) = self.code.row();
        // Where it says what was asked for, that may be a secret in the wrong place; answers are kept by clients and shown.
        let message = Redactor::of_process().text(&self.message);
        let answer = match self.form {
            Form::Error => {
                let mut data = json!({ "code": name });
                for (key, value) in &self.data {
                    data[*key] = value.clone();
                }
                json!({ "code": number, "message": message, "data": data })
            }
            Form::ToolResult(era) => {
                let mut result = json!({ "content": [{ "type": "text", "text": message }], "isError": true });
                if era == Era::Modern {
                    result["resultType"] = json!("complete");
                }
                if let Some((key, value)) = &self.meta {
                    result["_meta"] = json!({ *key: value });
                }
                result
            }
        };
        let member = if self.form == Form::Error { "error" } else { "result" };
        // The id is put in as the client wrote it: numbers of any size keep their digits.
        let id = self.id.as_ref().map_or("null", Id::as_json);
        Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{answer}}}"#))
    }
}

/// Notes a refusal that has no answer to stand in.
pub(super) fn note(exchange: &mut Exchange, Refusal(refusal): &Refusal) -> Outcome {
    exchange.facts.code = Some(refusal.code.as_str());
    Outcome::Refused
}

/// Answers `exchange` with `refusal`, in whatever way is still open.
pub(super) async fn answer(exchange: &mut Exchange, Refusal(refusal): Refusal) -> Outcome {
    exchange.facts.code = Some(refusal.code.as_str());
    if let Some(cause) = &refusal.cause {
        tracing::debug!(request = %exchange.id, code = refusal.code.as_str(), %cause, "refused");
    }
    match write(exchange, &refusal).await {
        Ok(()) => Outcome::Refused,
        Err(Gone) => Outcome::ClientGone,
    }
}

/// A bug of ours has ended the work on this request, and no other. Where nothing was answered yet, that is said; an answer
/// that has begun is cut, so that nobody takes it for whole.
pub(super) async fn broken(exchange: &mut Exchange) -> Outcome {
    if exchange.facts.status == 0 {
        let text = "a fault inside the gateway; whether the call ran is not known. Its id finds it in the audit log.";
        answer(exchange, Refusal::http(Code::Broken, text)).await;
    }
    exchange.facts.code = Some(Code::Broken.as_str());
    Outcome::Broken
}

async fn write(exchange: &mut Exchange, refusal: &Parts) -> Result<(), Gone> {
    if refusal.id.is_none() && exchange.is_streaming() && !exchange.is_gathering() {
        // The stream of a session: nothing was asked that this could be the answer to.
        return exchange.end_stream().await;
    }
    let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::with_capacity(2);
    headers.extend(refusal.challenge.clone().map(|value| (WWW_AUTHENTICATE, value)));
    headers.extend(refusal.allow.map(|methods| (ALLOW, HeaderValue::from_static(methods))));
    let own = StatusCode::from_u16(refusal.code.row().1).expect("the table holds status codes");
    exchange.conclude(refusal.status.unwrap_or(own), headers, refusal.body()).await
}
