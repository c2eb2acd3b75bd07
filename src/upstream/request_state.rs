//! The state an upstream hands to a client in an `input_required` result (MCP 2026-07-28, "Multi Round-Trip Requests").
//!
//! The client sends it back with its answers, and could send anything. So it leaves sealed: bound to the route, the
//! principal and the call it belongs to, and told apart from any state of our own. The upstream gets back, byte for
//! byte, what it handed out.

use super::seal::{Purpose, Scope, Seal};

impl Seal {
    /// The upstream's `state` for a call of `method` on `object`, as the client gets to see it.
    pub fn request_state(&self, state: &str, method: &str, object: &str, scope: Scope<'_>) -> String {
        let within = [method.as_bytes(), object.as_bytes()];
        self.seal(Purpose::RequestState, scope, &within, state.as_bytes().to_vec())
    }

    /// The upstream's state in what the client sent with a call of `method` on `object`; `None` for any other text.
    pub fn open_request_state(&self, sealed: &str, method: &str, object: &str, scope: Scope<'_>) -> Option<String> {
        let within = [method.as_bytes(), object.as_bytes()];
        let state = self.open(Purpose::RequestState, scope, &within, sealed.as_bytes())?;
        String::from_utf8(state).ok()
    }
}
