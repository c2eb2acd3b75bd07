//! Real work: building and testing small projects, large outputs, commands that take long.

use super::{agent, config, done, output, processes, run, start};
use crate::support::agent::Answer;
use crate::support::wait_for;
use serde_json::{Value, json};

const MAKEFILE: &str = "\
test: sum_test\n\t./sum_test\n\
sum_test: sum.o sum_test.o\n\t$(CC) -o $@ $^\n\
%.o: %.c sum.h\n\t$(CC) -Wall -Werror -c -o $@ $<\n";

#[test]
fn a_c_project_is_built_and_tested() {
    let gateway = start("");
    let agent = agent(&gateway, "alice");
    for (path, content) in [
        ("c/Makefile", MAKEFILE),
        ("c/sum.h", "int sum(int n, const int *all);\n"),
        (
            "c/sum.c",
            "#include \"sum.h\"\nint sum(int n, const int *all) { int s = 0; while (n-- > 0) s += *all++; return s; }\n",
        ),
        (
            "c/sum_test.c",
            "#include <stdio.h>\n#include \"sum.h\"\nint main(void) { int all[] = {1, 2, 3}; int s = sum(3, all); printf(\"sum %d\\n\", s); return s != 6; }\n",
        ),
    ] {
        done(&agent.tool("write_file", json!({ "path": path, "content": content, "create_parents": true })));
    }

    let made = done(&agent.tool("run_command", json!({ "command": "make -j4 test", "cwd": "c" })));
    let again = done(&agent.tool("run_command", json!({ "command": "make -q sum_test", "cwd": "c" })));
    done(
        &agent
            .tool("edit_file", json!({ "path": "c/sum.c", "edits": [{ "old": "s += *all++", "new": "s -= *all++" }] })),
    );
    let broken = done(&agent.tool("run_command", json!({ "command": "make test", "cwd": "c" })));

    assert_eq!(made["exit_code"], 0, "{made:#}");
    assert!(made["stdout"].as_str().is_some_and(|text| text.contains("sum 6\n")), "{made:#}");
    assert_eq!(again["exit_code"], 0, "what was built is there for the next call: {again:#}");
    assert_eq!(broken["exit_code"], 2, "{broken:#}");
}

#[test]
fn a_python_project_is_tested_with_threads_processes_and_a_database() {
    let gateway = start("");
    let agent = agent(&gateway, "alice");
    let test = r#"
import concurrent.futures, multiprocessing, pathlib, sqlite3, subprocess, sys, tempfile, unittest

def square(n):
    return n * n

class Work(unittest.TestCase):
    def test_threads(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(sum(pool.map(square, range(10))), 285)

    def test_processes(self):
        with multiprocessing.Pool(2) as pool:
            self.assertEqual(pool.map(square, [3]), [9])

    def test_database(self):
        with sqlite3.connect("kept.db") as db:
            db.execute("create table if not exists t (n)")
            db.execute("insert into t values (1)")

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "a")
            path.write_text("x")
            path.chmod(0o755)
            path.rename(path.with_name("b"))

    def test_children(self):
        self.assertEqual(subprocess.check_output([sys.executable, "-c", "print(1)"]), b"1\n")

unittest.main()
"#;
    done(&agent.tool("write_file", json!({ "path": "work.py", "content": test })));

    let first = run(&agent, "python3 work.py");
    let second = run(
        &agent,
        "python3 work.py && python3 -c \"import sqlite3; print(sqlite3.connect('kept.db').execute('select sum(n) from t').fetchone()[0])\"",
    );

    assert_eq!(first["exit_code"], 0, "{first:#}");
    assert_eq!(second["stdout"], "2\n", "{second:#}");
}

#[test]
fn a_hundred_megabytes_of_output_are_cut_and_it_is_said() {
    let gateway = start("output: 64KiB, timeout: 120s");
    let agent = agent(&gateway, "alice");

    let line = "echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last; echo warned >&2";
    let result = run(&agent, line);

    let stdout = result["stdout"].as_str().expect("an output");
    assert_eq!(result["exit_code"], 0);
    assert_eq!(result["stdout_bytes"], 100_000_012, "all of it is counted");
    assert_eq!(result["stdout_truncated"], true);
    assert_eq!((&result["stderr"], &result["stderr_truncated"]), (&json!("warned\n"), &json!(false)));
    assert!(stdout.len() < 80 * 1024, "{}", stdout.len());
    assert!(stdout.starts_with("first\nxxx") && stdout.ends_with("xxx\nlast\n"));
    assert!(stdout.contains("left out"), "it is said where something is missing");
    assert_eq!(output(&agent, "echo next"), "next\n");
    let memory = std::fs::read_to_string(format!("/proc/{}/status", super::upstream_id(&gateway))).expect("it runs");
    let peak = memory.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak").trim().to_owned();
    let peak: u64 = peak.trim_end_matches(" kB").trim().parse().expect("a number");
    assert!(peak < 200 * 1024, "the upstream held {peak} KiB at once");
}

fn progress(answer: &Answer) -> Vec<Value> {
    let told = answer.notifications.iter().filter(|told| told["method"] == "notifications/progress");
    told.map(|told| told["params"].clone()).collect()
}

#[test]
fn a_long_command_tells_how_it_comes_along() {
    let gateway = start("");
    let agent = agent(&gateway, "alice");
    let arguments = json!({ "command": "for i in 1 2 3 4 5; do echo step $i; sleep 1; done", "timeout": 30 });

    let answer = agent.call(
        "tools/call",
        json!({ "name": "run_command", "arguments": arguments, "_meta": { "progressToken": "t" } }),
    );

    assert_eq!(done(&answer)["exit_code"], 0);
    let told = progress(&answer);
    assert!(told.len() >= 2, "{told:#?}");
    assert!(told.iter().all(|told| told["progressToken"] == "t" && told["total"] == 30.0), "{told:#?}");
    assert!(told.iter().all(|told| told["message"].as_str().is_some_and(|said| said.contains("step"))), "{told:#?}");
    let seconds: Vec<f64> = told.iter().filter_map(|told| told["progress"].as_f64()).collect();
    assert!(seconds.is_sorted_by(|a, b| a < b), "{seconds:?}");
}

#[test]
fn a_command_ends_with_its_time_and_says_what_it_wrote() {
    let gateway = start("");
    let agent = agent(&gateway, "alice");
    let mark = "mark-of-a-time-out";
    let line = format!(": {mark}; trap '' TERM; (setsid sleep 600 &); echo so far; sleep 600");

    let answer = agent.tool("run_command", json!({ "command": line, "timeout": 1 }));

    let result = done(&answer);
    assert_eq!((&result["ended"], &result["stdout"]), (&json!("timed_out"), &json!("so far\n")));
    assert_eq!(answer.result()["isError"], true);
    wait_for("the end of all of it", || processes(mark).is_empty());
    // A time that is longer than the configuration allows is refused, not shortened.
    let refused = agent.tool("run_command", json!({ "command": "true", "timeout": 10_000 }));
    assert!(refused.refusal().contains("900"), "{refused:#?}");
}

#[test]
fn what_a_command_may_have_is_what_is_written() {
    let gateway = crate::support::gateway::Gateway::start(&config(
        "memory: 64MiB, tmp: 1MiB, processes: 20, quota: 8MiB, reserve: 1MiB",
    ));
    gateway.wait_for_log("upstream reached");
    let agent = agent(&gateway, "alice");

    let memory = done(&agent.tool("run_command", json!({ "command": "python3 -c \"x = bytearray(300_000_000)\"" })));
    let processes = run(&agent, "for i in $(seq 100); do sleep 5 & done; echo started; wait");
    let tmp = run(&agent, "head -c 5000000 /dev/zero >/tmp/x; ls -l /tmp/x");
    let disk = done(&agent.tool(
        "run_command",
        json!({ "command": "for i in $(seq 100); do head -c 1000000 /dev/urandom >f$i; done; sleep 30" }),
    ));

    assert_eq!(memory["ended"], "out_of_memory", "{memory:#}");
    assert!(processes["stderr"].as_str().is_some_and(|said| said.contains("fork")), "{processes:#}");
    assert!(tmp["stderr"].as_str().is_some_and(|said| said.contains("No space left")), "{tmp:#}");
    assert_eq!(disk["ended"], "over_quota", "{disk:#}");
    let full = agent.tool("write_file", json!({ "path": "more", "content": "x" }));
    assert!(full.refusal().contains("8 MiB") || full.refusal().contains("8MiB"), "{full:#?}");
    // It is the agent's own to make room again.
    assert_eq!(output(&agent, "rm -f f*; echo gone"), "gone\n");
    done(&agent.tool("write_file", json!({ "path": "more", "content": "x" })));
}
