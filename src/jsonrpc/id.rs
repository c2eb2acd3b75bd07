//! The name a sender gives to a request.

use super::{Kind, Node};
use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};

/// The id of a request: a string or an integer, as it was written.
///
/// Two ids are equal if they are of the same JSON type and mean the same: `"a"` and `"\u0061"` are, `"1"` and `1` are
/// not. Integers have one spelling (`-0` is refused), so their digits are compared and none is lost.
#[derive(Clone)]
pub struct Id {
    json: String,
}

/// An id as it is meant.
#[derive(PartialEq, Eq, Hash)]
enum Meaning<'a> {
    Text(Cow<'a, str>),
    Integer(&'a str),
}

impl Id {
    /// Longer ids name nothing that a shorter one could not, and we keep them.
    pub(super) const LONGEST: usize = 256;

    /// The id that `node` is, if it can be one: a string, or an integer without fraction or exponent, of at most
    /// 256 bytes as written.
    pub fn of(node: Node<'_>) -> Option<Id> {
        let json = node.text();
        let is_good = match node.kind() {
            Kind::String => json.len() <= Self::LONGEST.saturating_add(2),
            Kind::Number => is_integer(json) && json.len() <= Self::LONGEST,
            Kind::Null | Kind::Bool | Kind::Array | Kind::Object => false,
        };
        is_good.then(|| Id { json: json.to_owned() })
    }

    /// As it was written: a string with its quotes and escapes, or an integer.
    pub fn as_json(&self) -> &str {
        &self.json
    }

    fn meaning(&self) -> Meaning<'_> {
        Node::of_text(&self.json).as_str().map_or(Meaning::Integer(&self.json), Meaning::Text)
    }
}

/// `0`, or digits that do not start with it, perhaps with a minus.
fn is_integer(json: &str) -> bool {
    let digits = json.strip_prefix('-').unwrap_or(json);
    let is_zero = json == "0";
    let is_other = !digits.is_empty() && !digits.starts_with('0');
    (is_zero || is_other) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

impl From<u64> for Id {
    fn from(n: u64) -> Self {
        Id { json: n.to_string() }
    }
}

impl PartialEq for Id {
    fn eq(&self, other: &Self) -> bool {
        self.meaning() == other.meaning()
    }
}

impl Eq for Id {}

impl Hash for Id {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.meaning().hash(state);
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.json)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn id(json: &str) -> Id {
        Id::of(Node::of_text(json)).expect("an id")
    }

    #[test]
    fn ids_are_compared_by_type_and_meaning() {
        let equal = [("1", "1"), (r#""a""#, r#""\u0061""#), (r#""\n""#, r#""\u000A""#)];
        let different = [("1", r#""1""#), ("1", "-1"), (r#""a""#, r#""A""#), ("9007199254740992", "9007199254740993")];
        for (a, b) in equal {
            assert_eq!(id(a), id(b));
            assert!(HashSet::from([id(a)]).contains(&id(b)));
        }
        for (a, b) in different {
            assert_ne!(id(a), id(b));
        }
        assert_eq!(Id::from(7), id("7"));
    }

    #[test]
    fn an_id_is_told_from_what_only_looks_like_one() {
        for json in ["-0", "-", "00", "1.0", "1e3", "null", "true", "[]", "{}", "", "x", "1x", "--1"] {
            assert!(Id::of(Node::of_text(json)).is_none(), "{json}");
        }
    }
}
