//! A real browser: Chromium, driven by `tests/sdk/browser.mjs`. It runs as long as there is a window; each window is a profile
//! of its own.
//!
//! Whatever a test does, a window holds its page to what every page of ours promises: the console stays silent (a breach of
//! the content security policy would be said there), and nothing is asked of anybody but the hosts the test names.

use super::sdk;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

/// A browser on a busy machine is slow; what it waits for itself has shorter limits.
const PATIENCE: Duration = Duration::from_secs(90);

/// How a window looks at things.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// `light` or `dark`.
    pub(crate) scheme: &'static str,
    /// Of the window, in CSS pixels.
    pub(crate) size: (u32, u32),
    /// Whether pages may run scripts.
    pub(crate) has_script: bool,
    /// Whether the system's few colours are all there is (Windows high contrast).
    pub(crate) has_forced_colors: bool,
}

/// A window.
pub(crate) struct Window {
    driver: Arc<Driver>,
    id: u64,
    /// What URLs may begin with.
    allowed: Vec<String>,
}

/// What stands in a window.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Its address.
    pub(crate) url: String,
    /// The status of the answer it came with.
    pub(crate) status: u64,
    /// Of the tab.
    pub(crate) title: String,
    /// All there is to read.
    pub(crate) text: String,
    /// Its main heading.
    pub(crate) heading: String,
    /// The name of what has the keyboard; empty when nothing has.
    pub(crate) focused: String,
}

struct Driver {
    stdin: Mutex<Option<ChildStdin>>,
    reader: Option<thread::JoinHandle<()>>,
    waiting: Arc<Mutex<HashMap<u64, Sender<Value>>>>,
    next_id: AtomicU64,
}

// === impl Look ===

impl Look {
    /// A window on a desk, in daylight.
    pub(crate) const DESK: Look =
        Look { scheme: "light", size: (1280, 900), has_script: true, has_forced_colors: false };
    /// A small phone.
    pub(crate) const PHONE: Look = Look { size: (320, 640), ..Look::DESK };

    /// The same at night.
    pub(crate) const fn dark(self) -> Look {
        Look { scheme: "dark", ..self }
    }

    /// The same where scripts are switched off.
    pub(crate) const fn without_script(self) -> Look {
        Look { has_script: false, ..self }
    }
}

// === impl Window ===

impl Window {
    /// A new window that may load what begins with one of these, or nothing where there is no Chromium.
    #[track_caller]
    pub(crate) fn open(look: Look, allowed: &[&str]) -> Option<Window> {
        let driver = Driver::get()?;
        let window = Window {
            id: driver.next_id.fetch_add(1, Ordering::Relaxed),
            driver,
            allowed: allowed.iter().map(|&url| url.to_owned()).collect(),
        };
        window.order(&json!({
            "do": "open",
            "scheme": look.scheme,
            "width": look.size.0,
            "height": look.size.1,
            "script": look.has_script,
            "motion": "reduce",
            "colors": if look.has_forced_colors { "active" } else { "none" },
        }));
        Some(window)
    }

    /// Opens a URL.
    #[track_caller]
    pub(crate) fn goto(&self, url: &str) -> Seen {
        self.seen_after(&json!({ "do": "goto", "url": url }))
    }

    /// Writes into the field of this label.
    #[track_caller]
    pub(crate) fn fill(&self, label: &str, text: &str) {
        self.order(&json!({ "do": "fill", "label": label, "text": text }));
    }

    /// Presses the button, or follows the link, of this name, to another page.
    #[track_caller]
    pub(crate) fn press(&self, name: &str) -> Seen {
        self.seen_after(&json!({ "do": "press", "name": name }))
    }

    /// Presses it twice, as people do whose browser seems slow. The form must be on its way both times before an answer comes.
    #[track_caller]
    pub(crate) fn press_twice(&self, name: &str) {
        self.order(&json!({ "do": "press_twice", "name": name }));
    }

    /// Waits for the page with this heading.
    #[track_caller]
    pub(crate) fn arrive(&self, heading: &str) -> Seen {
        self.seen_after(&json!({ "do": "arrive", "heading": heading }))
    }

    /// Presses a button that leads to no page, and waits until the browser has tried this URL or said this. Gives everything
    /// that was tried and said.
    #[track_caller]
    pub(crate) fn press_in_vain(&self, name: &str, until: &str) -> Vec<String> {
        let seen = self.order(&json!({ "do": "press_in_vain", "name": name, "until": until }));
        ["requests", "failures", "console"].iter().flat_map(|list| texts(&seen[list])).collect()
    }

    /// Presses these keys one after the other; `text:…` is typed.
    #[track_caller]
    pub(crate) fn keys(&self, keys: &[&str]) -> Seen {
        self.seen_after(&json!({ "do": "type", "keys": keys }))
    }

    /// The same where the last one leads to another page.
    #[track_caller]
    pub(crate) fn keys_lead_on(&self, keys: &[&str]) -> Seen {
        self.seen_after(&json!({ "do": "type_away", "keys": keys }))
    }

    /// Goes back to the page before.
    #[track_caller]
    pub(crate) fn back(&self) -> Seen {
        self.seen_after(&json!({ "do": "back" }))
    }

    /// What stands in the field of this label, and whether the browser would send it.
    #[track_caller]
    pub(crate) fn field(&self, label: &str) -> (String, bool) {
        let field = self.order(&json!({ "do": "field", "label": label }));
        (field["value"].as_str().unwrap_or_default().to_owned(), field["valid"] == true)
    }

    /// What a canary is (`undefined` unless script of strangers ran), and the names of the elements within one.
    #[track_caller]
    pub(crate) fn census(&self, within: &str) -> (String, Vec<String>) {
        let found = self.order(&json!({ "do": "census", "within": within }));
        (found["canary"].as_str().unwrap_or_default().to_owned(), texts(&found["names"]))
    }

    /// Waits for a button of this name that can be pressed.
    #[track_caller]
    pub(crate) fn wait_for_button(&self, name: &str) {
        self.order(&json!({ "do": "wait_for", "role": "button", "name": name }));
    }

    /// Waits for a heading of this name.
    #[track_caller]
    pub(crate) fn wait_for_heading(&self, name: &str) {
        self.order(&json!({ "do": "wait_for", "role": "heading", "name": name }));
    }

    /// Waits for a link of this name.
    #[track_caller]
    pub(crate) fn wait_for_link(&self, name: &str) {
        self.order(&json!({ "do": "wait_for", "role": "link", "name": name }));
    }

    /// The names of its cookies.
    #[track_caller]
    pub(crate) fn cookies(&self) -> Vec<String> {
        let cookies = self.order(&json!({ "do": "cookies" }));
        let names = cookies["cookies"].as_array().into_iter().flatten().map(|cookie| cookie["name"].as_str());
        names.map(|name| name.unwrap_or_default().to_owned()).collect()
    }

    /// Keeps a picture of the whole page among the build's artefacts. Gives its path.
    #[track_caller]
    pub(crate) fn shot(&self, name: &str) -> PathBuf {
        self.picture(name, None)
    }

    /// The same of how it is printed.
    #[track_caller]
    pub(crate) fn print(&self, name: &str) -> PathBuf {
        self.picture(name, Some("print"))
    }

    #[track_caller]
    fn picture(&self, name: &str, media: Option<&str>) -> PathBuf {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screenshots").join(format!("{name}.png"));
        self.order(&json!({ "do": "shot", "file": file, "media": media }));
        file
    }

    /// What stands in people's way on this page, found by measuring: nothing, we hope.
    #[track_caller]
    pub(crate) fn misfits(&self) -> Vec<String> {
        texts(&self.order(&json!({ "do": "hindrances", "rules": false }))["hindrances"])
    }

    /// The same, and what axe-core finds.
    #[track_caller]
    pub(crate) fn hindrances(&self) -> Vec<String> {
        let found = self.order(&json!({ "do": "hindrances", "rules": true }));
        assert!(found["n_passed"].as_u64() > Some(8), "axe-core has looked at the page: {found}");
        texts(&found["hindrances"])
    }

    /// Makes the page what no page should be, for a test of the tests.
    #[track_caller]
    pub(crate) fn spoil(&self) {
        self.order(&json!({ "do": "spoil" }));
    }

    #[track_caller]
    fn seen_after(&self, order: &Value) -> Seen {
        let seen = self.order(order);
        self.hold_to_promises(&seen);
        let text = |name: &str| seen[name].as_str().unwrap_or_default().to_owned();
        Seen {
            url: text("url"),
            status: seen["status"].as_u64().unwrap_or_default(),
            title: text("title"),
            text: text("text"),
            heading: text("heading"),
            focused: text("focused"),
        }
    }

    #[track_caller]
    fn hold_to_promises(&self, seen: &Value) {
        for request in texts(&seen["requests"]) {
            let url = request.split_once(' ').map_or("", |(_, url)| url);
            let is_allowed = self.allowed.iter().any(|start| url.starts_with(start.as_str()));
            assert!(is_allowed, "the page asked for {request}, beside {:?}", self.allowed);
        }
        // The browser says so of every page that comes with an error, and that is no trouble.
        let is_status = |line: &String| line.contains("the server responded with a status of");
        let said: Vec<_> = texts(&seen["console"]).into_iter().filter(|line| !is_status(line)).collect();
        assert_eq!(said, [""; 0], "the console is silent at {}", seen["url"]);
    }

    #[track_caller]
    fn order(&self, order: &Value) -> Value {
        let mut order = order.clone();
        order["window"] = json!(self.id);
        let answer = self.driver.ask(&order);
        assert!(answer["error"].is_null(), "{order}: {}", answer["error"].as_str().unwrap_or_default());
        answer["result"].clone()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.driver.tell(json!({ "do": "close", "window": self.id }));
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

// === impl Driver ===

impl Driver {
    /// The one there is, or a new one.
    #[track_caller]
    fn get() -> Option<Arc<Driver>> {
        static DRIVER: Mutex<Weak<Driver>> = Mutex::new(Weak::new());
        let chromium = sdk::chromium()?;
        let mut there = DRIVER.lock().expect("nobody panics with it");
        let driver = there.upgrade().unwrap_or_else(|| Arc::new(Driver::start(chromium)));
        *there = Arc::downgrade(&driver);
        Some(driver)
    }

    fn start(chromium: &Path) -> Driver {
        let mut command = sdk::program("browser.mjs");
        command.env("CHROMIUM", chromium).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let waiting = Arc::new(Mutex::new(HashMap::<u64, Sender<Value>>::new()));
        let (stdin, stdout) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        let answers = Arc::clone(&waiting);
        let reader = thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
                let id = answer["id"].as_u64().unwrap_or_default();
                let asker = answers.lock().expect("nobody panics with it").remove(&id);
                // Nobody waits for the close of a window.
                asker.map(|asker| asker.send(answer));
            }
            drop(child.wait());
            answers.lock().expect("nobody panics with it").clear();
        });
        let stdin = Mutex::new(Some(stdin));
        Driver { stdin, reader: Some(reader), waiting, next_id: AtomicU64::new(1) }
    }

    #[track_caller]
    fn ask(&self, order: &Value) -> Value {
        let (asker, answer) = mpsc::channel();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().expect("nobody panics with it").insert(id, asker);
        self.write(id, order.clone());
        answer.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("no answer to {order}: {error}"))
    }

    fn tell(&self, order: Value) {
        self.write(self.next_id.fetch_add(1, Ordering::Relaxed), order);
    }

    fn write(&self, id: u64, mut order: Value) {
        order["id"] = json!(id);
        let mut stdin = self.stdin.lock().expect("nobody panics with it");
        // Where it has died, the wait for the answer says so.
        drop(writeln!(stdin.as_mut().expect("it is open while there is a window"), "{order}"));
    }
}

impl Drop for Driver {
    /// It ends when its stdin does; nothing of it outlives the test.
    fn drop(&mut self) {
        drop(self.stdin.lock().map(|mut stdin| stdin.take()));
        drop(self.reader.take().map(thread::JoinHandle::join));
    }
}
