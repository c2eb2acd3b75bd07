//! The files in `docs/policy.md` load, mean something, and pass their own tests.

use portcullis::config::{self, Known};
use portcullis::policy::{Policy, lint, unapprovable};
use std::collections::BTreeMap;

#[test]
fn every_file_in_the_documentation_is_a_policy_that_passes_its_tests() {
    let page = include_str!("../../docs/policy.md");
    let blocks: Vec<&str> = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 4, "a block was added: count it here");

    for block in blocks {
        let loaded = config::load(block, "docs/policy.md").unwrap_or_else(|problems| panic!("{problems}\n{block}"));
        assert!(!loaded.check(Known::default()).has_errors(), "{}", loaded.check(Known::default()));
        let config = &loaded.config;
        let groups: BTreeMap<&str, Vec<String>> =
            config.identity.users.iter().map(|user| (user.name.as_str(), user.groups.clone())).collect();
        let users: Vec<(String, Vec<String>)> =
            groups.iter().map(|(name, groups)| ((*name).to_owned(), groups.clone())).collect();

        let policy = Policy::compile(&config.policy).expect("it compiles");
        let failures = policy.run_tests(&config.policy.tests, |user| groups.get(user).cloned().unwrap_or_default());
        assert!(failures.is_empty(), "{failures:#?}");
        let mut problems = lint(&config.policy);
        problems.extend(unapprovable(&config.policy, &users, false));
        assert!(!problems.iter().any(config::Problem::is_error), "{problems:#?}");
    }
}
