//! The method table: every method a client may send, with what it does and to what. What is not in it is refused.

/// What a method does, which says how it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Opens, probes or tunes the conversation: let through for whoever holds a token for the route.
    Lifecycle,
    /// Lists objects: let through, the answer filtered by the same policy.
    List(super::Listing),
    /// Calls a tool: judged by the rules on `tools`.
    CallTool,
    /// Gets a prompt: judged by the rules on `prompts`.
    GetPrompt,
    /// Reads a resource, or asks to hear of its changes: judged by the rules on `resources`.
    ReadResource,
    /// Asks for, answers or ends a task (Tasks extension): answered here, for the task's own requester.
    Task,
    /// Completes an argument of a prompt or of a resource template: judged as that prompt or resource.
    Complete,
    /// Asks for a stream of notifications: judged by each resource it names.
    Listen,
    /// Tells something and expects no answer: let through.
    Notify,
    /// Answers what the server asked this client for: let through in the session it was asked in.
    Answer,
    /// Opens a stream for what the server has to say, or takes one up again: let through.
    Stream,
    /// Ends a session: let through.
    EndSession,
}

/// One row: a method that is known here.
#[derive(Debug, PartialEq, Eq)]
pub struct Method {
    /// Its exact name.
    pub name: &'static str,
    /// What it does.
    pub verb: Verb,
    /// Whether it may be sent again on a fresh connection when the first try died without an answer.
    pub repeatable: bool,
}

/// Every method a client may send, in the order of the specification's schema.
pub const METHODS: [Method; 23] = {
    use super::Listing;
    [
        row("initialize", Verb::Lifecycle, true),
        row("server/discover", Verb::Lifecycle, true),
        row("ping", Verb::Lifecycle, true),
        row("logging/setLevel", Verb::Lifecycle, true),
        row("tools/list", Verb::List(Listing::Tools), true),
        row("tools/call", Verb::CallTool, false),
        row("tasks/get", Verb::Task, false),
        row("tasks/update", Verb::Task, false),
        row("tasks/cancel", Verb::Task, false),
        row("resources/list", Verb::List(Listing::Resources), true),
        row("resources/templates/list", Verb::List(Listing::ResourceTemplates), true),
        row("resources/read", Verb::ReadResource, true),
        row("resources/subscribe", Verb::ReadResource, true),
        row("resources/unsubscribe", Verb::ReadResource, true),
        row("prompts/list", Verb::List(Listing::Prompts), true),
        row("prompts/get", Verb::GetPrompt, true),
        row("completion/complete", Verb::Complete, true),
        row("subscriptions/listen", Verb::Listen, true),
        row("notifications/initialized", Verb::Notify, false),
        row("notifications/cancelled", Verb::Notify, false),
        row("notifications/progress", Verb::Notify, false),
        row("notifications/roots/list_changed", Verb::Notify, false),
        row("notifications/elicitation/complete", Verb::Notify, false),
    ]
};

/// What older revisions send without a method of JSON-RPC. The names stand in records and metrics only.
impl Method {
    /// `GET`: the stream of a session (MCP, Streamable HTTP, "Listening for Messages from the Server").
    pub const STREAM: &'static Method = &row("(stream)", Verb::Stream, true);
    /// `DELETE`: the end of a session (MCP, Streamable HTTP, "Session Management").
    pub const END_SESSION: &'static Method = &row("(end of session)", Verb::EndSession, true);
    /// A response, which answers a request of the server.
    pub const ANSWER: &'static Method = &row("(answer)", Verb::Answer, false);
}

const fn row(name: &'static str, verb: Verb, repeatable: bool) -> Method {
    Method { name, verb, repeatable }
}

impl Method {
    /// The row of exactly this name: no folding of case, no trimming.
    pub fn named(name: &str) -> Option<&'static Method> {
        METHODS.iter().find(|method| method.name == name)
    }
}

/// The table as Markdown, for `docs/methods.md`.
pub fn table() -> String {
    let mut text = String::from("| method | judged by | default |\n|---|---|---|\n");
    for method in &METHODS {
        let (judged, default) = match method.verb {
            Verb::Lifecycle => ("a token for the route", "let through"),
            Verb::List(_) => ("a token for the route", "let through, the answer filtered entry by entry"),
            Verb::CallTool => ("rules on `tools`, down to the arguments", "denied"),
            Verb::Task => (
                "a token for the route, and whose task it is",
                "answered by the gateway, for tasks that stand for held calls",
            ),
            Verb::GetPrompt => ("rules on `prompts`, down to the arguments", "denied"),
            Verb::ReadResource => ("rules on `resources`", "denied"),
            Verb::Complete => ("the rules on the prompt or resource it completes", "denied"),
            Verb::Listen => ("the rules on each resource it names", "let through when it names none"),
            Verb::Notify | Verb::Answer | Verb::Stream | Verb::EndSession => ("a token for the route", "let through"),
        };
        text.push_str(&format!("| `{}` | {judged} | {default} |\n", method.name));
    }
    for (what, judged) in [
        ("a response", "a token for the route, and the session it was asked in"),
        ("`GET` (a stream)", "a token for the route, and the session, where there is one"),
        ("`DELETE` (the end of a session)", "a token for the route, and the session"),
    ] {
        text.push_str(&format!("| {what} | {judged} | let through in revisions up to 2025-11-25 |\n"));
    }
    text.push_str("| anything else | | refused: method not found |\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_found_by_its_exact_name_only() {
        assert!(Method::named("tools/call").is_some());

        for wrong in ["Tools/Call", "tools/call ", "tools/call\0", "", "tools"] {
            assert_eq!(Method::named(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_may_change_something_is_never_sent_twice() {
        let call = Method::named("tools/call").expect("in the table");
        assert!(!call.repeatable);
    }
}
