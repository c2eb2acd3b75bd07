//! Every action of the actions file, got wrong in every way and every place.
//!
//! What changes something is never asked for as it should be: all its arguments have values that it does not take, so that
//! nothing of it is an action even where the host leaves out, cuts off or unquotes what is hostile. That is looked at once
//! more for every string, before it is sent.

use super::channels::exec;
use super::refusal::{by_script, plain};
use super::target::Canary;
use super::{Attacker, Error, Seen};
use crate::actions::{Action, Actions, Part, Slot};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// How actions are got wrong. `{word}` stands for the word that is to be there, `{action}` for all of them, `{unknown}` for
/// a value that nobody knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// In the place of each argument, and as a word behind the last one.
    Word(&'static [&'static str]),
    /// In the place of each argument that is a number, where the action changes nothing.
    Number(&'static [&'static str]),
    /// In the place of the first word.
    Name(&'static [&'static str]),
    /// In the place of all of it.
    Whole(&'static [&'static str]),
    /// Words at the end are missing.
    Fewer,
    /// The value of each argument is one that nobody knows.
    Unknown,
}

/// What `sleep 4` takes.
const SLEEP: Duration = Duration::from_secs(4);

/// An action that is about to be got wrong: its words, and where its arguments are.
struct Base {
    words: Vec<String>,
    arguments: Vec<Place>,
    /// How many of the words must be there.
    n_required: usize,
    changes: bool,
}

struct Place {
    at: usize,
    is_number: bool,
}

// === impl Wrong ===

impl Wrong {
    /// For the table of attacks.
    pub(super) fn templates(self) -> &'static [&'static str] {
        match self {
            Wrong::Word(templates) | Wrong::Number(templates) | Wrong::Name(templates) | Wrong::Whole(templates) => {
                templates
            }
            Wrong::Fewer | Wrong::Unknown => &[],
        }
    }

    /// Where these are put, for the table of attacks.
    pub(super) fn place(self) -> &'static str {
        match self {
            Wrong::Word(_) => "for each argument and as one word more, of each action",
            Wrong::Number(_) => "for each number, of each action that changes nothing",
            Wrong::Name(_) => "for the first word, of each action",
            Wrong::Whole(_) => "for each action",
            Wrong::Fewer => "each action without its last word, and without more of them",
            Wrong::Unknown => "each action with a value that nobody knows, in each place",
        }
    }

    /// What is sent. `unknown` is a word that means nothing to anybody.
    pub(super) fn strings(self, actions: &Actions, unknown: &str, canary: Canary) -> Vec<String> {
        let mut all = Vec::new();
        for action in actions.iter() {
            let base = Base::of(actions, action, unknown);
            for sent in self.of(&base, unknown) {
                all.push(canary.put_in(&sent.replace("{unknown}", unknown)));
            }
        }
        // What the file allows is no attack.
        let mut known = BTreeSet::new();
        all.retain(|sent| !actions.makes(sent) && !could_change(actions, sent) && known.insert(sent.clone()));
        all
    }

    fn of(self, base: &Base, unknown: &str) -> Vec<String> {
        let words = &base.words;
        let filled = |at: usize, template: &str| {
            let word = words.get(at).map_or(unknown, String::as_str);
            let mut changed = words.clone();
            changed.truncate(base.n_required.max(at));
            let hostile = template.replace("{word}", word).replace("{WORD}", &word.to_uppercase());
            match changed.get_mut(at) {
                Some(place) => *place = hostile,
                None => changed.push(hostile),
            }
            changed.join(" ")
        };
        let at_each = |places: Vec<usize>| -> Vec<String> {
            let of = |at: usize| self.templates().iter().map(move |template| (at, *template));
            places.into_iter().flat_map(of).map(|(at, template)| filled(at, template)).collect()
        };
        let arguments = base.arguments.iter();
        match self {
            Wrong::Word(_) => at_each(arguments.map(|place| place.at).chain([words.len()]).collect()),
            Wrong::Number(_) if base.changes => Vec::new(),
            Wrong::Number(_) => at_each(arguments.filter(|place| place.is_number).map(|place| place.at).collect()),
            Wrong::Name(_) => at_each(vec![0]),
            Wrong::Whole(templates) => {
                let required = &words[..base.n_required];
                let (one, two) = (required.join(" "), required.join("  "));
                templates.iter().map(|of| of.replace("{action}", &one).replace("{action two spaces}", &two)).collect()
            }
            Wrong::Fewer => {
                // Without any of its values, an action that changes something could be about all there is.
                let least =
                    if base.changes { base.arguments.first().map_or(words.len(), |place| place.at + 1) } else { 1 };
                (least..base.n_required).map(|n| words[..n].join(" ")).collect()
            }
            Wrong::Unknown if base.changes => vec![words.join(" ")],
            Wrong::Unknown => base.arguments.iter().map(|place| filled(place.at, unknown)).collect(),
        }
    }
}

// === impl Base ===

impl Base {
    /// One that changes nothing is as it should be, so that a host that looks at one word after the other comes to all of them.
    fn of(actions: &Actions, action: &Action, unknown: &str) -> Base {
        let changes = !action.is_read_only();
        let mut base = Base { words: Vec::new(), arguments: Vec::new(), n_required: 0, changes };
        for (at, part) in action.parts().enumerate() {
            let (word, is_optional) = match part {
                Part::Literal(word) => (word.to_owned(), false),
                Part::Argument(slot) => {
                    base.arguments.push(Place { at, is_number: slot.is_number() });
                    let known = if changes { None } else { slot.some() };
                    (known.unwrap_or_else(|| stranger(slot, unknown)), slot.is_optional())
                }
            };
            base.words.push(word);
            base.n_required += usize::from(!is_optional);
        }
        if changes && could_change(actions, &base.words.join(" ")) {
            // No value is wrong for sure, or there is none: then the name is.
            base.words[0] = format!("{}-{unknown}", base.words[0]);
        }
        base
    }
}

// === impl Attacker ===

impl Attacker<'_> {
    /// Asks for every action, wrong in this way.
    pub(super) async fn wrong(&mut self, wrong: Wrong, canary: Canary) -> Result<Seen, Error> {
        let target = self.target;
        let strings = wrong.strings(&target.actions, &target.unknown, canary);
        let mut last = None;
        for sent in &strings {
            match by_script(&exec(self.connection().await?, sent.as_bytes()).await?, canary) {
                Seen::Refused(how) => last = Some((sent, how)),
                seen => return Ok(seen.about(sent)),
            }
        }
        Ok(all_refused(strings.len(), last))
    }

    /// The same, and looks at how long each refusal takes: what is run for nobody to see takes its time, too.
    pub(super) async fn sleep(&mut self, wrong: Wrong, canary: Canary) -> Result<Seen, Error> {
        let target = self.target;
        let strings = wrong.strings(&target.actions, &target.unknown, canary);
        let mut last = None;
        for sent in &strings {
            let (seen, first) = self.timed(sent, canary).await?;
            let Seen::Refused(how) = seen else {
                return Ok(seen.about(sent));
            };
            if first >= SLEEP {
                let (_, without) = self.timed(&sent.replace("sleep 4", "sleep 0"), canary).await?;
                let (_, again) = self.timed(sent, canary).await?;
                if without >= SLEEP / 2 {
                    return Ok(Seen::NotHere(format!("a refusal takes {without:.1?} here, whatever is sent")));
                }
                if again >= SLEEP {
                    let why = format!("it RAN: its refusal took {again:.1?}, and {without:.1?} with `sleep 0`");
                    return Ok(Seen::Broken(why).about(sent));
                }
            }
            last = Some((sent, how));
        }
        Ok(all_refused(strings.len(), last))
    }

    async fn timed(&mut self, sent: &str, canary: Canary) -> Result<(Seen, Duration), Error> {
        let connection = self.connection().await?;
        let began = Instant::now();
        let heard = exec(connection, sent.as_bytes()).await?;
        Ok((by_script(&heard, canary), began.elapsed()))
    }
}

fn all_refused(n: usize, last: Option<(&String, String)>) -> Seen {
    match last {
        Some((sent, how)) => Seen::Refused(format!("{n} of {n}; the last, {}: {how}", plain(sent.as_bytes()))),
        None => Seen::NotHere("no action of the actions file can be got wrong like that".to_owned()),
    }
}

/// A value that an argument does not take, where there is one.
fn stranger(slot: Slot<'_>, unknown: &str) -> String {
    let unlikely = [unknown.to_owned(), unknown.to_uppercase(), format!(".{unknown}"), unknown.repeat(4)];
    let is_wrong = |word: &String| !slot.has(word) && !slot.has(&word.to_ascii_lowercase());
    unlikely.into_iter().find(is_wrong).unwrap_or_else(|| unknown.to_owned())
}

/// Whether words of this, one behind the other, are an action that changes something: with all that stands around them left
/// out, or taken for a space, in whatever case.
fn could_change(actions: &Actions, sent: &str) -> bool {
    let is_of_a_word = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    let without: String = sent.chars().filter(|c| is_of_a_word(*c) || *c == ' ').collect();
    let spaced: String = sent.chars().map(|c| if is_of_a_word(c) { c } else { ' ' }).collect();
    let has_one = |text: &str| {
        let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
        (0..words.len()).any(|from| {
            (from + 1..=words.len()).any(|to| {
                let part = words[from..to].join(" ");
                actions.iter().any(|action| !action.is_read_only() && action.makes(&part))
            })
        })
    };
    [without, spaced].iter().any(|text| has_one(text) || has_one(&text.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::super::attacks::{ATTACKS, Tried};
    use super::*;

    const UNKNOWN: &str = "portcullis-verify-abcdefgh";

    fn all(actions: &Actions) -> BTreeSet<String> {
        let canary = Canary::new().expect("there are random numbers");
        let wrongs = ATTACKS.iter().filter_map(|attack| match attack.tried {
            Tried::Wrong(wrong) | Tried::Sleep(wrong) => Some(wrong),
            _ => None,
        });
        wrongs.flat_map(|wrong| wrong.strings(actions, UNKNOWN, canary)).collect()
    }

    fn parsed(list: &str) -> Actions {
        let head = "check: list\nactions:\n  - { name: list, description: d, annotations: { readOnlyHint: true }, run: list }\n";
        Actions::parse(&format!("{head}{list}")).expect("it is good")
    }

    #[test]
    fn every_action_is_got_wrong_in_every_place() {
        let actions = Actions::parse(include_str!("../../actions.example.yaml")).expect("the example is good");

        let sent = all(&actions);

        for beginning in [
            format!("deploy {UNKNOWN};expr "),
            format!("restart {UNKNOWN}\nexpr "),
            format!("deploy {UNKNOWN} {UNKNOWN};expr "),
            format!("list {UNKNOWN};expr "),
            "status project-a;expr ".to_owned(),
            format!("status project-a {UNKNOWN}`expr "),
            "logs project-a;expr ".to_owned(),
            "logs project-a 1;expr ".to_owned(),
            "logs project-a 1 a;expr ".to_owned(),
            format!("logs project-a 1 a {UNKNOWN};expr "),
        ] {
            assert!(sent.iter().any(|sent| sent.starts_with(&beginning)), "{beginning:?}: {sent:#?}");
        }
        for whole in [
            "status project-a/../project-a",
            "status ./project-a",
            "status",
            "logs project-a",
            "logs project-a +1",
            "LIST",
        ] {
            assert!(sent.contains(whole), "{whole:?}: {sent:#?}");
        }
        assert!(sent.contains(&format!("status {UNKNOWN}")) && sent.contains(&format!("deploy {UNKNOWN}")));
        assert!(!sent.contains("deploy") && !sent.contains("restart"));
    }

    #[test]
    fn nothing_that_is_sent_could_be_taken_for_an_action_that_changes_something() {
        let lists = [
            "  - { name: a, description: d, run: restart-all }\n",
            "  - { name: a, description: d, run: restart }\n\
             \x20 - { name: b, description: d, arguments: { p: { one_of: [x] } }, run: 'restart {p}' }\n",
            "  - { name: a, description: d, arguments: { p: { matches: '[A-Za-z0-9._/-]+' } }, run: 'put {p}' }\n",
            "  - { name: a, description: d, arguments: { p: { integer: { min: 0, max: 10 } } }, run: 'scale {p}' }\n",
            "  - { name: a, description: d, arguments: { p: { one_of: [x] }, q: { matches: '[a-z-]+', optional: true } }, run: 'tag {p} {q}' }\n",
            "  - { name: a, description: d, annotations: { readOnlyHint: true }, arguments: { p: { one_of: [x] } }, run: 'restart state {p}' }\n\
             \x20 - { name: b, description: d, run: restart }\n",
        ];
        for list in lists {
            let actions = parsed(list);
            let changing: Vec<&Action> = actions.iter().filter(|action| !action.is_read_only()).collect();

            let sent = all(&actions);

            for sent in &sent {
                let bare = sent.replace([';', '&', '|', '\'', '"', '`', '$', '(', ')', '#', '<', '>', '*', '?'], " ");
                for text in [sent.clone(), sent.to_lowercase(), bare] {
                    let cuts = (1..=text.len()).filter(|at| text.is_char_boundary(*at)).map(|at| text[..at].trim());
                    let bad = cuts.clone().find(|cut| changing.iter().any(|action| action.makes(cut)));
                    // Nobody takes half a word for a whole one.
                    let is_whole = |cut: &str| text[cut.len()..].chars().next().is_none_or(|c| c == ' ' || c == '\n');
                    assert!(bad.is_none_or(|cut| !is_whole(cut)), "{sent:?}: {bad:?}");
                }
            }
        }
        // And yet each of them is attacked, where only its name can be wrong, too.
        for (list, name) in lists.iter().zip(["restart-all", "restart", "put", "scale", "tag"]) {
            let sent = all(&parsed(list));
            assert!(sent.iter().any(|sent| sent.starts_with(name) && sent.contains(";expr ")), "{name}: {sent:#?}");
        }
    }
}
