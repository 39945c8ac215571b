//! The scanner: a position in a text, moved over JSON tokens by RFC 8259. It knows nothing of columns.

use std::borrow::Cow;

use crate::blocks::{BLOCK, Block, block_at, specials};
use crate::error::{Scan, Stop};
use crate::steps;

/// The root container has depth 1; this is the deepest that passes.
pub(crate) const MAX_DEPTH: u32 = 128;

/// Room behind what is written that holds whatever one step of `Cursor::decode` writes.
pub(crate) const SLACK: usize = 2 * BLOCK;
/// How much of a buffer's room is made ready at a time, so that it is still at hand when it is written.
const STRIDE: usize = 4096;

/// What stands behind the end of a text that is scanned, so that blocks can be looked at up to its end. The first byte
/// of it has to be one that no token goes on with: a line feed or a zero.
pub(crate) const PADDING: usize = 2 * BLOCK;

/// A place in a text that is valid UTF-8, with `PADDING` bytes behind it.
///
/// What is not inlined takes text and place as values and gives the place that comes next: so both stay in registers.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) at: usize,
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

/// Makes room behind `used` for `more` bytes and what a step of `Cursor::decode` writes; what is written so far stays.
/// Room that nothing is written to is no memory yet.
#[cold]
#[inline(never)]
pub(crate) fn grow(out: &mut Vec<u8>, used: usize, more: usize) {
    let needed = used + more + SLACK;
    if out.capacity() < needed {
        out.reserve(needed + 2 * used - out.len().min(needed));
    }
    out.resize(out.capacity().min(needed + STRIDE), 0);
}

/// A text with its padding.
pub(crate) fn padded(text: &[u8]) -> Vec<u8> {
    [text, &[0; PADDING]].concat()
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    pub(crate) fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at }
    }

    /// Where the text ends and the padding begins.
    #[inline(always)]
    fn end(&self) -> usize {
        self.text.len().saturating_sub(PADDING)
    }

    /// Skips white space; the byte behind it.
    #[inline(always)]
    pub(crate) fn peek(&mut self) -> Scan<u8> {
        match self.text.get(self.at) {
            Some(&byte) if byte > b' ' => Ok(byte),
            _ => {
                self.at = behind_space(self.text, self.at)?;
                Ok(self.text[self.at])
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
        self.at = skip_space(&self.text[..self.end()], self.at);
        if self.at == self.end() { Ok(()) } else { Err(Stop::Syntax) }
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

    /// From behind the opening quote to behind the closing one; whether escapes stand between.
    #[inline(always)]
    pub(crate) fn skip_string(&mut self) -> Scan<bool> {
        if let Some(block) = block_at(self.text, self.at) {
            steps::add(1);
            let place = specials(block).trailing_zeros() as usize;
            if block.get(place) == Some(&b'"') {
                self.at += place + 1;
                return Ok(false);
            }
        }
        let (escaped, at) = behind_string(self.text, self.at)?;
        self.at = at;
        Ok(escaped)
    }

    /// From behind the opening quote to behind the closing one; writes what the string says to `out` behind `used`,
    /// returns how much of `out` is used then. `out` is longer than that: its rest is scratch space.
    #[inline(always)]
    pub(crate) fn decode(&mut self, out: &mut Vec<u8>, used: usize) -> Scan<usize> {
        if let (Some(block), Some(room)) = (block_at(self.text, self.at), out.get_mut(used..used + BLOCK)) {
            steps::add(1);
            room.copy_from_slice(block);
            let place = specials(block).trailing_zeros() as usize;
            if block.get(place) == Some(&b'"') {
                self.at += place + 1;
                return Ok(used + place);
            }
        }
        let (used, at) = decode_any(self.text, self.at, out, used)?;
        self.at = at;
        Ok(used)
    }

    /// The name or text of a string, from behind the opening quote to behind the closing one.
    #[inline(always)]
    pub(crate) fn string(&mut self) -> Scan<Cow<'a, [u8]>> {
        let (text, at) = string(self.text, self.at)?;
        self.at = at;
        Ok(text)
    }

    /// Checks and skips the value that is next, which stands in `depth` containers.
    #[inline(always)]
    pub(crate) fn skip(&mut self, depth: u32) -> Scan<()> {
        self.at = behind_value(self.text, self.at, depth)?;
        Ok(())
    }

    #[inline(always)]
    fn skip_name(&mut self) -> Scan<()> {
        self.expect(b'"')?;
        self.skip_string()?;
        self.expect(b':')
    }

    /// A number or a literal, which begins with `byte`.
    #[inline(always)]
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

/// The place of the first byte that is not white space.
#[inline(never)]
fn behind_space(text: &[u8], mut at: usize) -> Scan<usize> {
    const SPACES: u64 = u64::MAX / 0xff * 0x20;
    let end = text.len().saturating_sub(PADDING);
    while at < end {
        steps::add(1);
        // How many spaces differs from place to place: counted, they cost one guess less than one by one.
        if let Some(bytes) = text.get(at..).and_then(<[u8]>::first_chunk) {
            at += ((u64::from_le_bytes(*bytes) ^ SPACES).trailing_zeros() / 8) as usize;
        }
        match text.get(at) {
            Some(b' ' | b'\t' | b'\r' | b'\n') => at += 1,
            Some(&byte) if byte > b' ' && at < end => return Ok(at),
            _ => return Err(Stop::Syntax),
        }
    }
    Err(Stop::Syntax)
}

/// From behind the opening quote of any string: whether it has escapes, and the place behind the closing quote.
#[inline(never)]
fn behind_string(text: &[u8], mut at: usize) -> Scan<(bool, usize)> {
    let mut escaped = false;
    loop {
        steps::add(1);
        let block = block_at(text, at).ok_or(Stop::Syntax)?;
        let mut found = specials(block);
        let mut next = BLOCK;
        while found != 0 {
            let place = found.trailing_zeros() as usize;
            match (block[place], block.get(place + 1)) {
                (b'"', _) => return Ok((escaped, at + place + 1)),
                (b'\\', Some(&byte)) if ESCAPES[usize::from(byte)] != 0 => found &= !(0b11 << place),
                (b'\\', _) => {
                    at = behind_escape(text, at + place)?;
                    next = 0;
                    found = 0;
                }
                _ => return Err(Stop::Syntax),
            }
            escaped = true;
        }
        at += next;
    }
}

/// The place behind an escape.
fn behind_escape(text: &[u8], at: usize) -> Scan<usize> {
    match text.get(at + 1) {
        Some(b'u') => hex(text, at + 2).map(|_| at + 6),
        Some(&byte) if ESCAPES[usize::from(byte)] != 0 => Ok(at + 2),
        _ => Err(Stop::Syntax),
    }
}

/// `Cursor::decode` for strings of any length, with escapes or not; also where they end.
#[inline(never)]
fn decode_any(text: &[u8], mut at: usize, out: &mut Vec<u8>, mut used: usize) -> Scan<(usize, usize)> {
    'blocks: loop {
        steps::add(1);
        if out.len() < used + SLACK {
            grow(out, used, 0);
        }
        let two: &[u8; 2 * BLOCK] = text.get(at..).and_then(<[u8]>::first_chunk).ok_or(Stop::Syntax)?;
        let block: &Block = two.first_chunk().ok_or(Stop::Defect)?;
        out[used..used + BLOCK].copy_from_slice(block);
        let mut found = specials(block);
        // How much of the block is read; the rest of it stands behind `used`.
        let mut read = 0;
        while found != 0 {
            let place = found.trailing_zeros() as usize;
            used += place - read;
            match (block[place], block.get(place + 1)) {
                (b'"', _) => return Ok((used, at + place + 1)),
                (b'\\', Some(&byte)) if ESCAPES[usize::from(byte)] != 0 => {
                    steps::add(1);
                    out[used] = ESCAPES[usize::from(byte)];
                    used += 1;
                    read = place + 2;
                    out[used..used + BLOCK].copy_from_slice(&two[read..read + BLOCK]);
                    found &= !(0b11 << place);
                }
                (b'\\', _) => {
                    let length;
                    (length, at) = escape(text, at + place, &mut out[used..])?;
                    used += length;
                    continue 'blocks;
                }
                _ => return Err(Stop::Syntax),
            }
        }
        used += BLOCK - read;
        at += BLOCK;
    }
}

/// Writes what an escape means; how many bytes that are, and the place behind the escape.
#[inline(never)]
fn escape(text: &[u8], at: usize, out: &mut [u8]) -> Scan<(usize, usize)> {
    match text.get(at + 1) {
        Some(b'u') => unicode(text, at).map(|(character, at)| (character.encode_utf8(out).len(), at)),
        Some(&byte) if ESCAPES[usize::from(byte)] != 0 => {
            out[0] = ESCAPES[usize::from(byte)];
            Ok((1, at + 2))
        }
        _ => Err(Stop::Syntax),
    }
}

fn hex(text: &[u8], at: usize) -> Scan<u32> {
    let digits = text.get(at..at + 4).ok_or(Stop::Syntax)?;
    digits.iter().try_fold(0, |value, &byte| Ok(value << 4 | char::from(byte).to_digit(16).ok_or(Stop::Syntax)?))
}

/// The character of a `\u` escape, or of two that are a surrogate pair, and the place behind it; U+FFFD for a lone
/// surrogate.
fn unicode(text: &[u8], mut at: usize) -> Scan<(char, usize)> {
    let mut code = hex(text, at + 2)?;
    at += 6;
    if (0xd800..0xdc00).contains(&code) && text[at..].starts_with(b"\\u") {
        let low = hex(text, at + 2)?;
        if (0xdc00..0xe000).contains(&low) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            at += 6;
        }
    }
    Ok((char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), at))
}

/// The name or text of a string, from behind the opening quote, and the place behind the closing one.
#[inline(never)]
fn string(text: &[u8], start: usize) -> Scan<(Cow<'_, [u8]>, usize)> {
    let mut cursor = Cursor::new(text, start);
    if !cursor.skip_string()? {
        return Ok((Cow::Borrowed(&text[start..cursor.at - 1]), cursor.at));
    }
    let mut out = Vec::new();
    let (used, at) = decode_any(text, start, &mut out, 0)?;
    out.truncate(used);
    Ok((Cow::Owned(out), at))
}

/// The place behind the value that is next.
#[inline(never)]
fn behind_value(text: &[u8], at: usize, base: u32) -> Scan<usize> {
    let mut cursor = Cursor::new(text, at);
    let mut depth = base;
    // A bit a container, the innermost one lowest: set for objects.
    let mut objects = 0u128;
    loop {
        match cursor.peek()? {
            b'"' => {
                cursor.at += 1;
                cursor.skip_string()?;
            }
            byte @ (b'{' | b'[') => {
                depth = deeper(depth)?;
                cursor.at += 1;
                let is_object = byte == b'{';
                objects = objects << 1 | u128::from(is_object);
                if cursor.peek()? != if is_object { b'}' } else { b']' } {
                    if is_object {
                        cursor.skip_name()?;
                    }
                    continue;
                }
                cursor.at += 1;
                depth -= 1;
                objects >>= 1;
            }
            byte => cursor.skip_plain(byte)?,
        }
        while depth > base {
            let byte = cursor.peek()?;
            let is_object = objects & 1 == 1;
            if byte == b',' {
                cursor.at += 1;
                if is_object {
                    cursor.skip_name()?;
                }
                break;
            }
            if byte != if is_object { b'}' } else { b']' } {
                return Err(Stop::Syntax);
            }
            cursor.at += 1;
            depth -= 1;
            objects >>= 1;
        }
        if depth == base {
            return Ok(cursor.at);
        }
    }
}

/// The depth inside a container.
#[inline(always)]
pub(crate) fn deeper(depth: u32) -> Scan<u32> {
    if depth < MAX_DEPTH { Ok(depth + 1) } else { Err(Stop::Syntax) }
}

/// The first position from `at` on that is not JSON's white space.
pub(crate) fn skip_space(text: &[u8], at: usize) -> usize {
    let space = text[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).count();
    steps::add(space + 1);
    at + space
}
