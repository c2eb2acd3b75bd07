//! The two worlds of MCP: sessions opened by `initialize` (legacy), and self-contained requests (modern).

/// Which world a request belongs to; a property of each hop, read anew from each request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// 2025-03-26, 2025-06-18, 2025-11-25: `initialize`, `Mcp-Session-Id`.
    Legacy,
    /// 2026-07-28: per-request `_meta`, `Mcp-Method`, `Mcp-Name`.
    Modern,
}

/// The newest revision.
pub const LATEST: &str = "2026-07-28";

/// The newest revision that has sessions.
pub const LATEST_LEGACY: &str = "2025-11-25";

/// Every revision spoken here, newest first.
pub const SUPPORTED: [&str; 5] = [LATEST, LATEST_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05"];

impl Era {
    /// The era of a protocol version; `None` for one that is not spoken here.
    pub fn of(version: &str) -> Option<Era> {
        SUPPORTED.contains(&version).then(|| if version == LATEST { Era::Modern } else { Era::Legacy })
    }

    /// As it is written in logs and audit records.
    pub fn as_str(self) -> &'static str {
        match self {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        }
    }
}
