//! What looks forgotten where external issuers exist: a rule without `who` is for everybody if it denies, and for people
//! of this gateway only if it does not (docs/decisions/0005). So a hold that reads as if it held all may let some pass.

use super::lint::is_within;
use crate::config::{Config, Path, Problem, Rule};
use std::collections::BTreeSet;

/// Holds that do not reach external people whom another rule lets in, as warnings.
pub fn lint_external(config: &Config) -> Vec<Problem> {
    let mapped: BTreeSet<&str> =
        config.identity.issuers.iter().flat_map(|issuer| issuer.groups.values()).map(String::as_str).collect();
    let path = Path::root().key("policy").key("rules");
    let rules = &config.policy.rules;
    let holds = rules.iter().enumerate().filter(|(_, rule)| rule.hold.is_some());
    holds.filter_map(|(at, hold)| passes_by(hold, rules, &mapped, path.index(at))).collect()
}

/// A hold that names no groups, beside an allow that lets a mapped group do some of the same.
fn passes_by(hold: &Rule, rules: &[Rule], mapped: &BTreeSet<&str>, path: Path) -> Option<Problem> {
    if hold.who.as_ref().is_some_and(|who| who.groups.is_some()) {
        return None;
    }
    let lets_in = |rule: &&Rule| {
        let groups = rule.who.as_ref().and_then(|who| who.groups.as_ref());
        rule.allow.is_some() && groups.is_some_and(|groups| groups.iter().any(|group| mapped.contains(group.as_str())))
    };
    let allow = rules.iter().filter(lets_in).find(|allow| overlaps(hold, allow))?;
    let message = format!(
        "rule `{}` does not hold calls of external people, whom rule `{}` lets in by their group",
        hold.name, allow.name
    );
    let hint =
        "without `groups` a hold is for people of this gateway: add a rule that holds for `who: { groups: […] }`";
    Some(Problem::warning(path, message).hint(hint))
}

/// Whether both speak of some object, as far as one pattern of a pair covers the other.
fn overlaps(one: &Rule, other: &Rule) -> bool {
    let kinds: [fn(&Rule) -> &[String]; 3] = [|r| &r.tools, |r| &r.resources, |r| &r.prompts];
    kinds.iter().any(|kind| {
        let both = kind(one).iter().flat_map(|a| kind(other).iter().map(move |b| (a, b)));
        both.into_iter().any(|(a, b)| is_within(a, b) || is_within(b, a))
    })
}

#[cfg(test)]
mod tests {
    use super::lint_external;
    use crate::config;

    #[track_caller]
    fn check(identity: &str, rules: &str, expected: &str) {
        let text = format!(
            "upstreams: {{ u: {{ http: {{ url: http://127.0.0.1:1/mcp }} }} }}\nidentity: {identity}\npolicy: {{ rules: [{rules}] }}\n"
        );
        let config = config::load(&text, "gateway.yaml").expect("the test's YAML is of the right form").config;
        let found: Vec<String> =
            lint_external(&config).iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect();
        assert_eq!(found.join("\n"), expected);
    }

    #[test]
    fn a_hold_that_external_people_pass_by_is_pointed_out() {
        let mapped = "{ issuers: [{ issuer: https://idp.test, groups: { theirs: ops } }] }";
        let allow = "{ name: a, tools: ['u/*'], who: { groups: [ops] }, allow: {} }";
        let hold = |who: &str| format!("{{ name: h, tools: ['u/t'], {who} hold: {{ approvers: {{ groups: [x] }} }} }}");
        let said =
            "policy.rules[1]: rule `h` does not hold calls of external people, whom rule `a` lets in by their group";

        check(mapped, &format!("{allow}, {}", hold("")), said);
        check(mapped, &format!("{allow}, {}", hold("who: { users: [bob] },")), said);
        check(mapped, &format!("{allow}, {}", hold("who: { groups: [ops] },")), "");
        check("{}", &format!("{allow}, {}", hold("")), "");
        let local = "{ name: a, tools: ['u/*'], allow: {} }";
        check(mapped, &format!("{local}, {}", hold("")), "");
        let elsewhere = "{ name: a, tools: ['u/other'], who: { groups: [ops] }, allow: {} }";
        check(mapped, &format!("{elsewhere}, {}", hold("")), "");
    }
}
