//! The person in front of a real client: what stands in `BROWSER` for clients that open one (`tests/sdk/person.mjs`).

use super::process::{self, Finished};
use super::{gateway, sdk};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use tempfile::TempDir;

/// A user of the gateway at their browser.
pub(crate) struct Person {
    name: String,
    dir: TempDir,
}

impl Person {
    /// This user, who knows their password and allows what clients ask for.
    pub(crate) fn new(name: &str) -> Person {
        let person = Person { name: name.to_owned(), dir: TempDir::new().expect("a temporary folder") };
        person.decides("allow");
        let command = sdk::program("person.mjs");
        let words: Vec<String> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| format!("'{}'", word.to_str().expect("paths of tests are UTF-8")))
            .collect();
        let packages = command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
        let environment: Vec<String> = packages.map(|(name, value)| format!("{name}='{value}'")).collect();
        let path = |name: &str| person.path(name).display().to_string();
        let script = format!(
            "#!/bin/sh\nexport PERSON='{}' {}\nexec {} \"$1\" >>'{}' 2>&1\n",
            path("person.json"),
            environment.join(" "),
            words.join(" "),
            path("log")
        );
        person.write("browser", &script, 0o700);
        person
    }

    /// From now on they press this button: `allow` or `deny`.
    pub(crate) fn decides(&self, decision: &str) {
        let person = json!({
            "username": self.name,
            "password": gateway::password(&self.name),
            "decision": decision,
            "seen": self.path("seen"),
        });
        self.write("person.json", &person.to_string(), 0o600);
    }

    /// The program that opens their browser.
    pub(crate) fn browser(&self) -> PathBuf {
        self.path("browser")
    }

    /// Goes to a URL by themselves, until the client has them back.
    #[track_caller]
    pub(crate) fn visit(&self, url: &str) -> Finished {
        process::run(process::command(self.browser()).arg(url), b"")
    }

    /// Every page they saw: `url`, `method`, `status`, `location`.
    pub(crate) fn seen(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("seen")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("the person writes JSON")).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) {
        // Another name first: a browser that is just starting reads the old file or the new one, never half of it.
        let (path, new) = (self.path(name), self.path("new"));
        fs::write(&new, text).expect("the folder is ours");
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).expect("the file is ours");
        fs::rename(new, path).expect("the folder is ours");
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            eprintln!("--- {} saw {:#?}\nand said:\n{log}---", self.name, self.seen());
        }
    }
}
