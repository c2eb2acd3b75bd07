//! The kept answer of a held call, given to its callers under their own request ids.
//!
//! Everybody who waited when it came gets it as it is. An answer that nobody was there for goes once to the next one who
//! makes the same call, and says when it ran: the model asked for that call a while ago.

use super::super::exchange::{End, Exchange};
use super::super::record::Outcome;
use super::super::traced;
use super::Caller;
use crate::clock::rfc3339;
use crate::jsonrpc::{Edits, Id, Kind, Node, Span};
use crate::mcp::Era;
use crate::store::Approval;
use bytes::Bytes;
use http::StatusCode;
use serde_json::json;

impl Caller<'_> {
    /// Gives the answer to this caller; `None`: another one had it already.
    ///
    /// # Errors
    /// There is none, or it cannot be read; or the client's leaving.
    pub(super) async fn deliver(
        &self,
        exchange: &mut Exchange,
        approval: &Approval,
        is_attached: bool,
    ) -> Result<Option<Outcome>, End> {
        let Some(answer) = self.approvals().answer_of(approval).map_err(|error| self.unavailable(&error))? else {
            return Err(self.told(approval).into());
        };
        // Who has left is given nothing: then it waits for whoever calls next.
        exchange.look().await?;
        if !is_attached && !self.receive(approval).await? {
            return Ok(None);
        }
        exchange.trace.fault(|| traced::fault_of_member(&answer));
        let call = &self.received.call;
        let late = (!is_attached).then(|| late(approval));
        let message = message(call.id.as_ref(), call.era, &answer, late.as_deref());
        crate::fault::point("approval.delivering");
        exchange.conclude(StatusCode::OK, Vec::new(), message).await?;
        crate::fault::point("approval.delivered");
        if is_attached && let Err(error) = self.approvals().received(&approval.id).await {
            // It has its answer; the next one who makes the call may get it, too.
            tracing::warn!(%error, approval = %approval.id, "it cannot be noted that a result was received");
        }
        Ok(Some(Outcome::Completed))
    }

    async fn receive(&self, approval: &Approval) -> Result<bool, End> {
        self.approvals().received(&approval.id).await.map_err(|error| self.unavailable(&error))
    }
}

fn late(approval: &Approval) -> String {
    let at = approval.consumed_at_ms.map_or_else(|| "earlier".to_owned(), |ms| format!("at {}", rfc3339(ms)));
    format!(
        "This is the result of the same call, which was approved and ran {at} (held call {}). It did not run again.",
        approval.id
    )
}

/// The message that ends the exchange: `answer` is the member with the result or the error.
fn message(id: Option<&Id>, era: Era, answer: &Bytes, late: Option<&str>) -> Bytes {
    let id = id.map_or("null", Id::as_json);
    let mut text = format!(r#"{{"jsonrpc":"2.0","id":{id},"#).into_bytes();
    text.extend_from_slice(answer);
    text.push(b'}');
    let mut edits = Edits::of(&text);
    let whole = Node::of(&text, Span::whole(&text));
    if let Some(result) = whole.get("result").filter(|result| result.kind() == Kind::Object) {
        if let (Some(late), Some(content)) = (late, result.get("content")) {
            say_first(late, content, &text, &mut edits);
        }
        if era == Era::Modern && result.get("resultType").is_none() {
            // It ran for a client of the older era.
            insert(&mut edits, result, &text, r#""resultType":"complete""#);
        }
    }
    if edits.is_empty() { text.into() } else { edits.apply().into() }
}

/// A text item before all others. Where there is no list of them, it is left alone.
fn say_first(late: &str, content: Node<'_>, text: &[u8], edits: &mut Edits<'_>) {
    if content.kind() == Kind::Array {
        insert(edits, content, text, &json!({ "type": "text", "text": late }).to_string());
    }
}

/// Puts `what` in the first place of a list or an object.
fn insert(edits: &mut Edits<'_>, of: Node<'_>, text: &[u8], what: &str) {
    let Some(span) = of.span_in(text) else {
        return;
    };
    let is_empty = of.elements().next().is_none() && of.members().next().is_none();
    let after_bracket = Span { start: span.start.saturating_add(1), end: span.start.saturating_add(1) };
    edits.replace_span(after_bracket, format!("{what}{}", if is_empty { "" } else { "," }));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(era: Era, answer: &'static str, late: Option<&str>) -> String {
        let message = message(Some(&Id::from(7)), era, &Bytes::from_static(answer.as_bytes()), late);
        String::from_utf8(message.to_vec()).unwrap()
    }

    #[test]
    fn an_answer_goes_out_as_it_is_under_the_id_of_its_caller() {
        let answer = r#""result":{ "content":[ {"type":"text","text":"é"} ],"n":1.0 }"#;
        assert_eq!(said(Era::Legacy, answer, None), format!(r#"{{"jsonrpc":"2.0","id":7,{answer}}}"#));
        let error = r#""error":{"code":-32603,"message":"no"}"#;
        assert_eq!(said(Era::Modern, error, Some("late")), format!(r#"{{"jsonrpc":"2.0","id":7,{error}}}"#));
    }

    #[test]
    fn a_late_answer_says_so_first_and_has_the_form_of_the_era() {
        let late = said(Era::Legacy, r#""result":{"content":[{"a":1}]}"#, Some("late"));
        assert_eq!(late, r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"text":"late","type":"text"},{"a":1}]}}"#);
        let empty = said(Era::Modern, r#""result":{"content":[]}"#, Some("late"));
        assert_eq!(
            empty,
            r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[{"text":"late","type":"text"}]}}"#
        );
        let modern = said(Era::Modern, r#""result":{"resultType":"input_required"}"#, Some("late"));
        assert_eq!(modern, r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required"}}"#);
    }
}
