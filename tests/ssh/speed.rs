//! What an action takes, beside OpenSSH's own client. `make bench-ssh` runs this in a release build and shows what it prints.

use super::structured;
use crate::support::agent::Agent;
use crate::support::gateway::Gateway;
use crate::support::process::{self, Server};
use crate::support::sshd::Sshd;
use crate::support::wait_for;
use serde_json::json;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// Without optimisation, on a machine that does other things, times prove nothing: there it is seen that all ways do the same.
const IS_MEASURED: bool = !cfg!(debug_assertions);
const ROUNDS: usize = if IS_MEASURED { 200 } else { 2 };
const REUSED_AT_MOST: f64 = 1.0;
const COLD_AT_MOST: f64 = 0.5;
/// Rounds that do not count: connections are made, files are read.
const WARM_UP: usize = if IS_MEASURED { 5 } else { 1 };

/// One way to have the projects listed, with all that it took.
struct Way<'a> {
    name: &'static str,
    run: Box<dyn Fn() + 'a>,
    /// The processes that stay and work for it.
    ids: Vec<u32>,
    times: Vec<Duration>,
    cpu: Vec<Duration>,
}

impl<'a> Way<'a> {
    fn new(name: &'static str, ids: Vec<u32>, run: impl Fn() + 'a) -> Way<'a> {
        Way { name, run: Box::new(run), ids, times: Vec::new(), cpu: Vec::new() }
    }

    fn once(&mut self) {
        let cpu_before = self.cpu_used();
        let began = Instant::now();
        (self.run)();
        self.times.push(began.elapsed());
        self.cpu.push(self.cpu_used().saturating_sub(cpu_before));
    }

    /// Processor time of the processes that stay, and of those that were waited for.
    fn cpu_used(&self) -> Duration {
        self.ids.iter().map(|id| of_threads(*id)).sum::<Duration>() + of_children()
    }

    /// In milliseconds: fastest, median, 95 %, and the mean of processor time.
    fn figures(&mut self) -> [f64; 4] {
        self.times.sort();
        let n = self.times.len();
        let [fastest, median, most] = [0, n / 2, n * 95 / 100].map(|at| millis(self.times[at]));
        [fastest, median, most, self.cpu.iter().copied().map(millis).sum::<f64>() / n as f64]
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// As the scheduler has counted it.
fn of_threads(id: u32) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let texts = tasks.map(|task| std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default());
    let nanos = texts.filter_map(|text| text.split(' ').next()?.parse().ok());
    nanos.map(Duration::from_nanos).sum()
}

/// In hundredths of a second, whence the mean and no median is shown.
fn of_children() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("there is /proc");
    let (_, rest) = stat.rsplit_once(')').expect("a name in brackets");
    let ticks = rest.split_whitespace().skip(13).take(2).map(|n| n.parse::<u64>().expect("a number"));
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn lists(agent: &Agent) {
    let result = structured(&agent.tool("biscuit_list", json!({})));
    assert_eq!(result["stdout"], "project-a\nproject-b\n", "{result:#}");
}

/// Blocks until it ends: what watches it would cost more than it does.
fn lists_by(mut ssh: Command) {
    let said = ssh.stdin(Stdio::null()).output().expect("ssh is there");
    assert_eq!(said.stdout, b"project-a\nproject-b\n", "{said:?}");
}

/// The process of this upstream.
#[track_caller]
fn process_of(gateway: &Gateway, upstream: &str) -> u32 {
    let line = format!("upstream started upstream={upstream} pid=");
    let log = gateway.log();
    let (_, rest) = log.rsplit_once(&line).expect("it was started");
    rest.split_whitespace().next().and_then(|id| id.parse().ok()).expect("a number")
}

/// OpenSSH's connection that others are run over.
fn master(sshd: &Sshd, socket: &str) -> Server {
    let mut master = Server::spawn("the master", &mut sshd.ssh(&["-M", "-N", "-S", socket], &[]));
    wait_for("the master's socket", || {
        assert!(master.ended().is_none(), "it ended: {}", master.log());
        std::path::Path::new(socket).exists()
    });
    master
}

#[test]
fn an_action_takes_no_longer_than_by_openssh_over_a_master_and_half_as_long_as_by_a_cold_one() {
    let (keyed, certified) = (Sshd::restricted().start(), Sshd::certificates().start());
    let mut sign = process::command("ssh-keygen");
    sign.args(["-q", "-I", "bench", "-n", "portcullis", "-V", "-1m:+1h", "-O", "clear", "-s"]);
    process::run(sign.arg(certified.authority()).arg(certified.key().with_extension("pub")), b"").success();
    let gateway = Gateway::start(&format!(
        "upstreams:\n  keyed: {{ ssh: {{ {} }} }}\n  certified: {{ ssh: {{ {} }} }}\naudit: {{ sync: relaxed }}\n\
         policy: {{ rules: [{{ name: all, tools: [\"*/*\"], allow: {{}} }}] }}\n",
        keyed.settings(),
        certified.settings()
    ));
    gateway.wait_for_log("upstream reached upstream=keyed");
    gateway.wait_for_log("upstream reached upstream=certified");
    let [by_key, by_certificate] = ["keyed", "certified"].map(|name| gateway.agent("alice", name).modern());
    let ids = |upstream: &str| vec![gateway.id(), process_of(&gateway, upstream)];
    let folder = TempDir::new().expect("a temporary folder");
    let socket = folder.path().join("m").display().to_string();
    let master = master(&keyed, &socket);

    let mut ways = [
        Way::new("key, by the gateway, over one connection", ids("keyed"), || lists(&by_key)),
        Way::new("key, `ssh` over a ControlMaster", vec![master.id()], || {
            lists_by(keyed.ssh(&["-S", &socket, "-o", "ControlMaster=no"], &["list"]));
        }),
        Way::new("certificate for each action, by the gateway", ids("certified"), || lists(&by_certificate)),
        Way::new("certificate made before, cold `ssh`", vec![], || lists_by(certified.ssh(&[], &["list"]))),
    ];
    for round in 0..WARM_UP + ROUNDS {
        if round == WARM_UP {
            ways.iter_mut().for_each(|way| (way.times, way.cpu) = (Vec::new(), Vec::new()));
        }
        // Nobody always follows the same one.
        let order: [usize; 4] = if round % 2 == 0 { [0, 1, 2, 3] } else { [3, 2, 1, 0] };
        order.iter().for_each(|at| ways[*at].once());
    }

    let figures = ways.each_mut().map(|way| (way.name, way.figures()));
    println!(
        "| `list`, {ROUNDS} times each, taking turns | Fastest | Median | 95 % | CPU of the client side |\n|---|---|---|---|---|"
    );
    for (name, [fastest, median, most, cpu]) in &figures {
        println!("| {name} | {fastest:.1} ms | {median:.1} ms | {most:.1} ms | {cpu:.1} ms |");
    }
    let [reused, shared, certificate, cold] = figures.map(|(_, [_, median, ..])| median);
    let (over_reused, over_cold) = (reused / shared, certificate / cold);
    println!("\nOver one connection: {over_reused:.2} of a ControlMaster (at most {REUSED_AT_MOST}).");
    println!("A certificate for each action: {over_cold:.2} of a cold `ssh` (at most {COLD_AT_MOST}).");
    assert!(!IS_MEASURED || (over_reused <= REUSED_AT_MOST && over_cold <= COLD_AT_MOST));
}
