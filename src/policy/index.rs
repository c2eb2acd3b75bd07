//! Which rules can speak of an upstream at all, so that a decision does not look at the others.

use super::Object;
use super::pattern::{Glob, Pattern};
use super::rule::Rule;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Rules by kind of object and by upstream.
#[derive(Debug)]
pub(super) struct Index {
    tools: ByUpstream,
    resources: ByUpstream,
    prompts: ByUpstream,
}

/// In each list the rules stand in the order of the file.
#[derive(Debug)]
struct ByUpstream {
    /// Upstreams that a pattern names without a `*`, with every rule that matches them.
    named: HashMap<Box<str>, Vec<Arc<Rule>>>,
    /// For all others: the rules with a `*` before the `/`.
    elsewhere: Vec<Arc<Rule>>,
}

impl Index {
    pub(super) fn new(rules: &[Arc<Rule>]) -> Index {
        Index {
            tools: ByUpstream::new(rules, |rule| &rule.tools),
            resources: ByUpstream::new(rules, |rule| &rule.resources),
            prompts: ByUpstream::new(rules, |rule| &rule.prompts),
        }
    }

    pub(super) fn candidates(&self, upstream: &str, object: Object<'_>) -> &[Arc<Rule>] {
        let by_upstream = match object {
            Object::Tool(_) => &self.tools,
            Object::Resource(_) => &self.resources,
            Object::Prompt(_) => &self.prompts,
        };
        by_upstream.named.get(upstream).unwrap_or(&by_upstream.elsewhere)
    }
}

impl ByUpstream {
    fn new(rules: &[Arc<Rule>], patterns: fn(&Rule) -> &[Pattern]) -> ByUpstream {
        let with = |wanted: &dyn Fn(&Glob) -> bool| -> Vec<Arc<Rule>> {
            rules
                .iter()
                .filter(|rule| patterns(rule).iter().any(|pattern| wanted(&pattern.upstream)))
                .cloned()
                .collect()
        };
        // Once each, however many patterns name it.
        let names: BTreeSet<&Box<str>> = rules
            .iter()
            .flat_map(|rule| patterns(rule))
            .filter_map(|pattern| match &pattern.upstream {
                Glob::Exact(name) => Some(name),
                Glob::Wild { .. } => None,
            })
            .collect();
        ByUpstream {
            elsewhere: with(&|glob| matches!(glob, Glob::Wild { .. })),
            named: names.into_iter().map(|name| (name.clone(), with(&|glob| glob.matches(name)))).collect(),
        }
    }
}
