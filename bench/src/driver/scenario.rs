//! What is called, how often, over how many connections.

/// One row of the tables.
pub(crate) struct Scenario {
    pub(crate) title: &'static str,
    pub(crate) payload: &'static str,
    pub(crate) is_legacy: bool,
    pub(crate) connections: usize,
    pub(crate) pace: Pace,
    /// How many calls are made under callgrind, and with which payload.
    pub(crate) counted: Option<(&'static str, u64)>,
    /// What a call's figures are divided by: the events of a stream that comes one event at a time.
    pub(crate) unit: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// As fast as answers come.
    Closed,
    /// Each connection makes one call.
    Once,
    /// So many a second, whatever comes back.
    Rate(f64),
}

/// Calls that are due each second where latency is measured.
pub(crate) const RATE: f64 = 1000.0;

pub(crate) const SCENARIOS: [Scenario; 8] = [
    Scenario { title: "1 KiB", payload: "1k", counted: Some(("1k", 3000)), ..CLOSED },
    Scenario {
        title: "1 KiB, 2025-11-25 with a session",
        payload: "1k",
        is_legacy: true,
        counted: Some(("1k", 3000)),
        ..CLOSED
    },
    Scenario { title: "64 KiB, one string", payload: "64k-string", counted: Some(("64k-string", 300)), ..CLOSED },
    Scenario { title: "64 KiB, 2,000 nodes", payload: "64k-nodes", counted: Some(("64k-nodes", 300)), ..CLOSED },
    Scenario { title: "64 KiB, one string, answer 1 KiB", payload: "64k-in", counted: Some(("64k-in", 300)), ..CLOSED },
    Scenario {
        title: "burst of 1,000 events",
        payload: "burst",
        connections: 8,
        counted: Some(("burst", 80)),
        unit: "stream",
        ..CLOSED
    },
    Scenario {
        title: "1,000 events, one every 10 ms",
        payload: "paced",
        connections: 8,
        pace: Pace::Once,
        counted: Some(("paced-short", 16)),
        unit: "stream",
        ..CLOSED
    },
    Scenario { title: RATE_TITLE, payload: "1k", pace: Pace::Rate(RATE), ..CLOSED },
];

/// What `make bench-audit` compares. The first is also counted by callgrind, which has fewer connections for all.
pub(crate) const AUDITED: [Scenario; 2] = [
    Scenario { title: "1 KiB, 64 connections", payload: "1k", counted: Some(("1k", 3000)), ..CLOSED },
    Scenario { title: "1 KiB, 512 connections", payload: "1k", connections: 512, ..CLOSED },
];

pub(crate) const RATE_TITLE: &str = "1 KiB at 1,000 calls a second";

const CLOSED: Scenario = Scenario {
    title: "",
    payload: "",
    is_legacy: false,
    connections: 64,
    pace: Pace::Closed,
    counted: None,
    unit: "call",
};
