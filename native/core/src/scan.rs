//! The scanner: a position in a text, moved over JSON tokens by RFC 8259. It knows nothing of columns.

use std::borrow::Cow;

use crate::error::{Scan, Stop};
use crate::steps;

/// The root container has depth 1; this is the deepest that passes.
pub(crate) const MAX_DEPTH: u32 = 128;

/// Bytes looked at together.
const WIDTH: usize = 16;
/// Room behind what is written that holds whatever one step of `Cursor::decode` writes.
const SLACK: usize = 2 * WIDTH;

/// A place in a text that is valid UTF-8.
pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) at: usize,
    pub(crate) depth: u32,
}

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
/// Below this an integer is a double exactly, and so are the powers of ten in the table: their quotient is the nearest
/// double of the number (Clinger's fast path).
const EXACT_INTEGERS: u64 = 1 << 53;
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

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

    /// The nearest double where one division makes it.
    #[inline(always)]
    #[expect(clippy::cast_precision_loss, reason = "below 2^53 nothing is lost")]
    pub(crate) fn short_double(&self) -> Option<f64> {
        if self.digits > SAFE_DIGITS || self.mantissa >= EXACT_INTEGERS {
            return None;
        }
        let size = self.mantissa as f64 / POWERS.get(self.fraction?)?;
        Some(if self.negative { -size } else { size })
    }
}

/// What stands behind a backslash, as the byte it means; 0: none of these.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table[b'/' as usize] = b'/';
    table[b'b' as usize] = 0x08;
    table[b'f' as usize] = 0x0c;
    table[b'n' as usize] = b'\n';
    table[b'r' as usize] = b'\r';
    table[b't' as usize] = b'\t';
    table
};

/// Bit `i` is set where byte `i` ends a run of plain characters: a quote, a backslash or a control character. Only the
/// lowest bit that is set can be relied on.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn specials(bytes: [u8; WIDTH]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };
    let value = u128::from_le_bytes(bytes);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are meant")]
    let (high, low) = ((value >> 64) as i64, value as i64);
    // SAFETY: these need SSE2, which every x86-64 processor has, and touch no memory.
    #[expect(unsafe_code, reason = "the compiler asks for it where the function does not name SSE2 itself")]
    unsafe {
        let value = _mm_set_epi64x(high, low);
        let quote = _mm_cmpeq_epi8(value, _mm_set1_epi8(b'"'.cast_signed()));
        let backslash = _mm_cmpeq_epi8(value, _mm_set1_epi8(b'\\'.cast_signed()));
        let control = _mm_cmpeq_epi8(_mm_min_epu8(value, _mm_set1_epi8(0x1f)), value);
        _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), control)).cast_unsigned()
    }
}

#[cfg(not(target_arch = "x86_64"))]
use specials_anywhere as specials;

/// The same without vector instructions.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn specials_anywhere(bytes: [u8; WIDTH]) -> u32 {
    const ONES: u128 = u128::MAX / 0xff;
    const HIGH: u128 = ONES << 7;
    let value = u128::from_le_bytes(bytes);
    // Marks the bytes that are zero (and perhaps some above the lowest such one).
    let zero = |v: u128| v.wrapping_sub(ONES) & !v;
    let control = value.wrapping_sub(ONES * 0x20) & !value;
    let quote_or_backslash = zero(value ^ (ONES * u128::from(b'"'))) | zero(value ^ (ONES * u128::from(b'\\')));
    let found = (quote_or_backslash | control) & HIGH;
    if found == 0 { 0 } else { 1 << (found.trailing_zeros() / 8) }
}

/// Makes room behind `used`; what is written so far stays. Doubling keeps the work linear.
#[cold]
#[inline(never)]
fn grow(out: &mut Vec<u8>, used: usize) {
    let size = used + used / 2 + 16 * WIDTH;
    out.resize(size.max(used + SLACK), 0);
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at, depth: 0 }
    }

    /// Skips white space; the byte behind it.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Scan<u8> {
        loop {
            match self.text.get(self.at) {
                Some(&byte) if byte > b' ' => return Ok(byte),
                Some(b' ' | b'\t' | b'\r' | b'\n') => {
                    steps::add(1);
                    self.at += 1;
                }
                _ => return Err(Stop::Syntax),
            }
        }
    }

    /// Skips white space and the byte that has to stand behind it.
    #[inline(always)]
    pub(crate) fn expect(&mut self, byte: u8) -> Scan<()> {
        if self.peek()? != byte {
            return Err(Stop::Syntax);
        }
        self.at += 1;
        Ok(())
    }

    /// White space up to the end of the text.
    pub(crate) fn expect_end(&mut self) -> Scan<()> {
        self.at = skip_space(self.text, self.at);
        if self.at < self.text.len() { Err(Stop::Syntax) } else { Ok(()) }
    }

    /// Goes into a container, whose bracket is the next byte.
    #[inline(always)]
    pub(crate) fn enter(&mut self) -> Scan<()> {
        if self.depth == MAX_DEPTH {
            return Err(Stop::Syntax);
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    /// Leaves a container, whose closing bracket is the next byte.
    #[inline(always)]
    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    #[inline(always)]
    pub(crate) fn literal(&mut self, word: &[u8]) -> Scan<()> {
        steps::add(1);
        if !self.text[self.at..].starts_with(word) {
            return Err(Stop::Syntax);
        }
        self.at += word.len();
        Ok(())
    }

    /// From behind the opening quote to the next byte that is no plain character; that byte.
    #[inline(always)]
    fn next_special(&mut self) -> Scan<u8> {
        let mut at = self.at;
        while let Some(bytes) = self.text[at..].first_chunk() {
            steps::add(1);
            let found = specials(*bytes);
            if found != 0 {
                self.at = at + found.trailing_zeros() as usize;
                return Ok(self.text[self.at]);
            }
            at += WIDTH;
        }
        while let Some(&byte) = self.text.get(at) {
            steps::add(1);
            if byte == b'"' || byte == b'\\' || byte < b' ' {
                self.at = at;
                return Ok(byte);
            }
            at += 1;
        }
        Err(Stop::Syntax)
    }

    /// From behind the opening quote to behind the closing one; whether escapes stand between.
    #[inline]
    pub(crate) fn skip_string(&mut self) -> Scan<bool> {
        let mut escaped = false;
        loop {
            match self.next_special()? {
                b'"' => {
                    self.at += 1;
                    return Ok(escaped);
                }
                b'\\' => {
                    escaped = true;
                    match self.text.get(self.at + 1) {
                        Some(b'u') => {
                            self.hex(self.at + 2)?;
                            self.at += 6;
                        }
                        Some(&byte) if ESCAPES[usize::from(byte)] != 0 => self.at += 2,
                        _ => return Err(Stop::Syntax),
                    }
                }
                _ => return Err(Stop::Syntax),
            }
        }
    }

    /// From behind the opening quote to behind the closing one; writes what the string says to `out` behind `used`,
    /// returns how much of `out` is used then. `out` is longer than that: its rest is scratch space.
    #[inline]
    pub(crate) fn decode(&mut self, out: &mut Vec<u8>, mut used: usize) -> Scan<usize> {
        let text = self.text;
        let mut at = self.at;
        loop {
            steps::add(1);
            if out.len() < used + SLACK {
                grow(out, used);
            }
            if let Some(bytes) = text[at..].first_chunk::<WIDTH>() {
                out[used..used + WIDTH].copy_from_slice(bytes);
                let found = specials(*bytes);
                if found == 0 {
                    at += WIDTH;
                    used += WIDTH;
                    continue;
                }
                let plain = found.trailing_zeros() as usize;
                at += plain;
                used += plain;
            }
            match text.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(used);
                }
                Some(b'\\') => match text.get(at + 1) {
                    Some(b'u') => {
                        self.at = at;
                        let character = self.unicode()?;
                        at = self.at;
                        used += character.encode_utf8(&mut out[used..used + 4]).len();
                    }
                    Some(&byte) if ESCAPES[usize::from(byte)] != 0 => {
                        out[used] = ESCAPES[usize::from(byte)];
                        used += 1;
                        at += 2;
                    }
                    _ => return Err(Stop::Syntax),
                },
                Some(&byte) if byte >= b' ' => {
                    out[used] = byte;
                    used += 1;
                    at += 1;
                }
                _ => return Err(Stop::Syntax),
            }
        }
    }

    /// The name or text of a string, from behind the opening quote to behind the closing one.
    pub(crate) fn string(&mut self) -> Scan<Cow<'a, [u8]>> {
        let start = self.at;
        if !self.skip_string()? {
            return Ok(Cow::Borrowed(&self.text[start..self.at - 1]));
        }
        self.at = start;
        let mut out = Vec::new();
        let used = self.decode(&mut out, 0)?;
        out.truncate(used);
        Ok(Cow::Owned(out))
    }

    fn hex(&self, at: usize) -> Scan<u32> {
        let digits = self.text.get(at..at + 4).ok_or(Stop::Syntax)?;
        digits.iter().try_fold(0, |value, &byte| Ok(value << 4 | char::from(byte).to_digit(16).ok_or(Stop::Syntax)?))
    }

    /// The character of a `\u` escape, or of two that are a surrogate pair; U+FFFD for a lone surrogate.
    fn unicode(&mut self) -> Scan<char> {
        let mut code = self.hex(self.at + 2)?;
        self.at += 6;
        if (0xd800..0xdc00).contains(&code) && self.text[self.at..].starts_with(b"\\u") {
            let low = self.hex(self.at + 2)?;
            if (0xdc00..0xe000).contains(&low) {
                code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                self.at += 6;
            }
        }
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    /// The next byte is a minus or a digit. What is glued to the number is the caller's to see: it is no token that
    /// may stand there.
    #[inline]
    pub(crate) fn number(&mut self) -> Scan<Number<'a>> {
        let text = self.text;
        let start = self.at;
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
        self.at = at;
        Ok(Number { text: &text[start..at], negative, is_whole, digits, mantissa, fraction })
    }

    /// Checks and skips the value that is next.
    pub(crate) fn skip(&mut self) -> Scan<()> {
        let base = self.depth;
        // A bit a container, the innermost one lowest: set for objects.
        let mut objects = 0u128;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    self.skip_string()?;
                }
                b'{' => {
                    self.enter()?;
                    objects = objects << 1 | 1;
                    if self.peek()? != b'}' {
                        self.skip_name()?;
                        continue;
                    }
                    self.leave();
                    objects >>= 1;
                }
                b'[' => {
                    self.enter()?;
                    objects <<= 1;
                    if self.peek()? != b']' {
                        continue;
                    }
                    self.leave();
                    objects >>= 1;
                }
                byte => self.skip_plain(byte)?,
            }
            while self.depth > base {
                let byte = self.peek()?;
                let is_object = objects & 1 == 1;
                if byte == b',' {
                    self.at += 1;
                    if is_object {
                        self.skip_name()?;
                    }
                    break;
                }
                if byte != if is_object { b'}' } else { b']' } {
                    return Err(Stop::Syntax);
                }
                self.leave();
                objects >>= 1;
            }
            if self.depth == base {
                return Ok(());
            }
        }
    }

    #[inline]
    fn skip_name(&mut self) -> Scan<()> {
        self.expect(b'"')?;
        self.skip_string()?;
        self.expect(b':')
    }

    /// A number or a literal, which begins with `byte`.
    #[inline]
    fn skip_plain(&mut self, byte: u8) -> Scan<()> {
        match byte {
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            b'-' | b'0'..=b'9' => self.number().map(drop),
            _ => Err(Stop::Syntax),
        }
    }
}

/// The first position from `at` on that is not JSON's white space.
pub(crate) fn skip_space(text: &[u8], at: usize) -> usize {
    let space = text[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    steps::add(space + 1);
    at + space
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_special_bytes() {
        let mut state = 1u64;
        for round in 0..200_000 {
            let bytes: [u8; WIDTH] = std::array::from_fn(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let byte = state.to_be_bytes()[0];
                // Mostly plain characters near the special ones.
                if round % 3 == 0 {
                    byte
                } else {
                    [b'!', b' ', b'#', b'[', b']', 0x80, 0xff, byte][usize::from(byte % 8)]
                }
            });
            let first = bytes.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ');
            for found in [specials(bytes), specials_anywhere(bytes)] {
                assert_eq!((found != 0).then(|| found.trailing_zeros() as usize), first, "{bytes:?}");
            }
        }
    }
}
