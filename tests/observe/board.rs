//! The dashboards as they are shipped: their panels, variables and queries, with the variables filled in as Grafana does.

use super::prometheus::dashboards;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// One dashboard.
pub(super) struct Board {
    /// Its file, without ending.
    pub(super) name: String,
    pub(super) json: Value,
}

/// One panel that asks for something.
pub(super) struct Panel<'a> {
    pub(super) board: &'a str,
    pub(super) json: &'a Value,
}

/// One query of a panel.
pub(super) struct Query {
    pub(super) expr: String,
    pub(super) legend: String,
}

impl Board {
    /// All there are.
    #[track_caller]
    pub(super) fn all() -> Vec<Board> {
        let files = fs::read_dir(dashboards().join("grafana")).expect("they are shipped").flatten();
        let mut boards: Vec<Board> = files
            .filter_map(|file| {
                let name = file.file_name().to_str()?.strip_suffix(".json")?.to_owned();
                let text = fs::read_to_string(file.path()).expect("it is text");
                let json = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
                Some(Board { name, json })
            })
            .collect();
        boards.sort_by(|a, b| a.name.cmp(&b.name));
        boards
    }

    /// Every panel but the rows between them.
    pub(super) fn panels(&self) -> Vec<Panel<'_>> {
        let panels = self.json["panels"].as_array().expect("it has panels");
        panels.iter().filter(|json| json["type"] != "row").map(|json| Panel { board: &self.name, json }).collect()
    }

    /// Every variable that is asked for: name, metric, matchers, label.
    pub(super) fn variables(&self) -> Vec<(String, String, String)> {
        let list = self.json["templating"]["list"].as_array().expect("it has variables");
        let asked = list.iter().filter(|variable| variable["type"] == "query");
        asked
            .map(|variable| {
                let query = variable["query"]["query"].as_str().expect("a query");
                let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
                let (selector, label) = inside.and_then(|inside| inside.rsplit_once(", ")).expect("label_values(…)");
                let name = variable["name"].as_str().expect("a name");
                (name.to_owned(), selector.to_owned(), label.to_owned())
            })
            .collect()
    }
}

impl Panel<'_> {
    pub(super) fn title(&self) -> &str {
        self.json["title"].as_str().expect("a panel has a title")
    }

    /// What stands there instead of data, where there may be none.
    pub(super) fn no_value(&self) -> Option<&str> {
        self.json["fieldConfig"]["defaults"]["noValue"].as_str()
    }

    pub(super) fn queries(&self) -> Vec<Query> {
        let text = |target: &Value, key: &str| target[key].as_str().expect("a query").to_owned();
        let targets = self.json["targets"].as_array().expect("a panel asks for something");
        targets.iter().map(|t| Query { expr: text(t, "expr"), legend: text(t, "legendFormat") }).collect()
    }
}

/// What the variables stand for.
pub(super) struct Chosen<'a> {
    /// By name; a value is written as a regular expression, as Grafana does for variables with several values.
    pub(super) values: BTreeMap<&'a str, String>,
    /// For `$__range`.
    pub(super) range: &'a str,
}

impl Chosen<'_> {
    /// Everything, over this time.
    pub(super) fn all(range: &str) -> Chosen<'_> {
        Chosen { values: BTreeMap::from([("instance", ".*".to_owned()), ("upstream", ".*".to_owned())]), range }
    }

    /// Only this value of this variable.
    pub(super) fn one<'a>(range: &'a str, name: &'a str, value: &str) -> Chosen<'a> {
        let mut chosen = Chosen::all(range);
        // In PromQL's string, each backslash of the expression is two.
        chosen.values.insert(name, regex::escape(value).replace('\\', "\\\\"));
        chosen
    }

    /// The query that Prometheus is asked. A second between scrapes makes four the shortest interval for a rate.
    #[track_caller]
    pub(super) fn fill(&self, query: &str) -> String {
        let mut filled = query.replace("$__rate_interval", "15s").replace("$__range", self.range);
        for (name, value) in &self.values {
            filled = filled.replace(&format!("${name}"), value);
        }
        assert!(!filled.contains('$'), "what is left is no variable of the dashboard: {filled}");
        filled
    }
}

/// The metrics and labels a query names: metric → labels of its matchers, and every label that stands elsewhere.
pub(super) fn named(expr: &str) -> (BTreeMap<String, BTreeSet<String>>, BTreeSet<String>) {
    let texts = regex::Regex::new(r#""(?:[^"\\]|\\.)*""#).expect("a pattern");
    let bare = texts.replace_all(expr, "\"\"");
    let metric = regex::Regex::new(r"\b((?:portcullis|process)_[a-z0-9_]+)\b(?:\{([^}]*)\})?").expect("a pattern");
    let matcher = regex::Regex::new(r#"([a-zA-Z_]+)\s*(?:=~|!~|!=|=)\s*"""#).expect("a pattern");
    let lists =
        regex::Regex::new(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)").expect("a pattern");
    let mut metrics: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for found in metric.captures_iter(&bare) {
        let labels = found.get(2).map_or("", |labels| labels.as_str());
        let labels = matcher.captures_iter(labels).map(|label| label[1].to_owned());
        metrics.entry(found[1].to_owned()).or_default().extend(labels);
    }
    let listed = lists.captures_iter(&bare).flat_map(|list| {
        list[1].split(',').map(|label| label.trim().to_owned()).filter(|label| !label.is_empty()).collect::<Vec<_>>()
    });
    (metrics, listed.collect())
}

#[test]
fn what_a_query_names_is_seen() {
    let (metrics, labels) = named(
        "histogram_quantile(0.9, sum by (le, route) (rate(portcullis_a_bucket{route=~\"x, y=\\\"z\\\"\", b!=\"\"}[5m]))) \
         and on (c) process_d > 0",
    );

    assert_eq!(metrics.keys().collect::<Vec<_>>(), ["portcullis_a_bucket", "process_d"]);
    assert_eq!(metrics["portcullis_a_bucket"].iter().collect::<Vec<_>>(), ["b", "route"]);
    assert_eq!(labels.iter().collect::<Vec<_>>(), ["c", "le", "route"]);
}
