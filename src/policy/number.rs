//! Compares JSON numbers by their exact decimal value, whatever their size and however they are written.
//!
//! A float would call 100.0000000000000001 equal to 100, and an upstream that reads decimals would not.
//! The work is bounded by the length of the text: `1e999999999` is compared by its exponent, never written out.

use std::cmp::Ordering;
use std::num::IntErrorKind;

/// How `a` stands to `b`; `None` when one of them is no JSON number.
///
/// Exponents saturate at the ends of `i64`. The answer is exact all the same while one of the two is of human size,
/// and the one from the configuration always is.
pub(super) fn compare(a: &str, b: &str) -> Option<Ordering> {
    Some(Decimal::read(a)?.cmp(&Decimal::read(b)?))
}

/// How many digits a number has from its first to its last that is not zero.
pub(super) fn significant_digits(text: &str) -> Option<usize> {
    Decimal::read(text).map(|number| number.digits().count())
}

/// A number as sign, power of ten of its first digit, and digits.
struct Decimal<'a> {
    sign: i8,
    magnitude: i64,
    /// From the first to the last digit that is not zero; the point may stand among them.
    mantissa: &'a str,
}

impl<'a> Decimal<'a> {
    fn read(text: &'a str) -> Option<Decimal<'a>> {
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, read_exponent(exponent)?),
            None => (unsigned, 0),
        };
        if !is_mantissa(mantissa) {
            return None;
        }
        let from_first = mantissa.trim_start_matches(['0', '.']);
        let digits = from_first.trim_end_matches(['0', '.']);
        if digits.is_empty() {
            return Some(Decimal { sign: 0, magnitude: 0, mantissa: "" });
        }
        let first = mantissa.len().saturating_sub(from_first.len());
        let point = mantissa.find('.').unwrap_or(mantissa.len());
        Some(Decimal {
            sign: if is_negative { -1 } else { 1 },
            magnitude: place_value(first, point).saturating_add(exponent),
            mantissa: digits,
        })
    }

    fn digits(&self) -> impl Iterator<Item = u8> {
        self.mantissa.bytes().filter(|byte| *byte != b'.')
    }

    fn cmp(&self, other: &Decimal<'_>) -> Ordering {
        let by_size = || self.magnitude.cmp(&other.magnitude).then_with(|| self.digits().cmp(other.digits()));
        match self.sign.cmp(&other.sign) {
            Ordering::Equal if self.sign < 0 => by_size().reverse(),
            Ordering::Equal => by_size(),
            unequal => unequal,
        }
    }
}

/// The power of ten of the digit at `first`, where the point stands at `point`.
fn place_value(first: usize, point: usize) -> i64 {
    let distance = i64::try_from(first.abs_diff(point)).unwrap_or(i64::MAX);
    if first < point { distance.saturating_sub(1) } else { distance.saturating_neg() }
}

fn is_mantissa(text: &str) -> bool {
    let mut points = 0_u8;
    let is_made_of_digits = text.bytes().all(|byte| {
        points = points.saturating_add(u8::from(byte == b'.'));
        byte.is_ascii_digit() || byte == b'.'
    });
    is_made_of_digits && points <= 1 && text.starts_with(|c: char| c.is_ascii_digit())
}

fn read_exponent(text: &str) -> Option<i64> {
    match text.parse::<i64>() {
        Ok(exponent) => Some(exponent),
        Err(error) => match error.kind() {
            IntErrorKind::PosOverflow => Some(i64::MAX),
            IntErrorKind::NegOverflow => Some(i64::MIN),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: &str, b: &str, expected: Ordering) {
        assert_eq!(compare(a, b), Some(expected), "{a} to {b}");
        assert_eq!(compare(b, a), Some(expected.reverse()), "{b} to {a}");
    }

    #[test]
    fn the_same_value_is_equal_however_it_is_written() {
        for same in
            ["100", "1e2", "100.0", "1E+2", "0.1e3", "10000e-2", "100.000", "0.000100e6", "1e0000000000000000000000002"]
        {
            check(same, "100", Ordering::Equal);
        }
        for zero in ["0", "-0", "0.0", "-0.000e5", "0e999999999999999999999"] {
            check(zero, "0", Ordering::Equal);
        }
    }

    #[test]
    fn values_a_float_cannot_tell_apart_differ() {
        check("100.0000000000000001", "100", Ordering::Greater);
        check("9007199254740993", "9007199254740992", Ordering::Greater);
        check("18446744073709551616", "18446744073709551615", Ordering::Greater);
        check("-100.0000000000000001", "-100", Ordering::Less);
        check("1e-400", "0", Ordering::Greater);
        check("-1e-400", "0", Ordering::Less);
    }

    #[test]
    fn magnitudes_and_signs_order_as_numbers_do() {
        check("9", "10", Ordering::Less);
        check("-9", "-10", Ordering::Greater);
        check("-1", "1", Ordering::Less);
        check("0.9", "0.10", Ordering::Greater);
        check("0.05", "0.5", Ordering::Less);
        check("12", "123", Ordering::Less);
        check("1.2", "1.23", Ordering::Less);
        check("1e308", "2e308", Ordering::Less);
    }

    #[test]
    fn enormous_exponents_cost_nothing() {
        check("1e999999999", "100", Ordering::Greater);
        check("-1e999999999", "100", Ordering::Less);
        check("1e-999999999", "100", Ordering::Less);
        check("1e99999999999999999999999999", "18446744073709551615", Ordering::Greater);
        check("1e-99999999999999999999999999", "0", Ordering::Greater);
        let long = format!("1{}", "0".repeat(1_000_000));
        check(&long, "1e308", Ordering::Greater);
        check(&format!("{long}e-1000000"), "1", Ordering::Equal);
    }

    #[test]
    fn what_is_no_number_is_said_to_be_none() {
        for text in ["", "-", "abc", "NaN", "1e", "1e+", "1.2.3", ".5", "1ex", "٣"] {
            assert_eq!(compare(text, "1"), None, "{text}");
        }
    }
}
