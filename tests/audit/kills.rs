//! SIGKILL at random moments under load: the chain verifies, no call ran without its record, and a line that was cut short is
//! noted by the next start. Twenty times in `make test`, a thousand times in `make soak`. (L-06)

use crate::support::gateway::{Gateway, in_front_of};
use crate::support::recorder::Recorder;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::thread;
use std::time::Duration;
use tokio::time::Instant;

const RULES: &str = "- { name: writes, tools: [\"up/*\"], allow: {} }";
const CALLERS: usize = 4;

fn rounds() -> usize {
    std::env::var("PORTCULLIS_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20)
}

/// Puts the beginning of a line at the end of the newest file, as a power cut may leave it.
fn tear(gateway: &Gateway, round: usize) {
    let files = fs::read_dir(gateway.path("data/audit")).expect("it is there").flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let newest = files.max().expect("a file");
    let line = "{\"seq\":7,\"at\":\"2026-11-30T03:39:42.243Z\",\"mono_ms\":";
    let mut file = fs::OpenOptions::new().append(true).open(newest).expect("the file is ours");
    file.write_all(&line.as_bytes()[..1 + round % line.len()]).expect("there is room");
}

/// Every whole line, whatever stands at the ends of files.
fn records(gateway: &Gateway) -> Vec<Value> {
    let files = fs::read_dir(gateway.path("data/audit")).expect("it is there").flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let parsed = |file: std::path::PathBuf| {
        let text = fs::read_to_string(file).expect("ASCII");
        let whole = text.rfind('\n').map_or("", |end| &text[..end]).to_owned();
        whole.lines().map(|line| serde_json::from_str(line).expect("a record")).collect::<Vec<Value>>()
    };
    files.flat_map(parsed).collect()
}

#[test]
fn the_chain_holds_after_kills_at_random_moments_and_no_call_ran_without_its_record() {
    let (n_rounds, began) = (rounds(), Instant::now());
    let recorder = Recorder::start();
    let base = in_front_of(&recorder.url(), RULES);
    let yaml = format!("public_url: http://localhost:8080\n{base}audit: {{ arguments: [{{ tools: [\"*/*\"] }}] }}\n");
    let mut gateway = Gateway::start(&yaml);
    let token = gateway.token("alice", "up");
    let mut n_torn = 0;

    for round in 0..n_rounds {
        let agent = gateway.agent_with(&token, "up");
        let mark = recorder.mark();
        thread::scope(|scope| {
            for caller in 0..CALLERS {
                let agent = &agent;
                scope.spawn(move || {
                    // Until the gateway is killed under it.
                    for n in 0.. {
                        let arguments = json!({ "of": format!("{round}.{caller}.{n}") });
                        let (request, _) =
                            agent.request("tools/call", json!({ "name": "add", "arguments": arguments }));
                        if !request.is_answered_by(agent.address) {
                            return;
                        }
                    }
                });
            }
            // In the middle of the work, somewhere else each time.
            recorder.wait_for_requests(mark, 1 + round % 5);
            let [byte] = portcullis::id::random_bytes();
            thread::sleep(Duration::from_micros(u64::from(byte) * 100));
            gateway.signal("KILL");
        });
        if round % 4 == 3 {
            tear(&gateway, round);
            n_torn += 1;
        }
        gateway = gateway.crash_and_restart();
        if round % (n_rounds / 20).max(1) == 0 || round + 1 == n_rounds {
            let verified = gateway.cli(&["audit", "verify"]).success().stdout;
            assert!(verified.contains("verified "), "round {round}: {verified}");
        }
    }

    let records = records(&gateway);
    let of = |record: &Value| record["arguments"]["of"].as_str().map(str::to_owned);
    let decided: BTreeSet<String> =
        records.iter().filter(|record| record["event"] == "decision").filter_map(of).collect();
    let ran: BTreeSet<String> = recorder.calls().iter().filter_map(|call| of(&call.json()["params"])).collect();
    let unrecorded: Vec<_> = ran.difference(&decided).collect();
    assert!(unrecorded.is_empty(), "{} of {} calls ran without a record", unrecorded.len(), ran.len());
    assert!(ran.len() >= 3 * n_rounds, "only {} calls in {n_rounds} rounds", ran.len());
    let n_noted = records.iter().filter(|record| record["event"] == "recovered").count();
    assert!(n_noted >= n_torn, "{n_noted} of {n_torn} torn lines are noted");
    eprintln!("{n_rounds} kills, {} calls ran, {} records, {:?}", ran.len(), records.len(), began.elapsed());
}
