//! What was found, for people and for programs.

use super::{Finding, Verdict};
use serde::Serialize;
use std::fmt;

/// All findings of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// In the order of the claims.
    pub findings: Vec<Finding>,
}

// === impl Report ===

impl Report {
    /// How many there are of a kind.
    pub fn n(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|finding| finding.verdict == verdict).count()
    }

    /// Whether nothing failed, and something was shown at all.
    pub fn is_good(&self) -> bool {
        self.n(Verdict::Fail) == 0 && self.n(Verdict::Pass) > 0
    }

    /// One line that says it all.
    pub fn summary(&self) -> String {
        format!(
            "{} passed, {} failed, {} not applicable (which is no pass)",
            self.n(Verdict::Pass),
            self.n(Verdict::Fail),
            self.n(Verdict::NotApplicable)
        )
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Pass => "PASS",
            Verdict::Fail => "FAIL",
            Verdict::NotApplicable => "NOT APPLICABLE",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<14}  {}  ({})", self.verdict, self.claim, self.id)?;
        writeln!(f, "{:<14}  inside:  {}", "", printable(&self.inside))?;
        write!(f, "{:<14}  outside: {}", "", printable(&self.outside))
    }
}

/// What commands say goes to a terminal: without anything that a terminal obeys.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
