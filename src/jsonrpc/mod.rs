//! Reads one JSON-RPC message, within the limits it is given. Knows nothing of MCP: that is `mcp`.
