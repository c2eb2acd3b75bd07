//! A real Prometheus beside a gateway: Debian's, with the files of `dashboards/prometheus` and a scrape each second.

use crate::support::browser::encode_form;
use crate::support::http::Request;
use crate::support::process::{self, Finished, Server};
use crate::support::{sdk, wait_for};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Where the files are that users take.
pub(super) fn dashboards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards")
}

/// Runs `promtool` in `dashboards/prometheus`.
#[track_caller]
pub(super) fn promtool(arguments: &[&str], input: &[u8]) -> Finished {
    sdk::install_what_is_missing();
    process::run(process::command("promtool").args(arguments).current_dir(dashboards().join("prometheus")), input)
}

/// A running Prometheus; it ends with the test.
pub(super) struct Prometheus {
    address: SocketAddr,
    _server: Server,
    _dir: TempDir,
}

/// One series of an answer: its labels, and its values with their times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) labels: Vec<(String, String)>,
    pub(super) values: Vec<(f64, f64)>,
}

impl Series {
    /// The value of a label, empty where there is none.
    pub(super) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }
}

/// An account without rights, where the tests themselves are root.
const NOBODY: u32 = 65534;

impl Prometheus {
    /// One that scrapes this metrics listener, under the configuration that users get; only faster.
    #[track_caller]
    pub(super) fn watching(gateway: SocketAddr) -> Prometheus {
        sdk::install_what_is_missing();
        let dir = TempDir::new().expect("a temporary folder");
        let shipped =
            |name: &str| fs::read_to_string(dashboards().join("prometheus").join(name)).expect("it is shipped");
        let config = shipped("prometheus.yml").replace("gateway:9091", &gateway.to_string()).replace("15s", "1s");
        fs::write(dir.path().join("prometheus.yml"), config).expect("the folder is ours");
        fs::write(dir.path().join("alerts.yml"), shipped("alerts.yml")).expect("the folder is ours");
        let data = dir.path().join("data");
        fs::create_dir(&data).expect("the folder is ours");
        let mut command = process::command("prometheus");
        command.current_dir(dir.path()).args([
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=data",
            "--web.listen-address=127.0.0.1:0",
        ]);
        if fs::metadata(&data).expect("it was just made").uid() == 0 {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("the folder is ours");
            std::os::unix::fs::chown(&data, Some(NOBODY), Some(NOBODY)).expect("root may");
            command.uid(NOBODY).gid(NOBODY);
        }
        let server = Server::spawn("Prometheus", &mut command);
        let mut address = None;
        wait_for("Prometheus to listen", || {
            let log = server.log();
            let line = log.lines().find(|line| line.contains("msg=\"Listening on\""));
            address = line.and_then(|line| line.rsplit_once("address=")?.1.trim().parse().ok());
            address.is_some() && log.contains("Server is ready")
        });
        Prometheus { address: address.expect("it was just found"), _server: server, _dir: dir }
    }

    /// `/api/v1/<path>`, and what it says under `data`.
    #[track_caller]
    pub(super) fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let target = format!("/api/v1/{path}?{}", encode_form(parameters));
        let answer = Request::get(&target).send(self.address).json();
        assert_eq!(answer["status"], "success", "{path} {parameters:?}: {answer}");
        answer["data"].clone()
    }

    /// What a query says right now.
    #[track_caller]
    pub(super) fn now(&self, query: &str) -> Vec<Series> {
        series(&self.api("query", &[("query", query)]))
    }

    /// What a query said from `start` to `end` (seconds since the Unix epoch), each `step` seconds.
    #[track_caller]
    pub(super) fn range(&self, query: &str, (start, end): (f64, f64), step: f64) -> Vec<Series> {
        let [start, end, step] = [start, end, step].map(|number| number.to_string());
        series(&self.api("query_range", &[("query", query), ("start", &start), ("end", &end), ("step", &step)]))
    }

    /// Waits until this query is true of something.
    #[track_caller]
    pub(super) fn wait_for(&self, query: &str) {
        wait_for(query, || !self.now(query).is_empty());
    }

    /// The names of the alerts that fire.
    #[track_caller]
    pub(super) fn firing(&self) -> Vec<String> {
        let fired = self.now("count by (alertname) (ALERTS{alertstate=\"firing\"})");
        fired.iter().map(|series| series.label("alertname").to_owned()).collect()
    }
}

fn series(data: &Value) -> Vec<Series> {
    let number = |value: &Value| value.as_str().map_or(f64::NAN, |text| text.parse().unwrap_or(f64::NAN));
    let sample = |pair: &Value| (pair[0].as_f64().unwrap_or_default(), number(&pair[1]));
    if data["resultType"] == "scalar" {
        return vec![Series { labels: Vec::new(), values: vec![sample(&data["result"])] }];
    }
    let one = |result: &Value| Series {
        labels: result["metric"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
        values: match &result["values"] {
            Value::Array(values) => values.iter().map(sample).collect(),
            _ => vec![sample(&result["value"])],
        },
    };
    data["result"].as_array().into_iter().flatten().map(one).collect()
}
