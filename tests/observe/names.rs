//! Dashboards and alerts name nothing that the gateway does not export, and are what Grafana wants of them.

use super::board::{Board, named};
use super::prometheus::dashboards;
use portcullis::metrics::{Kind, Metric, Values};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

/// What is wrong with the names in a query.
fn wrong_names(expr: &str) -> Vec<String> {
    let (metrics, listed) = named(expr);
    let mut wrong = Vec::new();
    // Those that Prometheus adds, and that of histograms.
    let added = ["instance", "job", "le"];
    let every: BTreeSet<&str> =
        Metric::ALL.iter().flat_map(|metric| metric.about().labels).map(|label| label.name).chain(added).collect();
    for (name, labels) in &metrics {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let known = Metric::ALL.iter().map(|metric| metric.about()).find(|about| match about.kind {
            Kind::Histogram(_) => base == Some(about.name),
            Kind::Counter | Kind::Gauge => about.name == name,
        });
        let Some(about) = known else {
            wrong.push(format!("`{name}` is not exported"));
            continue;
        };
        let own: BTreeSet<&str> = about.labels.iter().map(|label| label.name).chain(added).collect();
        wrong.extend(
            labels.iter().filter(|l| !own.contains(l.as_str())).map(|l| format!("`{name}` has no label `{l}`")),
        );
        if about.kind == Kind::Counter {
            let counts = ["rate", "increase", "resets", "changes"].map(|call| format!("{call}({name}"));
            if !counts.iter().any(|call| expr.contains(call.as_str())) && name != "process_start_time_seconds" {
                wrong.push(format!("`{name}` is a counter, and is taken as it stands"));
            }
        }
        for label in about.labels {
            let Values::OneOf(known) = label.values else { continue };
            let equal =
                regex::Regex::new(&format!(r#"{name}\{{[^}}]*\b{}(=~?)"([^"]*)""#, label.name)).expect("a pattern");
            for found in equal.captures_iter(expr).filter(|found| !found[2].contains('$')) {
                let unknown = found[2].split('|').filter(|value| !known.contains(value));
                wrong.extend(unknown.map(|value| format!("`{name}`: `{}` is never `{value}`", label.name)));
            }
        }
    }
    wrong.extend(listed.iter().filter(|label| !every.contains(label.as_str())).map(|l| format!("no metric has `{l}`")));
    wrong
}

/// Every query of a dashboard, with where it stands.
fn queries(board: &Board) -> Vec<(String, String)> {
    let panels = board.panels();
    let of_panels = panels.iter().flat_map(|panel| {
        panel.queries().into_iter().map(|query| (format!("{}: {}", panel.board, panel.title()), query.expr))
    });
    let of_variables = board.variables().into_iter().map(|(name, selector, label)| {
        (format!("{}: ${name}", board.name), format!("count by ({label}) (rate({selector}[5m]))"))
    });
    let annotations = board.json["annotations"]["list"].as_array().into_iter().flatten();
    let of_annotations = annotations.map(|annotation| {
        (format!("{}: annotation", board.name), annotation["expr"].as_str().expect("a query").to_owned())
    });
    of_panels.chain(of_variables).chain(of_annotations).collect()
}

// B63: agentgateway/agentgateway#3238, agentgateway#2817, kumahq/kuma#16452, LFDT-Panurus/panurus#2309,
// goauthentik/authentik#19625.
#[test]
fn no_dashboard_and_no_alert_names_what_is_not_exported() {
    let mut wrong = Vec::new();
    let shown = regex::Regex::new(r"\{\{(\w+)\}\}").expect("a pattern");
    for board in Board::all() {
        for (place, expr) in queries(&board) {
            wrong.extend(wrong_names(&expr).into_iter().map(|why| format!("{place}: {why}")));
        }
        for panel in board.panels() {
            for query in panel.queries() {
                let (_, listed) = named(&query.expr);
                let missing = shown.captures_iter(&query.legend).map(|label| label[1].to_owned());
                let missing = missing.filter(|label| !listed.contains(label) && label != "instance");
                wrong.extend(missing.map(|label| format!("{}: {}: no label `{label}`", panel.board, panel.title())));
            }
        }
    }
    let rules = fs::read_to_string(dashboards().join("prometheus/alerts.yml")).expect("it is shipped");
    wrong.extend(rules.lines().flat_map(wrong_names).map(|why| format!("alerts.yml: {why}")));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Of no use without another tool beside them; every client library exports them.
const UNSHOWN: [Metric; 2] = [Metric::ProcessVirtual, Metric::ProcessThreads];

#[test]
fn every_metric_is_on_a_dashboard_or_in_an_alert() {
    let boards: Vec<String> = Board::all().iter().flat_map(queries).map(|(_, expr)| expr).collect();
    let rules = fs::read_to_string(dashboards().join("prometheus/alerts.yml")).expect("it is shipped");
    let shown: BTreeSet<String> =
        boards.iter().map(String::as_str).chain(rules.lines()).flat_map(|expr| named(expr).0.into_keys()).collect();
    let is_shown = |metric: &&Metric| {
        let name = metric.about().name;
        ["", "_bucket"].iter().any(|end| shown.contains(&format!("{name}{end}")))
    };
    let unshown: Vec<Metric> = Metric::ALL.iter().filter(|metric| !is_shown(metric)).copied().collect();
    assert_eq!(unshown, UNSHOWN);
}

#[test]
fn a_wrong_name_in_a_query_is_seen() {
    let seen = |expr: &str| wrong_names(expr).join("; ");

    assert!(seen("sum(rate(portcullis_request_total[5m]))").contains("`portcullis_request_total` is not exported"));
    assert!(seen("portcullis_request_duration_seconds").contains("is not exported"), "a histogram has no such series");
    assert!(seen("rate(portcullis_requests_total{tool=\"x\"}[5m])").contains("has no label `tool`"));
    assert!(seen("sum by (tool) (portcullis_connections)").contains("no metric has `tool`"));
    assert!(seen("portcullis_requests_total > 5").contains("taken as it stands"));
    assert!(seen("rate(portcullis_tokens_total{event=\"stolen\"}[5m])").contains("never `stolen`"));
    assert_eq!(seen("sum by (le) (rate(portcullis_request_duration_seconds_bucket{route=~\"$upstream\"}[5m]))"), "");
}

#[test]
fn dashboards_are_what_grafana_wants() {
    let (boards, mut uids) = (Board::all(), BTreeSet::new());
    let names: Vec<&str> = boards.iter().map(|board| board.name.as_str()).collect();
    assert_eq!(names, ["approvals", "oauth", "overview", "security", "upstreams"]);
    for board in &boards {
        let name = &board.name;
        assert!(uids.insert(board.json["uid"].as_str().expect("a uid").to_owned()), "{name}: its uid is another's");
        let variables = board.json["templating"]["list"].as_array().expect("variables");
        assert_eq!(
            (&variables[0]["name"], &variables[0]["type"]),
            (&"datasource".into(), &"datasource".into()),
            "{name}"
        );
        for variable in &variables[1..] {
            let is_whole = variable["multi"] == true && variable["includeAll"] == true && variable["allValue"] == ".*";
            assert!(is_whole, "{name}: {}", variable["name"]);
        }
        let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
        for panel in board.json["panels"].as_array().expect("panels") {
            let title = format!("{name}: {}", panel["title"]);
            assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is another's");
            let at = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
            for (x, y) in (at("x")..at("x") + at("w")).flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y))) {
                assert!(x < 24 && places.insert((x, y)), "{title}: it lies upon another, or beside the page");
            }
            if panel["type"] == "row" {
                continue;
            }
            assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{title}: no description");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title}: no unit");
            let sources = panel["targets"].as_array().expect("queries").iter().chain([panel]);
            for source in sources.map(|one| &one["datasource"]["uid"]) {
                assert_eq!(source, &Value::from("${datasource}"), "{title}: its data source is fixed");
            }
        }
    }
}
