//! The calls that are made: a body with a place for a fresh id, and the headers that go with it.

/// Every id has this many digits, so that a body's length does not change with it.
pub const ID_DIGITS: usize = 10;
/// The first id.
pub const FIRST_ID: u64 = 1_000_000_000;

/// Which revision of MCP the calls are made in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// 2025-11-25: opens a session and names it in every call.
    Legacy,
    /// 2026-07-28: every call stands alone.
    Modern,
}

/// What one scenario calls.
pub struct Payload {
    /// The tool.
    pub tool: &'static str,
    /// The text of `arguments`.
    pub arguments: String,
    /// Events that come before the answer.
    pub events: usize,
}

impl Payload {
    /// The payload of that name.
    pub fn named(name: &str) -> Option<Payload> {
        let call = |tool, arguments| Payload { tool, arguments, events: 0 };
        let stream = |tool, events: usize, more: &str| Payload {
            tool,
            arguments: format!(r#"{{"path":"{PATH}","events":{events}{more}}}"#),
            events,
        };
        Some(match name {
            "1k" => call("echo", with_payload(&string(ONE_KIB))),
            "64k-string" => call("echo", with_payload(&string(SIXTY_FOUR_KIB))),
            "64k-nodes" => call("echo", with_payload(&rows())),
            "64k-in" => call("take", with_payload(&string(SIXTY_FOUR_KIB))),
            "burst" => stream("burst", 1000, ""),
            "paced" => stream("paced", 1000, r#","every_ms":10"#),
            "paced-short" => stream("paced", 100, r#","every_ms":10"#),
            "idle" => stream("idle", 1, ""),
            _ => return None,
        })
    }

    /// The whole body, with zeros for the id, and where they stand.
    pub fn body(&self, era: Era) -> (Vec<u8>, usize) {
        let zeros = "0".repeat(ID_DIGITS);
        let meta = match era {
            Era::Modern => MODERN_META,
            Era::Legacy => LEGACY_META,
        };
        let (tool, arguments) = (self.tool, &self.arguments);
        let before = r#"{"jsonrpc":"2.0","id":"#;
        let body = format!(
            r#"{before}{zeros},"method":"tools/call","params":{{"name":"{tool}","_meta":{meta},"arguments":{arguments}}}}}"#
        );
        (body.into_bytes(), before.len())
    }
}

/// What the rule in `peers/portcullis.yaml` looks at.
const PATH: &str = "/srv/data/reports/2026-11/weekly-summary.txt";
/// Text that makes the whole body of a modern call 1 KiB.
const ONE_KIB: usize = 592;
const SIXTY_FOUR_KIB: usize = 64 * 1024;
const MODERN_META: &str = concat!(
    r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"bench-load","version":"1"},"progressToken":"b"}"#
);
const LEGACY_META: &str = r#"{"progressToken":"b"}"#;

fn with_payload(payload: &str) -> String {
    format!(r#"{{"path":"{PATH}","payload":{payload}}}"#)
}

/// Prose of `length` bytes.
fn string(length: usize) -> String {
    let prose = "The gate is let down at dusk and drawn up at dawn, and who comes in between states his business. ";
    let text: String = prose.chars().cycle().take(length).collect();
    format!("\"{text}\"")
}

/// 2,000 JSON values in 64 KiB: 200 rows of ten values each, and the list they stand in.
fn rows() -> String {
    let row = |n: usize| {
        let note = &"As agreed on the phone, delivery to the back door; ring twice, then wait for the keeper. "
            .repeat(3)[..196];
        format!(
            concat!(
                r#"{{"id":{id},"name":"row number {n}","is_open":{open},"price":{n}.25,"tags":["north","gate"],"#,
                r#""at":"2026-11-30T05:{minute:02}:00Z","note":"{note}"}}"#
            ),
            id = 100_000 + n,
            n = n,
            open = n.is_multiple_of(2),
            minute = n % 60,
            note = note,
        )
    };
    let rows: Vec<String> = (0..200).map(row).collect();
    format!("[{}]", rows.join(","))
}
