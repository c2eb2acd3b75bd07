//! Compiles a rule's conditions.

use super::build_regex;
use crate::config::{self, Path, Problem};
use crate::policy::condition::{Condition, Pointer, Test};
use crate::policy::literal::{Literal, exact};
use crate::policy::number;
use regex::Regex;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// All conditions of one rule.
pub(super) fn compile(
    when: &BTreeMap<String, config::Condition>,
    is_allow: bool,
    path: &Path,
    problems: &mut Vec<Problem>,
) -> Box<[Condition]> {
    let mut conditions = Vec::with_capacity(when.len());
    for (pointer, condition) in when {
        let here = path.key(pointer);
        let tests = compile_tests(condition, is_allow, &here, problems);
        check(condition, &tests, is_allow, &here, problems);
        match Pointer::parse(pointer) {
            Ok(pointer) => conditions.push(Condition { pointer, tests, or_absent: condition.or_absent }),
            Err(what) => problems.push(
                Problem::new(here, format!("`{pointer}` {what}"))
                    .at_key()
                    .hint("name the argument by JSON Pointer (RFC 6901): `/path`, `/options/force`, `/items/0`"),
            ),
        }
    }
    conditions.into()
}

/// The keys that were written, each compiled for itself.
fn compile_tests(condition: &config::Condition, is_allow: bool, path: &Path, problems: &mut Vec<Problem>) -> Vec<Test> {
    let mut tests = Vec::new();
    let mut add = |key: &str, test: Result<Test, String>| match test {
        Ok(test) => tests.push(test),
        Err(what) => problems.push(Problem::new(path.key(key), what)),
    };
    if let Some(value) = &condition.equals {
        add("equals", literals(std::slice::from_ref(value)).map(|values| Test::OneOf("equals", values)));
    }
    if let Some(values) = &condition.r#in {
        add("in", literals(values).map(|values| Test::OneOf("in", values)));
    }
    if let Some(pattern) = &condition.matches {
        add("matches", whole(pattern, !is_allow).map(Test::Matches));
    }
    if let Some(pattern) = &condition.not_matches {
        add("not_matches", whole(pattern, !is_allow).map(Test::NotMatches));
    }
    if let Some(number) = &condition.min {
        add("min", limit(number).map(Test::Min));
    }
    if let Some(number) = &condition.max {
        add("max", limit(number).map(Test::Max));
    }
    if let Some(present) = condition.present {
        add("present", Ok(if present { Test::Present } else { Test::Absent }));
    }
    if let Some(limit) = condition.max_length {
        add("max_length", Ok(Test::MaxLength(limit)));
    }
    tests
}

fn literals(values: &[serde_json::Value]) -> Result<Box<[Literal]>, String> {
    if values.is_empty() {
        return Err("an empty list, which no value is in".to_owned());
    }
    values.iter().map(|value| Literal::from_value(value).map_err(|what| format!("`{value}` {what}"))).collect()
}

fn limit(number: &serde_json::Number) -> Result<Box<str>, String> {
    exact(number).map_err(|what| format!("`{number}` {what}"))
}

/// Matches a text from its first character to its last.
///
/// The pattern is built alone first, so that one like `a)|(b` is refused rather than taken apart by our brackets. In a
/// deny or hold `.` takes newlines too: otherwise one line break in front would carry a command past `.*rm.*`.
fn whole(pattern: &str, dot_takes_newlines: bool) -> Result<Regex, String> {
    build_regex(pattern, dot_takes_newlines)?;
    build_regex(&format!(r"\A(?:{pattern})\z"), dot_takes_newlines)
        // A comment at the end of a pattern under `(?x)` swallows our bracket, unless a line break ends it.
        .or_else(|what| build_regex(&format!("\\A(?:{pattern}\n)\\z"), dot_takes_newlines).map_err(|_| what))
}

/// What cannot be seen in one key alone.
fn check(condition: &config::Condition, tests: &[Test], is_allow: bool, path: &Path, problems: &mut Vec<Problem>) {
    if is_empty(condition) {
        problems.push(
            Problem::new(path, "the condition is empty")
                .hint("to ask only whether the argument is there, write `present: true`"),
        );
    }
    if condition.or_absent && is_allow {
        problems.push(
            Problem::new(path.key("or_absent"), "`or_absent` has no place in an allow")
                .hint("an allow never takes an argument that is absent; write a second rule with `present: false`"),
        );
    } else if condition.or_absent && condition.present.is_some() {
        problems.push(
            Problem::new(
                path.key("or_absent"),
                "`or_absent` and `present` say the same thing twice, or opposite things",
            )
            .hint("write one of them"),
        );
    }
    if condition.present == Some(false) && tests.len() > 1 {
        problems.push(
            Problem::new(
                path.key("present"),
                "`present: false` stands beside keys that only an argument that is there can fulfil",
            )
            .hint("write it alone, or use `or_absent: true` in a deny or hold"),
        );
    }
    check_types(condition, path, problems);
    check_limits(tests, path, problems);
}

fn check_types(condition: &config::Condition, path: &Path, problems: &mut Vec<Problem>) {
    let asks_number = condition.min.is_some() || condition.max.is_some();
    let asks_other = condition.matches.is_some() || condition.not_matches.is_some() || condition.max_length.is_some();
    if asks_number && asks_other {
        let message =
            "`min` and `max` ask for a number, `matches`, `not_matches` and `max_length` for none: no value is both";
        problems.push(Problem::new(path, message));
    }
}

fn check_limits(tests: &[Test], path: &Path, problems: &mut Vec<Problem>) {
    let min = tests.iter().find_map(|test| match test {
        Test::Min(min) => Some(min),
        _ => None,
    });
    let max = tests.iter().find_map(|test| match test {
        Test::Max(max) => Some(max),
        _ => None,
    });
    if let (Some(min), Some(max)) = (min, max)
        && number::compare(min, max) == Some(Ordering::Greater)
    {
        problems.push(Problem::new(path.key("min"), format!("`min` {min} is above `max` {max}")));
    }
}

/// `or_absent` alone asks nothing.
fn is_empty(condition: &config::Condition) -> bool {
    let config::Condition { equals, r#in, matches, not_matches, min, max, present, max_length, or_absent: _ } =
        condition;
    equals.is_none()
        && r#in.is_none()
        && matches.is_none()
        && not_matches.is_none()
        && min.is_none()
        && max.is_none()
        && present.is_none()
        && max_length.is_none()
}
