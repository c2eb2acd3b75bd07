//! The members of a record as text: each value escaped, and cut where it takes more than its room, so that a line keeps
//! within 16 KiB whatever it is handed.

use super::chain::{self, LINE_MAX};
use super::escape::{self, Cut};
use super::event::{Arguments, Subject, Who};
use crate::redact::Redactor;
use std::borrow::Cow;

/// The members of a line under construction.
pub(super) struct Members<'r> {
    out: Vec<u8>,
    cuts: Vec<Cut>,
    /// For what comes from outside. The writer of the log has nothing of the kind to say.
    redactor: Option<&'r Redactor>,
}

impl Default for Members<'_> {
    fn default() -> Self {
        Members { out: Vec::with_capacity(USUAL), cuts: Vec::new(), redactor: None }
    }
}

impl<'r> Members<'r> {
    /// For values from outside: what has the shape of a secret is replaced before anything is cut, so that no half of one stays.
    pub(super) fn redacted(redactor: &'r Redactor) -> Members<'r> {
        Members { redactor: Some(redactor), ..Members::default() }
    }

    fn shown<'v>(&self, value: &'v str) -> Cow<'v, str> {
        self.redactor.map_or(Cow::Borrowed(value), |redactor| redactor.text(value))
    }

    /// A value of ours, which needs no escaping.
    pub(super) fn word(&mut self, key: &str, value: Option<&str>) {
        let Some(value) = value else { return };
        self.key(key);
        self.out.push(b'"');
        self.out.extend_from_slice(value.as_bytes());
        self.out.push(b'"');
    }

    /// A value that may be anything.
    pub(super) fn text(&mut self, key: &'static str, value: Option<&str>) {
        let Some(value) = value else { return };
        self.key(key);
        self.string(key, "", value, VALUE_MAX);
    }

    /// A name of the configuration, or of the table of methods.
    pub(super) fn known(&mut self, key: &'static str, value: Option<&str>) {
        let Some(value) = value else { return };
        self.key(key);
        self.own(key, "", value, VALUE_MAX);
    }

    /// A value of ours, which is short unless something is wrong.
    pub(super) fn short(&mut self, key: &'static str, value: Option<&str>) {
        let Some(value) = value else { return };
        self.key(key);
        self.own(key, "", value, SHORT_VALUE_MAX);
    }

    pub(super) fn long_text(&mut self, key: &'static str, value: Option<&str>) {
        let Some(value) = value else { return };
        self.key(key);
        self.string(key, "", value, LONG_VALUE_MAX);
    }

    /// JSON we have made ourselves, in printable ASCII.
    pub(super) fn json(&mut self, key: &str, json: &[u8]) {
        self.key(key);
        self.out.extend_from_slice(json);
    }

    pub(super) fn number(&mut self, key: &str, value: Option<u64>) {
        let Some(value) = value else { return };
        self.key(key);
        chain::push_number(&mut self.out, value);
    }

    pub(super) fn hash(&mut self, key: &str, value: Option<&[u8; 32]>) {
        let Some(value) = value else { return };
        self.key(key);
        self.out.push(b'"');
        chain::push_hex(&mut self.out, value);
        self.out.push(b'"');
    }

    pub(super) fn principal(&mut self, who: Option<Who<'_>>) {
        let Some(who) = who else { return };
        let (kind, name) = match who.subject {
            Subject::User(name) => ("user:", name),
            Subject::Client(id) => ("client:", id),
        };
        self.out.extend_from_slice(br#","principal":{"issuer":"#);
        // Names of the configuration and of our own making need no look.
        self.own("principal.issuer", "", who.issuer, VALUE_MAX);
        self.out.extend_from_slice(br#","subject":"#);
        self.string("principal.subject", kind, name, VALUE_MAX);
        self.out.extend_from_slice(br#","client":"#);
        self.string("principal.client", "", who.client, VALUE_MAX);
        if let Some(grant) = who.grant {
            self.out.extend_from_slice(br#","grant":"#);
            self.own("principal.grant", "", grant, VALUE_MAX);
        }
        if let Some(person) = who.person {
            self.out.extend_from_slice(br#","person":"#);
            self.string("principal.person", "", person, VALUE_MAX);
        }
        self.out.push(b'}');
    }

    /// Whole, or not at all: half a JSON text is none.
    pub(super) fn arguments(&mut self, arguments: Option<Arguments<'_>>) {
        let Some(Arguments { json, bytes }) = arguments else { return };
        let cuts = (self.cuts.len() + 1) * CUT_MAX;
        let room = LINE_MAX.saturating_sub(FRAME_BYTES + self.out.len() + cuts);
        match json.filter(|json| json.len() <= room) {
            Some(json) => self.json("arguments", json.as_bytes()),
            None => self.cuts.push(Cut::whole("arguments", bytes)),
        }
    }

    /// Names. Beyond the room for a list the rest is left out and the cut says how much there was.
    pub(super) fn list<T: AsRef<str>>(&mut self, key: &'static str, values: &[T], max: usize) {
        if values.is_empty() {
            return;
        }
        self.key(key);
        self.out.push(b'[');
        let start = self.out.len();
        for (i, value) in values.iter().enumerate() {
            let before = self.out.len();
            if i > 0 {
                self.out.push(b',');
            }
            self.out.push(b'"');
            let value = self.shown(value.as_ref());
            let is_whole = escape::push(&mut self.out, &value, max) == value.len();
            self.out.push(b'"');
            if !is_whole || self.out.len() - start > max {
                self.out.truncate(before);
                let all: Vec<_> = values.iter().map(|value| self.shown(value.as_ref())).collect();
                self.cuts.push(Cut::new(key, &all.join("\n")));
                break;
            }
        }
        self.out.push(b']');
    }

    pub(super) fn key(&mut self, key: &str) {
        self.out.extend_from_slice(b",\"");
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    pub(super) fn string(&mut self, key: &'static str, prefix: &str, value: &str, max: usize) {
        self.own(key, prefix, &self.shown(value), max);
    }

    fn own(&mut self, key: &'static str, prefix: &str, value: &str, max: usize) {
        self.out.push(b'"');
        self.out.extend_from_slice(prefix.as_bytes());
        if escape::push(&mut self.out, value, max) < value.len() {
            self.cuts.push(Cut::new(key, value));
        }
        self.out.push(b'"');
    }

    /// The members, with what was cut named last. In keys of its own, so that no value can pretend to be cut.
    pub(super) fn finish(mut self) -> Vec<u8> {
        let mut separator: &[u8] = br#","cut":["#;
        for cut in &self.cuts {
            self.out.extend_from_slice(separator);
            cut.push(&mut self.out);
            separator = b",";
        }
        if !self.cuts.is_empty() {
            self.out.push(b']');
        }
        self.out
    }
}

/// What the members of a call's record take, most often.
const USUAL: usize = 768;
/// Room for one value, escaped. With all of these, two long ones, the lists and all cuts named, a line stays under 16 KiB.
const VALUE_MAX: usize = 512;
const SHORT_VALUE_MAX: usize = 128;
/// Room for a list of groups or scopes.
pub(super) const LIST_MAX: usize = 512;
/// What the writer puts around the members.
const FRAME_BYTES: usize = 300;
/// What naming one cut takes.
const CUT_MAX: usize = 140;
/// Room for a value that is often long in earnest: a resource's URI, the rules.
pub(super) const LONG_VALUE_MAX: usize = 2048;
