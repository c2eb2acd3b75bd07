//! What `make bench` measures is the gateway as it is: the configuration it runs must stay one that the gateway takes.
//! The run itself is not part of the tests, since its peer, another proxy, takes minutes to build.

use crate::support::gateway::Launch;

const CONFIG: &str = include_str!("../bench/peers/portcullis.yaml");

#[test]
fn the_configuration_that_is_measured_is_accepted() {
    Launch::new(CONFIG).cli(&["check"]).success();
}

#[test]
fn what_is_measured_has_a_rule_on_an_argument_and_audit_as_it_comes() {
    let config = CONFIG.lines().filter(|line| !line.trim_start().starts_with('#'));
    let config: String = config.map(|line| format!("{line}\n")).collect();

    assert!(config.contains("when: { /path: { matches:"), "{config}");
    assert!(!config.contains("audit:"), "{config}");
}
