//! Every query of every panel and variable, put to a Prometheus that watches: a gateway that was just started, and one
//! to which everything has happened.

use super::board::{Board, Chosen, Panel, named};
use super::draw;
use super::now;
use super::prometheus::Prometheus;
use super::scene::Scene;
use crate::support::gateway::{Gateway, in_front_of};
use crate::support::wait_for;
use std::path::Path;

/// How long the traffic is in `make test`. `make dashboards` says another number, and where pictures go.
const SECONDS: usize = 62;
const SECONDS_WANTED: &str = "PORTCULLIS_DASHBOARDS_SECONDS";
const PICTURES: &str = "PORTCULLIS_DASHBOARDS_IMAGES";

/// Panels whose queries give nothing, unless they say what stands there then and that is allowed.
fn empty(prometheus: &Prometheus, boards: &[Board], chosen: &Chosen<'_>, may_be_empty: bool) -> Vec<String> {
    let mut found = Vec::new();
    for panel in boards.iter().flat_map(Board::panels) {
        for query in panel.queries() {
            let expr = chosen.fill(&query.expr);
            let answer = answer(prometheus, &panel, &expr);
            if answer == 0 && !(may_be_empty && panel.no_value().is_some()) {
                found.push(format!("{}: {}: {expr}", panel.board, panel.title()));
            }
        }
    }
    found
}

/// How many series a panel is given.
fn answer(prometheus: &Prometheus, panel: &Panel<'_>, expr: &str) -> usize {
    match panel.json["type"].as_str() {
        Some("timeseries") => {
            let end = now();
            prometheus.range(expr, (end - 30.0, end), 1.0).len()
        }
        _ => prometheus.now(expr).len(),
    }
}

/// The values of every variable of every dashboard.
#[track_caller]
fn values(prometheus: &Prometheus, boards: &[Board]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for board in boards {
        for (name, selector, label) in board.variables() {
            let selector = Chosen::all("60s").fill(&selector);
            let found = prometheus.now(&format!("count by ({label}) ({selector})"));
            assert!(!found.is_empty(), "{}: ${name} has no value: {selector}", board.name);
            all.extend(found.iter().map(|series| (name.clone(), series.label(&label).to_owned())));
        }
    }
    all.sort();
    all.dedup();
    all
}

// B63, before anything has happened: agentgateway/agentgateway#3238, kumahq/kuma#16452, LFDT-Panurus/panurus#2309.
#[test]
fn a_gateway_that_was_just_started_has_every_metric_and_every_variable_and_no_panel_is_in_doubt() {
    let gateway =
        Gateway::start(&in_front_of("http://127.0.0.1:1/mcp", "- { name: all, tools: [\"*/*\"], allow: {} }"));
    gateway.wait_until_asked("up");
    let prometheus = Prometheus::watching(gateway.metrics.expect("it is configured"));
    let boards = Board::all();
    // A rate wants two scrapes.
    wait_for("two scrapes", || prometheus.now("count_over_time(portcullis_build_info[1m]) >= 3").len() == 1);

    let text = gateway.observe("/metrics").text();
    for query in boards.iter().flat_map(Board::panels).flat_map(|panel| panel.queries()) {
        for name in named(&query.expr).0.into_keys() {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            assert!(text.contains(&format!("# TYPE {base} ")), "{name} is not there from the start");
        }
    }
    let values = values(&prometheus, &boards);
    assert!(values.contains(&("upstream".to_owned(), "up".to_owned())), "{values:?}");
    let empty = empty(&prometheus, &boards, &Chosen::all("60s"), true);
    assert!(empty.is_empty(), "{} panels show nothing and do not say why: {empty:#?}", empty.len());
    assert_eq!(prometheus.firing(), Vec::<String>::new(), "nothing is wrong yet");
}

// B63, after calls of every kind.
#[test]
fn every_panel_shows_what_happened_and_the_alerts_of_it_fire() {
    let wanted = std::env::var(SECONDS_WANTED).ok().and_then(|seconds| seconds.parse().ok());
    let seconds: usize = wanted.unwrap_or(SECONDS);
    let (scene, boards) = (Scene::start(), Board::all());
    let prometheus = scene.watched();
    prometheus.wait_for("count_over_time(portcullis_build_info[1m]) >= 3");

    scene.play(seconds);

    // First, so that there is something to look at where a panel fails.
    if let Some(folder) = std::env::var_os(PICTURES) {
        boards.iter().for_each(|board| draw::picture(&prometheus, board, seconds, Path::new(&folder)));
    }
    let range = format!("{seconds}s");
    let nothing = empty(&prometheus, &boards, &Chosen::all(&range), false);
    assert!(nothing.is_empty(), "{} queries give nothing: {nothing:#?}", nothing.len());
    let values = values(&prometheus, &boards);
    let upstreams: Vec<&str> =
        values.iter().filter(|(name, _)| name == "upstream").map(|(_, value)| value.as_str()).collect();
    assert_eq!(upstreams, ["gone", "sealed", "up"]);
    for (name, value) in &values {
        let nothing = empty(&prometheus, &boards, &Chosen::one(&range, name, value), true);
        assert!(nothing.is_empty(), "{name}={value}: {nothing:#?}");
    }
    alerts_have_fired(&prometheus, &range);
}

/// Those that need no long time.
#[track_caller]
fn alerts_have_fired(prometheus: &Prometheus, range: &str) {
    for alert in [
        "PortcullisAuditUnavailable",
        "PortcullisAuditRefused",
        "PortcullisReloadFailed",
        "PortcullisTokenReplayed",
        "PortcullisWebhooksDead",
        "PortcullisLoginFailures",
    ] {
        prometheus
            .wait_for(&format!("count_over_time(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}[{range}]) > 0"));
    }
    let pending =
        prometheus.now("count by (alertname) (ALERTS{alertname=\"PortcullisUpstreamDown\",upstream=\"gone\"})");
    assert_eq!(pending.len(), 1, "an upstream that is down is on its way to an alert");
    let wrong =
        prometheus.now("ALERTS{alertname=~\"PortcullisDown|PortcullisAbsent|PortcullisRevocationsNotCurrent\"}");
    assert!(wrong.is_empty(), "what did not happen is no alert: {wrong:?}");
}
