//! Numbers as written to column values, exactly: the cases that the fast paths of the scanner leave open.

use std::cmp::Ordering;

/// The years 1 to 9999, which is what Spark's TIMESTAMP and Python's datetime share.
pub(crate) const FIRST_SECOND: i64 = -62_135_596_800;
pub(crate) const LAST_SECOND: i64 = 253_402_300_799;
pub(crate) const MICROS: i64 = 1_000_000;
/// The same years in microseconds.
pub(crate) const MICROSECONDS: std::ops::RangeInclusive<i64> =
    FIRST_SECOND * MICROS..=LAST_SECOND * MICROS + MICROS - 1;
/// Below this a fraction of a second is no microsecond.
const NO_TIME: f64 = 1e-7;
/// Significant digits that a fraction of a second keeps before it is rounded to microseconds.
const TIME_DIGITS: usize = 40;
/// Above this many digits an exponent is beyond any text that fits into memory.
const LONGEST_EXPONENT: usize = 18;
const BIGINT_DIGITS: usize = 19;

/// A JSON number taken apart: `digits` × 10^`exponent`, without zeros at either end.
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    /// `None`: so large, or so small, that no text holds enough digits to make up for it.
    exponent: Option<i64>,
}

impl Decimal {
    /// `text` is a number by the grammar; no digits are left of a zero.
    fn of(text: &[u8]) -> Self {
        crate::steps::add(text.len());
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        let mantissa_end = text.iter().position(|b| matches!(b, b'e' | b'E')).unwrap_or(text.len());
        let (mantissa, exponent) = text.split_at(mantissa_end);
        let fraction = mantissa.iter().position(|&b| b == b'.').map_or(0, |point| mantissa.len() - point - 1);
        let mut digits: Vec<u8> =
            mantissa.iter().copied().filter(u8::is_ascii_digit).skip_while(|&b| b == b'0').collect();
        let significant = digits.len();
        digits.truncate(digits.iter().rposition(|&b| b != b'0').map_or(0, |last| last + 1));
        let shift = i64::try_from(significant - digits.len()).ok().zip(i64::try_from(fraction).ok());
        let exponent = written_exponent(exponent).zip(shift).map(|(e, (zeros, fraction))| e - fraction + zeros);
        Self { negative, digits, exponent }
    }
}

/// The exponent behind a mantissa (`e+05`, or nothing).
fn written_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [_, b'-', rest @ ..] => (true, rest),
        [_, b'+', rest @ ..] | [_, rest @ ..] => (false, rest),
    };
    let zeros = digits.iter().take_while(|&&b| b == b'0').count();
    let digits = &digits[zeros.min(digits.len() - 1)..];
    if digits.len() > LONGEST_EXPONENT {
        return None;
    }
    let value = digits.iter().fold(0i64, |value, b| value * 10 + i64::from(b - b'0'));
    Some(if negative { -value } else { value })
}

/// The integer that a number is (`1`, `1.0`, `1e3`), if within bounds.
pub(crate) fn integral(text: &[u8], low: i64, high: i64) -> Option<i64> {
    let number = Decimal::of(text);
    if number.digits.is_empty() {
        return Some(0);
    }
    let zeros = usize::try_from(number.exponent?).ok()?;
    if number.digits.len().checked_add(zeros)? > BIGINT_DIGITS {
        return None;
    }
    let digits = number.digits.iter().chain(std::iter::repeat_n(&b'0', zeros));
    let size = digits.fold(0i128, |value, b| value * 10 + i128::from(b - b'0'));
    let value = i64::try_from(if number.negative { -size } else { size }).ok()?;
    (low..=high).contains(&value).then_some(value)
}

/// The nearest double, if there is one.
pub(crate) fn double(text: &[u8]) -> Option<f64> {
    crate::steps::add(text.len());
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// Unix seconds, perhaps with a fraction, in microseconds: to the nearest one, a half to the even one.
#[expect(clippy::cast_precision_loss, reason = "both bounds are exact as doubles")]
pub(crate) fn seconds(text: &[u8]) -> Option<i64> {
    let about = double(text)?;
    if !(FIRST_SECOND as f64..=LAST_SECOND as f64).contains(&about) {
        return None;
    }
    if about.abs() < NO_TIME {
        return Some(0);
    }
    let number = Decimal::of(text);
    let mut digits = number.digits;
    let mut exponent = number.exponent?.checked_add(6)?;
    if digits.len() > TIME_DIGITS {
        exponent += i64::try_from(digits.len() - TIME_DIGITS).ok()?;
        round(&mut digits, TIME_DIGITS);
    }
    if exponent < 0 {
        let dropped = usize::try_from(-exponent).ok()?;
        if dropped > digits.len() {
            return Some(0);
        }
        let whole = digits.len() - dropped;
        round(&mut digits, whole);
        exponent = 0;
    }
    digits.extend(std::iter::repeat_n(b'0', usize::try_from(exponent).ok()?));
    let size = digits.iter().try_fold(0i64, |value, b| value.checked_mul(10)?.checked_add(i64::from(b - b'0')))?;
    Some(if number.negative { -size } else { size })
}

/// Keeps the first `kept` digits, rounded to the nearest, a half to the even one; one digit more where it carries over.
fn round(digits: &mut Vec<u8>, kept: usize) {
    let rest = digits.split_off(kept);
    let half = match rest.split_first() {
        None => Ordering::Less,
        Some((first, others)) => {
            first.cmp(&b'5').then(if others.iter().any(|&b| b != b'0') { Ordering::Greater } else { Ordering::Equal })
        }
    };
    let odd = digits.last().is_some_and(|b| (b - b'0') % 2 == 1);
    if half == Ordering::Less || (half == Ordering::Equal && !odd) {
        return;
    }
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return;
        }
        *digit = b'0';
    }
    digits.insert(0, b'1');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_round_as_decimal_arithmetic_does() {
        for (text, micros) in [
            ("1764400000", Some(1_764_400_000_000_000)),
            ("1764400000.25", Some(1_764_400_000_250_000)),
            ("1.7644e9", Some(1_764_400_000_000_000)),
            ("0.0000014", Some(1)),
            ("0.0000005", Some(0)),
            ("0.0000015", Some(2)),
            ("-0.0000015", Some(-2)),
            ("0.00000050000000000000000000000000000000000000000001", Some(0)),
            ("0.0000005000000000000000000000000000000000001", Some(1)),
            ("0.000000500000000000000000000000000000000000001", Some(1)),
            ("0.00000050000000000000000000000001", Some(1)),
            ("9.9999999", Some(10_000_000)),
            ("1e-99999999999999999999", Some(0)),
            ("-62135596800", Some(-62_135_596_800_000_000)),
            ("253402300800", None),
            ("1e99999", None),
        ] {
            assert_eq!(seconds(text.as_bytes()), micros, "{text}");
        }
    }

    #[test]
    fn integral_numbers_are_exact() {
        let long = format!("1{}e-5000", "0".repeat(5000));
        for (text, value) in [
            ("1.0", Some(1)),
            ("1000e-3", Some(1)),
            ("-0.0e99", Some(0)),
            ("0e99999999999999999999999", Some(0)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("-9.223372036854775808e18", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("1e19", None),
            ("1e-1", None),
            ("1e999999999999999999999999", None),
            ("1e00000000000000000000000000002", Some(100)),
            (long.as_str(), Some(1)),
        ] {
            assert_eq!(integral(text.as_bytes(), i64::MIN, i64::MAX), value, "{text}");
        }
    }
}
