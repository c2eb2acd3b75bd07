//! The state of a held call that its client keeps (MCP 2026-07-28, "Multi Round-Trip Requests"): which held call it
//! waits for, and what it had sent before it was asked to come back.
//!
//! Sealed for another purpose than a server's own state, so that neither is ever taken for the other. It is a name and no
//! right: the call it comes with is judged like any other, and its approval is used up once, whoever shows what.

use super::seal::{Purpose, Scope, Seal};
use serde::{Deserialize, Serialize};

/// What a client brings back.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct HoldState {
    /// The held call's id.
    #[serde(rename = "h")]
    pub approval: String,
    /// How often the client was asked to come back before this.
    #[serde(rename = "n")]
    pub n_rounds: u8,
    /// The `inputResponses` that the call itself has, as JSON.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub input_responses: Option<String>,
    /// The `requestState` that the call itself has, as the client sent it.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub request_state: Option<String>,
}

impl Seal {
    /// `state` of a held call of `tool`, as its client gets to see it.
    pub fn hold_state(&self, state: &HoldState, tool: &str, scope: Scope<'_>) -> String {
        let text = serde_json::to_vec(state).expect("texts and numbers can be written as JSON");
        self.seal(Purpose::HoldState, scope, &[tool.as_bytes()], text)
    }

    /// The state in what the client sent with a call of `tool`; `None` for any other text.
    pub fn open_hold_state(&self, sealed: &str, tool: &str, scope: Scope<'_>) -> Option<HoldState> {
        let text = self.open(Purpose::HoldState, scope, &[tool.as_bytes()], sealed.as_bytes())?;
        serde_json::from_slice(&text).ok()
    }
}
