//! What a server may ask of its client in the older era: over the client's open streams, answered with a POST
//! (MCP 2025-11-25, "Client Features"). 2026-07-28 has no such requests.

use crate::jsonrpc::{Kind, Node, Span};

/// A request of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Whether the client is there.
    Ping,
    /// A question to the person (`elicitation/create`).
    Elicitation,
    /// A completion of the client's model (`sampling/createMessage`).
    Sampling,
    /// The folders that the client works in (`roots/list`).
    Roots,
}

/// What a client said at `initialize` that it can be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// `elicitation/create`.
    pub elicitation: bool,
    /// `sampling/createMessage`.
    pub sampling: bool,
    /// `roots/list`.
    pub roots: bool,
}

impl Ask {
    /// The request of exactly this method; `None` for one that no revision knows.
    pub fn of_method(method: &str) -> Option<Ask> {
        match method {
            "ping" => Some(Ask::Ping),
            "elicitation/create" => Some(Ask::Elicitation),
            "sampling/createMessage" => Some(Ask::Sampling),
            "roots/list" => Some(Ask::Roots),
            _ => None,
        }
    }
}

impl Abilities {
    /// As the `initialize` request in `body` declares them. A member counts when it is an object, whatever is in it.
    pub fn declared(body: &[u8]) -> Abilities {
        let whole = Node::of(body, Span::whole(body));
        let capabilities = whole.get("params").and_then(|params| params.get("capabilities"));
        let has = |name| {
            let member = capabilities.and_then(|capabilities| capabilities.get(name));
            member.is_some_and(|member| member.kind() == Kind::Object)
        };
        Abilities { elicitation: has("elicitation"), sampling: has("sampling"), roots: has("roots") }
    }

    /// Whether such a request makes sense to this client.
    pub fn allow(self, ask: Ask) -> bool {
        match ask {
            Ask::Ping => true,
            Ask::Elicitation => self.elicitation,
            Ask::Sampling => self.sampling,
            Ask::Roots => self.roots,
        }
    }

    /// As one byte, to be kept in a sealed session id.
    pub fn to_bits(self) -> u8 {
        u8::from(self.elicitation) | u8::from(self.sampling) << 1 | u8::from(self.roots) << 2
    }

    /// Undoes [`Abilities::to_bits`].
    pub fn from_bits(bits: u8) -> Abilities {
        Abilities { elicitation: bits & 1 != 0, sampling: bits & 2 != 0, roots: bits & 4 != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_be_asked_for_what_it_declared_and_pinged_in_any_case() {
        let body = br#"{"params":{"capabilities":{"elicitation":{"url":{}},"roots":{},"sampling":null}}}"#;

        let abilities = Abilities::declared(body);

        assert!(abilities.allow(Ask::Elicitation) && abilities.allow(Ask::Roots) && abilities.allow(Ask::Ping));
        assert!(!abilities.allow(Ask::Sampling));
        assert_eq!(Abilities::declared(b"{}"), Abilities::default());
    }

    #[test]
    fn abilities_survive_their_byte() {
        for bits in 0..8 {
            assert_eq!(Abilities::from_bits(bits).to_bits(), bits);
        }
    }
}
