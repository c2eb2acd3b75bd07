//! What verifiers of upstreams say: verdicts, findings, and the report of a run, for people and for programs.

use serde::Serialize;
use serde::ser::Serializer;
use std::fmt;

/// What is to be thought of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was attacked, and it holds.
    Pass,
    /// It does not hold, or nothing shows that it does.
    Fail,
    /// It cannot be tried here. Never counts as a pass.
    NotApplicable,
}

/// One claim, judged.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Which claim.
    pub id: &'static str,
    /// As a sentence.
    pub claim: &'static str,
    /// What is to be thought of it.
    pub verdict: Verdict,
    /// What was seen, and under which name it is told; as keys of their own in JSON.
    #[serde(flatten, serialize_with = "as_object")]
    pub seen: Vec<(&'static str, String)>,
}

/// All findings of a run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// In the order in which they were made.
    pub findings: Vec<Finding>,
}

fn as_object<S: Serializer>(seen: &[(&'static str, String)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(seen.iter().map(|(name, text)| (name, text)))
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
        write!(f, "{:<14}  {}  ({})", self.verdict, self.claim, self.id)?;
        let width = self.seen.iter().map(|(name, _)| name.len() + 1).max().unwrap_or(0);
        for (name, text) in &self.seen {
            write!(f, "\n{:<14}  {:<width$} {}", "", format!("{name}:"), printable(text))?;
        }
        Ok(())
    }
}

/// What others say goes to a terminal: without anything that a terminal obeys.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: Verdict) -> Finding {
        let seen = vec![("inside", "blocked".to_owned()), ("outside", "a\x1b[2J\nb".to_owned())];
        Finding { id: "x", claim: "nothing gets out", verdict, seen }
    }

    #[test]
    fn a_report_is_good_only_where_something_passed_and_nothing_failed() {
        let report = |verdicts: &[Verdict]| Report { findings: verdicts.iter().copied().map(finding).collect() };

        assert!(report(&[Verdict::Pass, Verdict::NotApplicable]).is_good());
        for none in [&[] as &[_], &[Verdict::NotApplicable], &[Verdict::Pass, Verdict::Fail]] {
            assert!(!report(none).is_good(), "{none:?}");
        }
    }

    #[test]
    fn a_finding_is_told_without_anything_that_a_terminal_obeys() {
        let text = finding(Verdict::Fail).to_string();

        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "FAIL            nothing gets out  (x)",
                "                inside:  blocked",
                "                outside: a [2J b"
            ]
        );
    }

    #[test]
    fn what_was_seen_stands_beside_the_verdict_in_json() {
        let told = serde_json::to_value(finding(Verdict::NotApplicable)).expect("it is JSON");

        assert_eq!(
            told,
            serde_json::json!({
                "id": "x", "claim": "nothing gets out", "verdict": "not_applicable",
                "inside": "blocked", "outside": "a\u{1b}[2J\nb",
            })
        );
    }
}
