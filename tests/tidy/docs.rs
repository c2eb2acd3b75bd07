//! What a reader of the docs relies on: examples that work, links that lead somewhere, a changelog that is kept.

use super::{Source, complains, none, root, sources};
use portcullis::config::{self, Known};
use portcullis::policy;
use portcullis_ssh::actions::Actions;
use std::path::Path;

/// People that examples may name although they stand in no `identity.users` there.
const USERS: &[(&str, &[&str])] = &[("alice", &["admins", "ops"]), ("bob", &["ops"])];

/// What an example that shows only a part is completed with.
const UPSTREAMS: &str = "upstreams:\n  files: { http: { url: http://127.0.0.1:3000/mcp } }\n";
const POLICY: &str = "policy:\n  rules:\n    - { name: any, tools: [\"*/*\"], allow: {} }\n";

/// The smallest useful file is no longer than this.
const SMALLEST_LINES: usize = 12;

/// A fenced block.
struct Block {
    language: String,
    /// Of its first line of content, counted from 1.
    line: usize,
    text: String,
}

fn blocks(markdown: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    // How far the fence of the open block is indented: in a list, its lines are as well.
    let mut open = None;
    for (at, line) in markdown.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(_), Some(_)) => open = None,
            (Some(language), None) => {
                open = Some(indent);
                found.push(Block { language: language.trim().to_owned(), line: at + 2, text: String::new() });
            }
            (None, Some(outside)) => {
                let block = found.last_mut().expect("one is open");
                block.text += line.get(outside.min(indent)..).expect("spaces are cut off");
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    found
}

/// YAML in the docs that is no part of a `gateway.yaml` that could be put in force.
fn broken_examples(source: &Source) -> Vec<String> {
    let examples = blocks(&source.text).into_iter().filter(|block| block.language == "yaml");
    let said = |block: Block| problems(&completed(&block.text)).map(|problems| (block.line, problems));
    let complaint = |(line, problems)| format!("{}:{line}: this example is refused:\n{problems}", source.path);
    examples.filter_map(said).map(complaint).collect()
}

fn completed(yaml: &str) -> String {
    let has = |key: &str| yaml.lines().any(|line| line.starts_with(key));
    let mut text = yaml.to_owned();
    if !has("upstreams:") {
        text += UPSTREAMS;
    }
    if !has("policy:") {
        text += POLICY;
    }
    text
}

/// Everything `portcullis check` would refuse, but for files and variables that are missing on this machine.
fn problems(yaml: &str) -> Option<String> {
    let loaded = match config::load(yaml, "gateway.yaml") {
        Ok(loaded) => loaded,
        Err(problems) => return Some(problems.to_string()),
    };
    let mut users: Vec<(String, Vec<String>)> =
        loaded.config.identity.users.iter().map(|user| (user.name.clone(), user.groups.clone())).collect();
    let of_examples =
        USERS.iter().filter(|(name, _)| loaded.config.identity.users.iter().all(|user| user.name != *name));
    let of_examples: Vec<_> = of_examples.collect();
    let names: Vec<&str> = of_examples.iter().map(|(name, _)| *name).collect();
    let groups: Vec<&str> = of_examples.iter().flat_map(|(_, groups)| *groups).copied().collect();
    let owned =
        |(name, groups): &(&str, &[&str])| ((*name).to_owned(), groups.iter().map(|g| (*g).to_owned()).collect());
    users.extend(of_examples.iter().map(|user| owned(user)));
    let mut found = config::check(&loaded.config, Known { users: &names, groups: &groups });
    found.extend(policy::lint(&loaded.config.policy));
    found.extend(policy::unapprovable(&loaded.config.policy, &users, false));
    match policy::Policy::compile(&loaded.config.policy) {
        Ok(policy) => {
            let groups_of = |name: &str| users.iter().find(|(user, _)| user == name).map(|(_, groups)| groups.clone());
            found.extend(policy.run_tests(&loaded.config.policy.tests, |name| groups_of(name).unwrap_or_default()));
        }
        Err(more) => found.extend(more),
    }
    found.retain(config::Problem::is_error);
    (!found.is_empty()).then(|| loaded.locate(found).to_string())
}

/// Actions files in the docs that an SSH upstream would refuse.
fn broken_actions(source: &Source) -> Vec<String> {
    let examples = blocks(&source.text).into_iter().filter(|block| block.language == "yaml actions");
    let said = |block: Block| Some((block.line, Actions::parse(&block.text).err()?));
    let complaint = |(line, fault)| format!("{}:{line}: this actions file is refused:\n{fault}", source.path);
    examples.filter_map(said).map(complaint).collect()
}

/// A first example that has grown too long to be one.
fn long_first_example(source: &Source) -> Option<String> {
    let first = blocks(&source.text).into_iter().find(|block| block.language == "yaml");
    let n_lines = first.as_ref().map(|block| block.text.lines().count());
    match n_lines {
        Some(n_lines) if n_lines <= SMALLEST_LINES => None,
        Some(n_lines) => {
            Some(format!("{}: the first example has {n_lines} lines, more than {SMALLEST_LINES}", source.path))
        }
        None => Some(format!("{}: has no example of a gateway.yaml", source.path)),
    }
}

/// Links to files that are not there.
fn dead_links(source: &Source, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let folder = Path::new(&source.path).parent().unwrap_or(Path::new(""));
    let mut complaints = Vec::new();
    for (line, text) in prose(&source.text) {
        for target in links(text) {
            let target = target.split('#').next().unwrap_or_default();
            let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !is_elsewhere && !target.is_empty() && !exists(&folder.join(target)) {
                complaints.push(format!("{}:{line}: link to `{target}`, which is not there", source.path));
            }
        }
    }
    complaints
}

/// The lines outside of fenced blocks, with their numbers.
fn prose(markdown: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_open = false;
    markdown.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_open ^= is_fence;
        (!is_open && !is_fence).then_some((at + 1, line))
    })
}

/// What stands behind `](` in a line, outside of `code`.
fn links(line: &str) -> Vec<&str> {
    // Every second part stands between two backticks.
    let text = line.split('`').step_by(2);
    text.flat_map(|text| text.split("](").skip(1)).filter_map(|rest| rest.split([')', ' ']).next()).collect()
}

fn without_unreleased(changelog: &str) -> Option<String> {
    let has = changelog.lines().any(|line| line.trim_end() == "## [Unreleased]");
    (!has).then(|| "CHANGELOG.md: has no section `## [Unreleased]` for what comes next".to_owned())
}

#[test]
fn every_example_in_the_docs_can_be_put_in_force() {
    none(sources("", ".md").iter().flat_map(broken_examples));
}

#[test]
fn every_actions_file_in_the_docs_and_the_example_can_be_used() {
    none(sources("", ".md").iter().flat_map(broken_actions));
    let example = Source::read("upstreams/ssh/actions.example.yaml").text;
    none(Actions::parse(&example).err().map(|fault| fault.to_string()));
}

#[test]
fn an_actions_file_that_would_be_refused_is_seen() {
    let seen = |yaml: &str| broken_actions(&Source::sample("docs/x.md", &format!("```yaml actions\n{yaml}```\n")));

    complains(&seen("check: list\n"), "docs/x.md:2: this actions file is refused");
    let good = "check: list\nactions:\n  - { name: list, description: All., annotations: { readOnlyHint: true }, run: list }\n";
    none(seen(good));
}

#[test]
fn the_configuration_of_make_run_can_be_put_in_force() {
    none(problems(&Source::read("gateway.yaml").text));
}

#[test]
fn the_configuration_around_the_example_of_actions_can_be_put_in_force() {
    let text = Source::read("upstreams/ssh/gateway.example.yaml").text;
    none(problems(&text));
    let certified = text.replace("      key: { file: ssh/key }\n", "").replace("# certificates:", "certificates:");
    assert!(certified.contains("\n      certificates:"), "{certified}");
    none(problems(&certified));
}

#[test]
fn the_first_example_is_as_small_as_promised() {
    none(long_first_example(&Source::read("README.md")));
}

#[test]
fn every_link_leads_to_a_file() {
    let exists = |path: &Path| root().join(path).exists();
    none(sources("", ".md").iter().flat_map(|source| dead_links(source, exists)));
}

#[test]
fn the_changelog_waits_for_the_next_change() {
    none(without_unreleased(&Source::read("CHANGELOG.md").text));
}

#[test]
fn an_example_that_would_be_refused_is_seen() {
    let seen = |yaml: &str| broken_examples(&Source::sample("docs/x.md", &format!("text\n\n```yaml\n{yaml}```\n")));

    complains(&seen("listn: 127.0.0.1:8080\n"), "docs/x.md:4: this example is refused");
    complains(&seen("policy:\n  rules:\n    - { name: a, tools: [\"other/*\"], allow: {} }\n"), "unknown upstream");
    complains(&seen("policy:\n  rules:\n    - { name: a, tools: [\"*/*\"], allow: {}, deny: {} }\n"), "refused");
    let failing = "policy:\n  rules:\n    - { name: a, tools: [\"files/read\"], allow: {} }\n  \
        tests:\n    - { tool: files/write, user: alice, expect: allow }\n";
    complains(&seen(failing), "refused");
    none(seen("timeouts: { drain: 5s }\n"));
    let in_a_list = "1. Like this:\n\n   ```yaml\n   limits:\n     depth: 9\n   ```\n";
    none(broken_examples(&Source::sample("docs/x.md", in_a_list)));
    none(broken_examples(&Source::sample("docs/x.md", "```json\n{\n```\n")));
}

#[test]
fn a_first_example_that_grew_or_went_is_seen() {
    let of = |n_lines: usize| format!("```yaml\n{}```\n```yaml\na: b\n```\n", "a: b\n".repeat(n_lines));
    let seen = |text: &str| long_first_example(&Source::sample("README.md", text)).into_iter().collect::<Vec<_>>();

    complains(&seen(&of(13)), "13 lines");
    complains(&seen("```sh\nmake run\n```\n"), "no example");
    none(seen(&of(12)));
}

#[test]
fn a_link_to_nowhere_is_seen() {
    let exists = |path: &Path| path == Path::new("docs/a.md");
    let seen = |text: &str| dead_links(&Source::sample("docs/x.md", text), exists);

    complains(&seen("\nsee [b](b.md#part) and [a](a.md)"), "docs/x.md:2: link to `b.md`");
    none(seen("[a](a.md#x) [up](#part) [web](https://example.com/x.md) `[code](y.md)`\n```\n[x](z.md)\n```\n"));
}

#[test]
fn a_changelog_without_an_open_section_is_seen() {
    complains(&without_unreleased("# Changelog\n\n## [0.1.0]\n").into_iter().collect::<Vec<_>>(), "Unreleased");
}
