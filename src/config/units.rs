//! Durations (`30s`) and sizes (`4MiB`), as people write them.
//!
//! A bare number is refused: whether `timeout: 30` means seconds or milliseconds is a guess, and half of the readers
//! guess wrong. So are `4MB` and fractions: there is one way to write each value.

use super::problem::Malformed;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A length of time: a whole number and `ms`, `s`, `m`, `h` or `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Period {
    millis: u64,
}

/// A number of bytes: a whole number and `B`, `KiB`, `MiB` or `GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize {
    bytes: usize,
}

/// Units with their worth, smallest first.
const PERIODS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1000), ("m", 60 * 1000), ("h", 60 * 60 * 1000), ("d", 24 * 60 * 60 * 1000)];
const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1024), ("MiB", 1024 * 1024), ("GiB", 1024 * 1024 * 1024)];

/// A century: long enough for everyone, and far from where clocks overflow.
const PERIOD_MAX: u64 = 36_500 * 24 * 60 * 60 * 1000;
/// 1 TiB: more than any one buffer of a gateway should ever be.
const SIZE_MAX: u64 = 1024 * 1024 * 1024 * 1024;

// === impl Period ===

impl Period {
    /// That many milliseconds.
    pub const fn millis(n: u64) -> Self {
        Period { millis: n }
    }

    /// That many seconds.
    pub const fn seconds(n: u64) -> Self {
        Period { millis: n.saturating_mul(1000) }
    }

    /// As the standard library has it.
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// Whether it is no time at all.
    pub const fn is_zero(self) -> bool {
        self.millis == 0
    }
}

impl FromStr for Period {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let wanted = Wanted { what: "a length of time", example: "30s", units: "`ms`, `s`, `m`, `h`, `d`" };
        read(text, &PERIODS, PERIOD_MAX, &wanted).map(|millis| Period { millis })
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.millis, &PERIODS)
    }
}

// === impl ByteSize ===

impl ByteSize {
    /// That many bytes.
    pub const fn of(bytes: usize) -> Self {
        ByteSize { bytes }
    }

    /// That many times 1,024 bytes.
    pub const fn kibibytes(n: usize) -> Self {
        ByteSize { bytes: n.saturating_mul(1024) }
    }

    /// That many times 1,048,576 bytes.
    pub const fn mebibytes(n: usize) -> Self {
        ByteSize { bytes: n.saturating_mul(1024 * 1024) }
    }

    /// In bytes.
    pub const fn bytes(self) -> usize {
        self.bytes
    }
}

impl FromStr for ByteSize {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let wanted = Wanted { what: "a size", example: "4MiB", units: "`B`, `KiB`, `MiB`, `GiB`" };
        let bytes = read(text, &SIZES, SIZE_MAX, &wanted)?;
        let bytes = usize::try_from(bytes).map_err(|_| wanted.too_large(text))?;
        Ok(ByteSize { bytes })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, u64::try_from(self.bytes).unwrap_or(u64::MAX), &SIZES)
    }
}

// === Reading and writing ===

struct Wanted {
    what: &'static str,
    example: &'static str,
    units: &'static str,
}

impl Wanted {
    fn hint(&self) -> String {
        let Wanted { example, units, .. } = self;
        format!("write a whole number with its unit, like `{example}`; the units are {units}")
    }

    fn error(&self, message: String) -> Malformed {
        Malformed::new(message, self.hint())
    }

    fn too_large(&self, text: &str) -> Malformed {
        self.error(format!("`{text}` is too large for {}", self.what))
    }
}

fn read(text: &str, units: &[(&str, u64)], max: u64, wanted: &Wanted) -> Result<u64, Malformed> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(end).unwrap_or_default();
    if digits.is_empty() {
        return Err(wanted.error(format!("`{text}` is not {}", wanted.what)));
    }
    if unit.is_empty() {
        return Err(wanted.error(format!("`{text}` has no unit")));
    }
    let Some((_, worth)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(wanted.error(format!("`{text}` is not {}", wanted.what)));
    };
    // The digits are only digits, so the one way to fail is to be too many.
    let n = digits.parse::<u64>().ok();
    n.and_then(|n| n.checked_mul(*worth)).filter(|n| *n <= max).ok_or_else(|| wanted.too_large(text))
}

/// In the largest unit that needs no fraction.
fn write(f: &mut fmt::Formatter<'_>, n: u64, units: &[(&str, u64)]) -> fmt::Result {
    let fits = |(_, worth): &&(&str, u64)| n > 0 && n.is_multiple_of(*worth);
    let largest = units.iter().rev().find(fits).or(units.first());
    let (unit, worth) = largest.copied().unwrap_or(("", 1));
    write!(f, "{}{unit}", n.checked_div(worth).unwrap_or(n))
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl JsonSchema for Period {
    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A length of time: a whole number and `ms`, `s`, `m`, `h` or `d`, as in `30s`.",
            "type": "string",
            "pattern": "^[0-9]+(ms|s|m|h|d)$",
        })
    }
}

impl JsonSchema for ByteSize {
    fn schema_name() -> Cow<'static, str> {
        "ByteSize".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number of bytes: a whole number and `B`, `KiB`, `MiB` or `GiB`, as in `4MiB`.",
            "type": "string",
            "pattern": "^[0-9]+(B|KiB|MiB|GiB)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_whole_number_and_a_unit() {
        for (text, millis) in
            [("500ms", 500), ("30s", 30_000), ("10m", 600_000), ("2h", 7_200_000), ("7d", 604_800_000), ("0ms", 0)]
        {
            assert_eq!(text.parse(), Ok(Period::millis(millis)), "{text}");
            assert_eq!(Period::millis(millis).to_string(), text);
        }
        assert_eq!(Period::seconds(90).to_string(), "90s");
        assert_eq!(Period::seconds(3600).to_string(), "1h");
    }

    #[test]
    fn a_size_is_a_whole_number_and_a_unit() {
        for (text, bytes) in [("512B", 512), ("64KiB", 65_536), ("4MiB", 4_194_304), ("1GiB", 1 << 30), ("0B", 0)] {
            assert_eq!(text.parse(), Ok(ByteSize::of(bytes)), "{text}");
            assert_eq!(ByteSize::of(bytes).to_string(), text);
        }
        assert_eq!(ByteSize::kibibytes(1536).to_string(), "1536KiB");
    }

    #[test]
    fn other_texts_are_refused_and_told_how_to_be_written() {
        for (text, message) in [
            ("30", "`30` has no unit"),
            ("", "`` is not a length of time"),
            ("s", "`s` is not a length of time"),
            ("-1s", "`-1s` is not a length of time"),
            ("1.5h", "`1.5h` is not a length of time"),
            ("30 s", "`30 s` is not a length of time"),
            ("30S", "`30S` is not a length of time"),
            ("1h30m", "`1h30m` is not a length of time"),
            ("٣s", "`٣s` is not a length of time"),
            ("36501d", "`36501d` is too large for a length of time"),
            ("99999999999999999999ms", "`99999999999999999999ms` is too large for a length of time"),
        ] {
            let error = text.parse::<Period>().expect_err(text);
            assert_eq!(error.message, message);
            assert_eq!(
                error.hint,
                "write a whole number with its unit, like `30s`; the units are `ms`, `s`, `m`, `h`, `d`"
            );
        }
        for text in ["4MB", "4", "4 MiB", "4mib", "4TiB", "1025GiB", "99999999999999999999B"] {
            let error = text.parse::<ByteSize>().expect_err(text);
            assert_eq!(
                error.hint,
                "write a whole number with its unit, like `4MiB`; the units are `B`, `KiB`, `MiB`, `GiB`"
            );
        }
    }
}
