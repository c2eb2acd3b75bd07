//! A disk that fails under a running gateway, really: a file system that is full, an I/O error from the C library (libfiu), a quota,
//! a directory that may not be entered, one that is gone. No call that changes something goes on, what only reads does,
//! and when the disk works again so does the gateway, by itself, with nothing lost and nothing twice. (L-04, L-05)

use crate::support::agent::Agent;
use crate::support::gateway::{Gateway, Launch, in_front_of};
use crate::support::process;
use crate::support::recorder::Recorder;
use crate::support::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const RULES: &str = r#"
- { name: writes, tools: ["up/*"], allow: {} }
- { name: reads, tools: ["up/echo"], allow: { reads: true } }
"#;
/// From the end of a fault to the next call that goes through.
const RECOVERY: Duration = Duration::from_secs(5);
/// As many calls as a disk that is full to the last page may still take.
const MOST_LUCKY: usize = 300;

/// A gateway in front of a recorder, and all that it was asked.
struct Place {
    recorder: Recorder,
    gateway: Gateway,
    agent: Agent,
    n_calls: AtomicUsize,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Ran,
    Refused,
}

/// The shell beside the gateway goes with it.
impl Drop for Place {
    fn drop(&mut self) {
        let pipe = self.gateway.path("pipe");
        if pipe.exists() {
            let opened = fs::OpenOptions::new().write(true).custom_flags(nix::libc::O_NONBLOCK).open(pipe);
            let _ = opened.map(|mut pipe| writeln!(pipe, "exit"));
        }
    }
}

impl Place {
    /// Started by whatever `within` says, with further settings. The token is made before, so that its record is elsewhere.
    #[track_caller]
    fn start(more: &str, within: impl FnOnce(&Launch) -> Vec<String>) -> Place {
        let recorder = Recorder::start();
        let yaml = format!(
            "public_url: http://localhost:8080\n{}audit: {{ arguments: [{{ tools: [\"*/*\"] }}]{more} }}\n",
            in_front_of(&recorder.url(), RULES)
        );
        let launch = Launch::new(&yaml);
        let secret = launch.path("password");
        fs::write(&secret, crate::support::gateway::password("alice")).expect("the folder is ours");
        let secret = secret.to_str().expect("temporary paths are UTF-8");
        let issue = ["token", "issue", "--user", "alice", "--route", "up", "--ttl", "1h", "--password-file", secret];
        let token = launch.cli(&issue).success().stdout.trim().to_owned();
        let _ = fs::remove_dir_all(launch.path("data/audit"));
        let _ = fs::remove_file(launch.path("data/audit-checkpoints.jsonl"));
        fs::create_dir_all(launch.path("data/audit")).expect("the folder is ours");
        fs::set_permissions(launch.path("data/audit"), fs::Permissions::from_mode(0o700)).expect("the folder is ours");
        let words = within(&launch);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let gateway = launch.within(&words).start();
        gateway.wait_until_asked("up");
        let agent = gateway.agent_with(&token, "up");
        Place { recorder, gateway, agent, n_calls: AtomicUsize::new(0) }
    }

    /// One call, with a number of its own.
    #[track_caller]
    fn call(&self, tool: &str) -> (usize, Ended) {
        let n = self.n_calls.fetch_add(1, Ordering::Relaxed);
        let answer = self.agent.tool(tool, json!({ "of": n }));
        if answer.message["result"]["structuredContent"]["of"] == n {
            return (n, Ended::Ran);
        }
        let text = answer.message.to_string();
        assert!(text.contains("audit log cannot be written"), "a clear answer: {text}");
        (n, Ended::Refused)
    }

    /// Calls until one is refused.
    #[track_caller]
    fn call_until_refused(&self, what: &str) {
        let is_refused = (0..MOST_LUCKY).any(|_| self.call("add").1 == Ended::Refused);
        assert!(is_refused, "{what}: {MOST_LUCKY} calls went through");
    }

    /// From a log that can be written, through a fault, to one that can be written again.
    #[track_caller]
    fn outage(&self, what: &str, begin: impl FnOnce(), end: impl FnOnce()) {
        (0..5).for_each(|_| assert_eq!(self.call("add").1, Ended::Ran, "{what}: before"));

        begin();
        self.call_until_refused(what);
        let mark = self.recorder.mark();
        (0..5).for_each(|_| assert_eq!(self.call("add").1, Ended::Refused, "{what}: while it lasts"));
        self.recorder.assert_untouched(mark);
        // What only reads goes on.
        assert_eq!(self.call("echo").1, Ended::Ran, "{what}: a call that only reads");
        wait_for("the metric", || self.gateway.metric("portcullis_audit_available") == 0.0);

        end();
        let ended = Instant::now();
        while self.call("add").1 == Ended::Refused {
            assert!(ended.elapsed() < RECOVERY, "{what}: no call goes through {RECOVERY:?} after the fault");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(ended.elapsed() < RECOVERY, "{what}: it took {:?}", ended.elapsed());
        (0..5).for_each(|_| assert_eq!(self.call("add").1, Ended::Ran, "{what}: afterwards"));
    }

    /// Every call that ran has exactly one decision and one result, none ran twice, and no number is missing.
    #[track_caller]
    fn assert_nothing_lost_or_doubled(&self, what: &str, records: impl Fn() -> Vec<Value>) {
        let mut ran: BTreeMap<u64, usize> = BTreeMap::new();
        for call in self.recorder.calls().iter().map(|call| call.json()["params"].clone()) {
            if call["name"] == "add" {
                *ran.entry(call["arguments"]["of"].as_u64().expect("a number")).or_default() += 1;
            }
        }
        let is_of = |record: &Value, of: u64| record["event"] == "decision" && record["arguments"]["of"] == of;
        wait_for("the results", || {
            let records = records();
            ran.keys().all(|of| {
                let decision = records.iter().find(|record| is_of(record, *of));
                let request = decision.map(|decision| &decision["request"]);
                records.iter().any(|record| record["event"] == "result" && Some(&record["request"]) == request)
            })
        });
        let records = records();
        let requests = |event: &str| -> BTreeMap<String, usize> {
            let mut count = BTreeMap::new();
            for record in records.iter().filter(|record| record["event"] == event) {
                *count.entry(record["request"].to_string()).or_default() += 1;
            }
            count
        };
        let (decisions, results) = (requests("decision"), requests("result"));
        for (of, times) in &ran {
            assert_eq!(*times, 1, "{what}: call {of} arrived {times} times");
            let of_call: Vec<&Value> = records.iter().filter(|record| is_of(record, *of)).collect();
            assert_eq!(of_call.len(), 1, "{what}: call {of} has {} decisions", of_call.len());
            let request = of_call[0]["request"].to_string();
            assert_eq!((decisions.get(&request), results.get(&request)), (Some(&1), Some(&1)), "{what}: call {of}");
        }
        assert!(ran.len() >= 10, "{what}: only {} calls ran", ran.len());
        let seqs: Vec<u64> = records.iter().filter_map(|record| record["seq"].as_u64()).collect();
        assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "{what}: a gap in {seqs:?}");
        assert!(records.iter().any(|record| record["event"] == "recovered"), "{what}: it says that it was silent");
    }

    #[track_caller]
    fn assert_verified(&self) {
        self.gateway.cli(&["audit", "verify"]).success();
    }
}

fn path(launch: &Launch, name: &str) -> String {
    launch.path(name).to_str().expect("temporary paths are UTF-8").to_owned()
}

/// Outside of a confinement.
fn nothing(_: &Launch) -> Vec<String> {
    Vec::new()
}

/// The newest file of the log.
fn newest(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder).expect("it is there").flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.max().expect("a file")
}

// === A file system of its own ===

/// The folder `name` is a small file system in memory, which only the gateway sees, and a shell beside it that does as it
/// is told.
fn with_small_disk(launch: &Launch, name: &str, bytes: usize) -> Vec<String> {
    let (folder, pipe) = (path(launch, name), path(launch, "pipe"));
    process::run(process::command("mkfifo").arg(&pipe), b"").success();
    fs::create_dir_all(&folder).expect("the folder is ours");
    let shell = format!("(exec 3<>'{pipe}'; while read -r line <&3; do eval \"$line\"; done) & exec \"$@\"");
    let bytes = bytes.to_string();
    let words = [
        "bwrap",
        "--dev-bind",
        "/",
        "/",
        "--die-with-parent",
        "--perms",
        "0700",
        "--size",
        &bytes,
        "--tmpfs",
        &folder,
        "sh",
        "-c",
        &shell,
        "sh",
    ];
    words.map(str::to_owned).to_vec()
}

/// Has the shell beside the gateway do something, and waits until it is done.
#[track_caller]
fn inside(gateway: &Gateway, command: &str) {
    let done = gateway.path("done");
    let mut pipe = fs::OpenOptions::new().write(true).open(gateway.path("pipe")).expect("the shell listens");
    writeln!(pipe, "{command}; : >'{}'", done.display()).expect("the shell listens");
    wait_for(command, || done.exists());
    fs::remove_file(&done).expect("the folder is ours");
}

/// The records of a log that only the gateway sees.
#[track_caller]
fn copied(gateway: &Gateway) -> Vec<Value> {
    let copy = gateway.path("copy");
    let _ = fs::remove_dir_all(&copy);
    inside(gateway, &format!("cp -r '{}' '{}'", gateway.path("data/audit").display(), copy.display()));
    let mut files: Vec<PathBuf> =
        fs::read_dir(&copy).expect("it was copied").flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let text: String = files.iter().map(|file| fs::read_to_string(file).expect("ASCII")).collect();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

#[test]
fn a_full_disk_stops_calls_and_nothing_is_lost_when_there_is_room_again() {
    let place = Place::start("", |launch| with_small_disk(launch, "data/audit", 1 << 20));
    let fill = place.gateway.path("data/audit/fill");

    for round in 0..2 {
        let fill = fill.display();
        place.outage(
            &format!("a full disk, round {round}"),
            || inside(&place.gateway, &format!("cat /dev/zero >'{fill}' 2>/dev/null")),
            || inside(&place.gateway, &format!("rm '{fill}'")),
        );
    }

    place.assert_nothing_lost_or_doubled("a full disk", || copied(&place.gateway));
    let (program, file, out) =
        (env!("CARGO_BIN_EXE_portcullis"), place.gateway.path("gateway.yaml"), place.gateway.path("out"));
    inside(
        &place.gateway,
        &format!("'{program}' --config '{}' audit verify >'{}' 2>&1", file.display(), out.display()),
    );
    let verified = fs::read_to_string(&out).expect("it was written");
    assert!(verified.starts_with("verified "), "{verified}");
}

#[test]
fn a_full_disk_of_the_checkpoints_stops_nothing_and_they_are_written_later() {
    let more = ", checkpoints: { file: other/checkpoints.jsonl, every: 1s, records: 1 }";
    let place = Place::start(more, |launch| with_small_disk(launch, "other", 64 << 10));
    let (fill, file) = (place.gateway.path("other/fill"), place.gateway.path("other/checkpoints.jsonl"));
    let size = || {
        let out = place.gateway.path("size");
        inside(&place.gateway, &format!("stat -c %s '{}' >'{}'", file.display(), out.display()));
        fs::read_to_string(&out).expect("it was written").trim().parse::<u64>().expect("a number")
    };
    wait_for("the first checkpoint", || size() > 0);

    inside(&place.gateway, &format!("cat /dev/zero >'{}' 2>/dev/null", fill.display()));
    let is_failing = || place.gateway.log().contains("checkpoint") && place.gateway.log().contains("No space left");
    wait_for("the log to say so", || {
        assert_eq!(place.call("add").1, Ended::Ran, "calls go on");
        is_failing()
    });
    let (before, calls) = (size(), place.recorder.calls().len());
    inside(&place.gateway, &format!("rm '{}'", fill.display()));
    wait_for("a further checkpoint", || size() > before);

    assert!(calls > 0);
    place.gateway.cli(&["audit", "verify", "--help"]).success();
}

// === Faults of a disk that everybody sees ===

#[test]
fn an_io_error_stops_calls_and_nothing_is_lost_when_the_disk_works_again() {
    let place = Place::start("", |launch| ["fiu-run", "-x", "-f", &path(launch, "fiu")].map(str::to_owned).to_vec());
    let control = |command: &str| {
        let (prefix, id) = (place.gateway.path("fiu"), place.gateway.id().to_string());
        let mut tell = process::command("fiu-ctrl");
        process::run(tell.arg("-f").arg(prefix).args(["-c", command, &id]), b"").success();
    };
    // EIO where the disk is to keep what was written; a write that fails as well would be one to sockets, too.
    for round in 0..2 {
        place.outage(
            &format!("an I/O error, round {round}"),
            || control("enable name=posix/io/sync/fdatasync,failinfo=5"),
            || control("disable name=posix/io/sync/fdatasync"),
        );
    }

    place.assert_nothing_lost_or_doubled("an I/O error", || place.gateway.audit());
    place.assert_verified();
}

#[test]
fn a_quota_stops_calls_and_nothing_is_lost_when_it_is_raised() {
    // Without the signal that comes with it, as where a quota is the file system's.
    let place = Place::start("", |_| ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"].map(str::to_owned).to_vec());
    let limit = |bytes: &str| {
        let id = place.gateway.id().to_string();
        process::run(process::command("prlimit").args(["--pid", &id, &format!("--fsize={bytes}:unlimited")]), b"")
            .success();
    };
    place.outage(
        "a quota",
        || {
            let size = fs::metadata(newest(&place.gateway.path("data/audit"))).expect("it is there").len();
            limit(&size.to_string());
        },
        || limit("unlimited"),
    );

    place.assert_nothing_lost_or_doubled("a quota", || place.gateway.audit());
    place.assert_verified();
}

#[test]
fn a_folder_that_may_not_be_entered_stops_calls_of_a_gateway_that_is_not_root() {
    let place = Place::start("", |_| {
        let words = [
            "bwrap",
            "--unshare-user",
            "--uid",
            "1000",
            "--gid",
            "1000",
            "--cap-drop",
            "ALL",
            "--dev-bind",
            "/",
            "/",
            "--die-with-parent",
        ];
        words.map(str::to_owned).to_vec()
    });
    // Its parent: the log's own folder is made passable again by its owner, the gateway, and the calls go on.
    let folder = place.gateway.path("data");
    let mode = |mode: u32| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("the folder is ours");
    place.outage("a folder that may not be entered", || mode(0), || mode(0o700));

    place.assert_nothing_lost_or_doubled("a folder that may not be entered", || place.gateway.audit());
    place.assert_verified();
}

#[test]
fn a_folder_that_is_gone_stops_calls_until_it_is_back() {
    let place = Place::start("", nothing);
    let (folder, away) = (place.gateway.path("data/audit"), place.gateway.path("away"));
    place.outage(
        "a file in the folder's place",
        || {
            fs::rename(&folder, &away).expect("the folder is ours");
            fs::write(&folder, "").expect("the folder is ours");
        },
        || {
            fs::remove_file(&folder).expect("the folder is ours");
            fs::rename(&away, &folder).expect("the folder is ours");
        },
    );

    place.assert_nothing_lost_or_doubled("a file in the folder's place", || place.gateway.audit());
    place.assert_verified();
}

/// Nothing is in the way of writing: the log goes on in another file, which says what became of this one.
#[test]
fn a_file_that_is_removed_is_followed_by_another_and_missed_by_verify() {
    let place = Place::start("", nothing);
    let folder = place.gateway.path("data/audit");
    (0..5).for_each(|_| assert_eq!(place.call("add").1, Ended::Ran));
    wait_for("the results", || place.gateway.audit().iter().filter(|record| record["event"] == "result").count() >= 5);
    let removed = newest(&folder);
    fs::remove_file(&removed).expect("the folder is ours");

    (0..5).for_each(|_| assert_eq!(place.call("add").1, Ended::Ran, "it can be written"));

    let name = removed.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let records = place.gateway.audit();
    let decided: Vec<u64> = records.iter().filter_map(|record| record["arguments"]["of"].as_u64()).collect();
    assert_eq!(decided, [5, 6, 7, 8, 9]);
    let noted = records.iter().find(|record| record["event"] == "recovered").expect("it says so");
    assert!(noted["detail"].as_str().is_some_and(|detail| detail.contains(&name)), "{noted}");
    let verified = place.gateway.cli(&["audit", "verify"]);
    assert_eq!(verified.status.code(), Some(1), "{verified:?}");
    assert!(verified.stderr.contains(&name), "{verified:?}");
}
