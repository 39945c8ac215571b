//! Numbers as they stand: by the grammar, and the common ones made without reading them again.

use crate::blocks::{self, block_at};
use crate::error::{Scan, Stop};
use crate::scan::Cursor;
use crate::steps;

/// A number as it stands, with what is needed to make the common ones without reading it again.
pub(crate) struct Number<'a> {
    pub(crate) text: &'a [u8],
    negative: bool,
    is_whole: bool,
    digits: usize,
    /// The digits as one integer, right up to 19 digits.
    mantissa: u64,
    /// `None`: an exponent is written.
    fraction: Option<usize>,
}

/// Digits that a `u64` holds, whatever they are.
const SAFE_DIGITS: usize = 19;
/// Digits that are read together.
const TOGETHER: usize = 16;
/// Below this an integer is a double exactly, and so are the powers of ten in the table: their quotient is the nearest
/// double of the number (Clinger's fast path).
const EXACT_INTEGERS: u64 = 1 << 53;
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];
const INTEGER_POWERS: [u64; SAFE_DIGITS + 1] = {
    let mut powers = [1; SAFE_DIGITS + 1];
    let mut i = 1;
    while i <= SAFE_DIGITS {
        powers[i] = powers[i - 1] * 10;
        i += 1;
    }
    powers
};

/// The reciprocals of 5^`i`, rounded down to 64 bits of which the highest is set, and how many bits 5^`i` has.
#[expect(clippy::cast_possible_truncation, reason = "but for that of 5^0 they have 64 bits")]
const RECIPROCALS: [(u64, i32); SAFE_DIGITS + 1] = {
    let mut made = [(0, 0); SAFE_DIGITS + 1];
    let mut five = 1u128;
    let mut i = 0;
    while i <= SAFE_DIGITS {
        let bits = five.ilog2() + 1;
        // 5^0 would need one bit more; `over_a_power_of_ten` is not asked for it.
        let reciprocal = (1u128 << (63 + bits)) / five;
        made[i] = (if i == 0 { u64::MAX } else { reciprocal as u64 }, bits.cast_signed());
        five *= 5;
        i += 1;
    }
    made
};

impl Number<'_> {
    /// The integer that is written without fraction and exponent, if it has few enough digits to be sure.
    #[inline(always)]
    pub(crate) fn short_integer(&self) -> Option<i64> {
        if !self.is_whole || self.digits >= SAFE_DIGITS {
            return None;
        }
        let size = self.mantissa.cast_signed();
        Some(if self.negative { -size } else { size })
    }

    /// The nearest double where few instructions make it.
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 nothing is lost, above it is rounded to the nearest")]
    pub(crate) fn short_double(&self) -> Option<f64> {
        if self.digits > SAFE_DIGITS {
            return None;
        }
        let places = self.fraction?;
        let size = if self.mantissa < EXACT_INTEGERS {
            self.mantissa as f64 / POWERS.get(places)?
        } else if places == 0 {
            self.mantissa as f64
        } else {
            over_a_power_of_ten(self.mantissa, places)?
        };
        Some(if self.negative { -size } else { size })
    }
}

/// The double nearest to `size` / 10^`places`, if the reciprocal is exact enough to tell; `size` and `places` are not 0.
///
/// With `size` × 2^`zeros` and the reciprocal of 5^`places`, both of which fill 64 bits, the upper half of the product is
/// the quotient, or less by under 2. What is dropped to keep 53 bits decides, unless that leaves open on which side of
/// the middle it is.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "53 bits are kept, which a double holds")]
fn over_a_power_of_ten(size: u64, places: usize) -> Option<f64> {
    let &(reciprocal, bits) = RECIPROCALS.get(places)?;
    let zeros = size.leading_zeros();
    let product = u128::from(size << zeros) * u128::from(reciprocal);
    let quotient = u64::try_from(product >> 64).ok()?;
    let dropped = 10 + u32::from(quotient >> 63 == 1);
    let middle = 1 << (dropped - 1);
    let rest = quotient & ((1 << dropped) - 1);
    if rest <= middle && rest + 2 > middle {
        return None;
    }
    let kept = (quotient >> dropped) + u64::from(rest > middle);
    let exponent = (dropped.cast_signed() - zeros.cast_signed()) - (bits - 1) - i32::try_from(places).ok()?;
    let power = f64::from_bits(u64::try_from(1023 + exponent).ok()? << 52);
    Some(kept as f64 * power)
}

impl<'a> Cursor<'a> {
    /// The next byte is a minus or a digit. What is glued to the number is the caller's to see: it is no token that
    /// may stand there.
    #[inline(always)]
    pub(crate) fn number(&mut self) -> Scan<Number<'a>> {
        let start = self.at;
        let negative = self.text[start] == b'-';
        let first = start + usize::from(negative);
        let Some(Short { mantissa, whole, places, length }) = short(self.text, first) else {
            let number = any_number(self.text, self.at)?;
            self.at += number.text.len();
            return Ok(number);
        };
        steps::add(length);
        self.at = first + length;
        Ok(Number {
            text: &self.text[start..self.at],
            negative,
            is_whole: places == 0,
            digits: whole + places,
            mantissa,
            fraction: Some(places),
        })
    }
}

/// `Cursor::number` for any number.
#[inline(never)]
fn any_number(text: &[u8], start: usize) -> Scan<Number<'_>> {
    let mut at = start;
    let mut mantissa = 0u64;
    let mut run = |at: &mut usize| {
        let begin = *at;
        while let Some(digit) = text.get(*at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
            *at += 1;
        }
        *at - begin
    };
    let negative = text[at] == b'-';
    at += usize::from(negative);
    let whole = at;
    let mut digits = run(&mut at);
    if digits == 0 || (digits > 1 && text[whole] == b'0') {
        return Err(Stop::Syntax);
    }
    let mut fraction = Some(0);
    let mut is_whole = true;
    if text.get(at) == Some(&b'.') {
        at += 1;
        let places = run(&mut at);
        if places == 0 {
            return Err(Stop::Syntax);
        }
        is_whole = false;
        digits += places;
        fraction = Some(places);
    }
    if let Some(b'e' | b'E') = text.get(at) {
        at += 1;
        at += usize::from(matches!(text.get(at), Some(b'+' | b'-')));
        let begin = at;
        while text.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at == begin {
            return Err(Stop::Syntax);
        }
        is_whole = false;
        fraction = None;
    }
    steps::add(at - start);
    Ok(Number { text: &text[start..at], negative, is_whole, digits, mantissa, fraction })
}

/// A number without sign and exponent.
struct Short {
    mantissa: u64,
    whole: usize,
    places: usize,
    length: usize,
}

/// The number at a place, where its digits can be read together: `None` does not mean that there is none.
#[inline(always)]
fn short(text: &[u8], first: usize) -> Option<Short> {
    let block = block_at(text, first)?;
    let digits = blocks::digits(block);
    let whole = digits.trailing_ones() as usize;
    if !(1..=TOGETHER).contains(&whole) || (whole > 1 && block[0] == b'0') {
        return None;
    }
    let front = blocks::decimal(block, 0, whole)?;
    if block[whole] != b'.' {
        return (block[whole] | 0x20 != b'e').then_some(Short { mantissa: front, whole, places: 0, length: whole });
    }
    let point = whole + 1;
    let places = (digits >> point).trailing_ones() as usize;
    let length = point + places;
    if places == 0 || whole + places > SAFE_DIGITS || whole == TOGETHER || block.get(length)? | 0x20 == b'e' {
        return None;
    }
    let mut mantissa = front * INTEGER_POWERS[places];
    if places <= TOGETHER {
        mantissa += blocks::decimal(block, point, places)?;
    } else {
        let rest = block.get(point + TOGETHER..length)?;
        let tail = rest.iter().fold(0, |value, byte| value * 10 + u64::from(byte - b'0'));
        mantissa += blocks::decimal(block, point, TOGETHER)? * INTEGER_POWERS[rest.len()] + tail;
    }
    Some(Short { mantissa, whole, places, length })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, padding: usize) -> Option<(Option<i64>, Option<f64>, usize)> {
        let padded = format!("{text}{}", "\n".repeat(padding));
        let mut cursor = Cursor::new(padded.as_bytes(), 0);
        let number = cursor.number().ok()?;
        Some((number.short_integer(), number.short_double(), cursor.at))
    }

    #[test]
    fn short_doubles_are_the_nearest() {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 11
        };
        let mut made = 0;
        for _ in 0..300_000 {
            let whole = next() % 10u64.pow(u32::try_from(next() % 9).unwrap());
            let places = usize::try_from(next() % 20).unwrap();
            let fraction = format!("{:020}", u128::from(next()) * u128::from(next()) % 10u128.pow(20));
            let text = if places == 0 { format!("{whole}") } else { format!("-{whole}.{}", &fraction[..places]) };
            let expected: f64 = text.parse().unwrap();
            for padding in [0, 40] {
                let (_, double, end) = read(&text, padding).unwrap();
                assert_eq!(end, text.len(), "{text}");
                if let Some(double) = double {
                    assert_eq!(double.to_bits(), expected.to_bits(), "{text}");
                    made += 1;
                }
            }
        }
        assert!(made > 400_000, "{made}");
    }

    #[test]
    fn doubles_at_the_middle_of_two_are_left_open_or_right() {
        for size in (1u64 << 53)..(1 << 53) + 2_000 {
            for shift in 0..9 {
                for places in 1..=SAFE_DIGITS {
                    let size = (size << shift) | 1;
                    if let Some(double) = over_a_power_of_ten(size, places) {
                        assert_eq!(double.to_bits(), format!("{size}e-{places}").parse::<f64>().unwrap().to_bits());
                    }
                }
            }
        }
    }

    #[test]
    fn both_ways_read_the_same_numbers() {
        for text in [
            "0",
            "-0",
            "7",
            "-12",
            "1234567890123456",
            "12345678901234567",
            "1234567890123456789",
            "12345678901234567890",
            "0.5",
            "-0.25",
            "123456789012345.5",
            "1234567890123456.5",
            "0.1234567890123456",
            "0.12345678901234567",
            "0.123456789012345678",
            "1.123456789012345678",
            "12.123456789012345678",
            "0.0000000000000000000001",
            "1e5",
            "1.5e-3",
            "1E5",
            "1.5E+3",
        ] {
            assert!(read(text, 0).is_some(), "{text}");
            assert_eq!(read(text, 0), read(text, 40), "{text}");
        }
        for text in ["01", "-", "1.", "-.5", "00.5", "1e", "1.e5", "1.5e", "0000000000000001", "01.5"] {
            assert_eq!((read(text, 0), read(text, 40)), (None, None), "{text}");
        }
    }
}
