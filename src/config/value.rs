//! Values that stand elsewhere: `{ env: NAME }` and `{ file: path }`.
//!
//! Secrets are never written in `gateway.yaml`, which is copied, committed and shown on screens. One that is missing is
//! an error and never an empty text: an empty credential is a door left open that looks closed.

use super::file::{self, FileError};
use super::problem::{self, Problem};
use crate::secret::Secret;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::env::{self, VarError};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where a secret stands: exactly one of the two.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SecretRef {
    /// An environment variable. Unset or empty is an error.
    Env(String),
    /// A file that only its owner may read. One newline at its end is not part of the secret.
    File(PathBuf),
}

/// A text, or where it stands: `text`, `{ env: NAME }` or `{ file: path }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// The text itself.
    Literal(String),
    /// It stands elsewhere.
    From(SecretRef),
}

/// Why a value that stands elsewhere could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// There is no such environment variable.
    #[error("environment variable `{name}` is not set")]
    Unset {
        /// Its name.
        name: String,
    },
    /// There is nothing in it.
    #[error("{place} is empty")]
    Empty {
        /// The variable or file.
        place: String,
    },
    /// It is not UTF-8.
    #[error("{place} is not UTF-8 text")]
    NotText {
        /// The variable or file.
        place: String,
    },
    /// The file could not be read.
    #[error("`{}` {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: FileError,
    },
    /// Others than its owner may open the file.
    #[error("`{}` can be opened by others than its owner", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
    },
}

/// More than any key or token, less than a mistake.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

impl SecretRef {
    /// The secret. `base` is the directory that relative paths start from.
    pub fn resolve(&self, base: &Path) -> Result<Secret<String>, ValueError> {
        match self {
            SecretRef::Env(name) => from_env(name),
            SecretRef::File(path) => read_secret(&base.join(path)),
        }
    }
}

impl Text {
    /// The text. `base` is the directory that relative paths start from.
    pub fn resolve(&self, base: &Path) -> Result<Secret<String>, ValueError> {
        match self {
            Text::Literal(text) => Ok(Secret::new(text.clone())),
            Text::From(place) => place.resolve(base),
        }
    }
}

impl ValueError {
    /// The same as a problem of the value at `path`.
    pub fn at(&self, path: problem::Path) -> Problem {
        let hint = match self {
            ValueError::Unset { name } => format!("set `{name}` where the gateway is started"),
            ValueError::Exposed { path } => format!("run `chmod 600 {}`", path.display()),
            _ => return Problem::new(path, self.to_string()),
        };
        Problem::new(path, self.to_string()).hint(hint)
    }
}

/// Reads a file that holds a secret: a key, a token. It must not be open to others than its owner.
pub fn read_secret(path: &Path) -> Result<Secret<String>, ValueError> {
    let place = || format!("`{}`", path.display());
    let contents =
        file::read(path, SECRET_BYTES_MAX).map_err(|cause| ValueError::Unreadable { path: path.to_owned(), cause })?;
    if file::is_open_to_others(&contents.metadata) {
        let path = path.to_owned();
        return Err(ValueError::Exposed { path });
    }
    let text = String::from_utf8(contents.bytes).map_err(|_| ValueError::NotText { place: place() })?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(ValueError::Empty { place: place() });
    }
    Ok(Secret::new(text.to_owned()))
}

fn from_env(name: &str) -> Result<Secret<String>, ValueError> {
    let place = || format!("environment variable `{name}`");
    match env::var(name) {
        Ok(text) if text.is_empty() => Err(ValueError::Empty { place: place() }),
        Ok(text) => Ok(Secret::new(text)),
        Err(VarError::NotPresent) => Err(ValueError::Unset { name: name.to_owned() }),
        Err(VarError::NotUnicode(_)) => Err(ValueError::NotText { place: place() }),
    }
}

// === Reading Text ===

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TextVisitor)
    }
}

/// Written by hand, because `untagged` would answer every mistake with "did not match any variant".
struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, `{ env: NAME }` or `{ file: path }`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text::Literal(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Text, E> {
        Ok(Text::Literal(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
        SecretRef::deserialize(de::value::MapAccessDeserializer::new(map)).map(Text::From)
    }
}

impl JsonSchema for Text {
    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let place = SecretRef::json_schema(generator);
        let mut branches = vec![
            json_schema!({
                "description": "The text itself. Not for secrets.",
                "type": "string",
            })
            .to_value(),
        ];
        if let Some(serde_json::Value::Array(places)) = place.get("oneOf") {
            branches.extend(places.iter().cloned());
        }
        json_schema!({
            "description": "A text, or where it stands: `text`, `{ env: NAME }` or `{ file: path }`.",
            "oneOf": branches,
        })
    }
}

/// Tells a written `null` from a key that is not there.
pub(super) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[track_caller]
    fn file(directory: &Path, contents: &[u8], mode: u32) -> SecretRef {
        let path = directory.join("secret");
        // An earlier one may be read-only.
        let _ = fs::remove_file(&path);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        SecretRef::File("secret".into())
    }

    #[track_caller]
    fn error(place: &SecretRef, base: &Path) -> String {
        let error = place.resolve(base).expect_err("an error");
        error.to_string().replace(&base.display().to_string(), "BASE")
    }

    #[test]
    fn one_newline_at_the_end_of_a_file_is_not_part_of_the_secret() {
        let base = tempfile::tempdir().unwrap();

        for (contents, secret) in [("a b", "a b"), ("a\n", "a"), ("a\r\n", "a"), ("a\n\n", "a\n")] {
            let place = file(base.path(), contents.as_bytes(), 0o600);
            assert_eq!(place.resolve(base.path()).unwrap().expose(), secret);
        }
    }

    #[test]
    fn a_file_that_is_no_secret_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let large = vec![b'a'; 64 * 1024 + 1];

        for (contents, mode, expected) in [
            (&b""[..], 0o600, "`BASE/secret` is empty"),
            (b"\n", 0o600, "`BASE/secret` is empty"),
            (b"\xff", 0o600, "`BASE/secret` is not UTF-8 text"),
            (b"a", 0o640, "`BASE/secret` can be opened by others than its owner"),
            (b"a", 0o604, "`BASE/secret` can be opened by others than its owner"),
            (&large, 0o600, "`BASE/secret` is larger than 65536 bytes"),
        ] {
            let place = file(base.path(), contents, mode);
            assert_eq!(error(&place, base.path()), expected);
        }
    }

    #[test]
    fn what_is_not_a_file_is_refused_without_waiting_for_it() {
        let base = Path::new("BASE");

        for (path, expected) in [
            ("nowhere", "`BASE/nowhere` cannot be read: No such file or directory (os error 2)"),
            ("/", "`/` is a directory, not a file"),
            ("/dev/zero", "`/dev/zero` is a pipe, socket or device, not a file"),
        ] {
            assert_eq!(error(&SecretRef::File(path.into()), base), expected);
        }
    }

    #[test]
    fn an_unset_variable_is_an_error_that_says_what_to_do() {
        let name = "PORTCULLIS_TEST_UNSET";
        let error = SecretRef::Env(name.into()).resolve(Path::new(".")).expect_err("unset");

        assert_eq!(
            error.at(problem::Path::root().key("token")).to_string(),
            "error: environment variable `PORTCULLIS_TEST_UNSET` is not set (token)\n\
             hint: set `PORTCULLIS_TEST_UNSET` where the gateway is started"
        );
    }

    #[test]
    fn a_set_variable_is_the_secret() {
        // Cargo sets this for every test.
        let place = SecretRef::Env("CARGO_PKG_NAME".into());

        assert_eq!(place.resolve(Path::new(".")).unwrap().expose(), "portcullis");
    }
}
