//! A JSON text, gone through once and by the letter, for those who look for a few things in it.

use crate::blocks::{BLOCK, block_at, specials};
use crate::steps;

/// Deeper values are for others; a record that holds a setting this deep is still readable.
const DEEPEST: usize = 96;
/// Digits and sign of a number that every reader takes as it is written.
const LONGEST_NUMBER: usize = 17;

/// A member's value: none is the JSON null.
pub(crate) type OrNull<T> = Option<T>;

/// A member that must not come twice.
pub(crate) struct Once<T> {
    pub(crate) value: Option<T>,
}

impl<T> Once<T> {
    pub(crate) fn new() -> Self {
        Self { value: None }
    }

    pub(crate) fn set(&mut self, value: T) -> Option<()> {
        self.value.replace(value).is_none().then_some(())
    }
}

/// What stands between a string's quotes, as it is written.
#[derive(Clone, Copy)]
pub(crate) struct Written<'a> {
    pub(crate) text: &'a str,
    pub(crate) has_escapes: bool,
}

impl<'a> Written<'a> {
    /// The string's value, where nothing is escaped.
    pub(crate) fn plain(self) -> Option<&'a str> {
        (!self.has_escapes).then_some(self.text)
    }
}

/// A place in a JSON text of valid UTF-8; every step gives `None` where the text is not JSON by RFC 8259.
pub(crate) struct Walk<'a> {
    text: &'a str,
    bytes: &'a [u8],
    pub(crate) at: usize,
    /// Whether there was a number that others may not write again as it stands.
    pub(crate) has_odd_number: bool,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, bytes: text.as_bytes(), at: 0, has_odd_number: false }
    }

    pub(crate) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    pub(crate) fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.at]
    }

    pub(crate) fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    pub(crate) fn byte(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    pub(crate) fn end(&mut self) -> Option<()> {
        self.blanks();
        (self.at == self.bytes.len()).then_some(())
    }

    pub(crate) fn literal(&mut self, wanted: &str) -> Option<()> {
        self.bytes[self.at..].starts_with(wanted.as_bytes()).then(|| self.at += wanted.len())
    }

    pub(crate) fn text_or_null(&mut self) -> Option<OrNull<&'a str>> {
        match self.peek()? {
            b'"' => Some(Some(self.string()?.plain()?)),
            _ => self.literal("null").map(|()| None),
        }
    }

    pub(crate) fn flag_or_null(&mut self) -> Option<OrNull<bool>> {
        match self.peek()? {
            b't' => self.literal("true").map(|()| Some(true)),
            b'f' => self.literal("false").map(|()| Some(false)),
            _ => self.literal("null").map(|()| None),
        }
    }

    pub(crate) fn object(
        &mut self,
        depth: usize,
        mut member: impl FnMut(&mut Self, Written<'a>) -> Option<()>,
    ) -> Option<()> {
        self.byte(b'{')?;
        self.members(depth, b'}', |walk| {
            let key = walk.string()?;
            walk.blanks();
            walk.byte(b':')?;
            walk.blanks();
            member(walk, key)
        })
    }

    pub(crate) fn array(&mut self, depth: usize, item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.byte(b'[')?;
        self.members(depth, b']', item)
    }

    pub(crate) fn members(
        &mut self,
        depth: usize,
        close: u8,
        mut member: impl FnMut(&mut Self) -> Option<()>,
    ) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        self.blanks();
        if self.byte(close).is_some() {
            return Some(());
        }
        loop {
            member(self)?;
            self.blanks();
            if self.byte(close).is_some() {
                return Some(());
            }
            self.byte(b',')?;
            self.blanks();
        }
    }

    /// Any value; `depth` containers are around it.
    pub(crate) fn value(&mut self, depth: usize) -> Option<&'a str> {
        let start = self.at;
        match self.peek()? {
            b'"' => self.string().map(|_| ())?,
            b'{' => self.object(depth, |walk, _| walk.value(depth + 1).map(|_| ()))?,
            b'[' => self.array(depth, |walk| walk.value(depth + 1).map(|_| ()))?,
            b't' => self.literal("true")?,
            b'f' => self.literal("false")?,
            b'n' => self.literal("null")?,
            _ => self.number()?,
        }
        Some(self.since(start))
    }

    /// Any value, or only null.
    pub(crate) fn value_but(&mut self, depth: usize, is_only_null: bool) -> Option<()> {
        if is_only_null { self.literal("null") } else { self.value(depth).map(|_| ()) }
    }

    pub(crate) fn string(&mut self) -> Option<Written<'a>> {
        self.byte(b'"')?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.at = self.special()? + 1;
            match self.bytes[self.at - 1] {
                b'"' => return Some(Written { text: &self.text[start..self.at - 1], has_escapes }),
                b'\\' => has_escapes = true,
                _ => return None,
            }
            let skipped = match self.peek()? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 1,
                b'u' => self.bytes.get(self.at + 1..self.at + 5)?.iter().all(u8::is_ascii_hexdigit).then_some(5)?,
                _ => return None,
            };
            self.at += skipped;
        }
    }

    /// The place of what ends a run of plain characters in a string.
    #[inline(always)]
    fn special(&self) -> Option<usize> {
        let mut at = self.at;
        while let Some(block) = block_at(self.bytes, at) {
            steps::add(1);
            let found = specials(block);
            if found != 0 {
                return Some(at + found.trailing_zeros() as usize);
            }
            at += BLOCK;
        }
        steps::add(1);
        let found = self.bytes[at..].iter().position(|&byte| byte < b' ' || byte == b'"' || byte == b'\\')?;
        Some(at + found)
    }

    pub(crate) fn number(&mut self) -> Option<()> {
        let start = self.at;
        let _ = self.byte(b'-');
        if self.byte(b'0').is_none() {
            self.digits()?;
        }
        if self.byte(b'.').is_some() {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
            self.has_odd_number = true;
        }
        self.has_odd_number |= self.at - start > LONGEST_NUMBER;
        Some(())
    }

    pub(crate) fn digits(&mut self) -> Option<()> {
        let count = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        (count > 0).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of these lengths end before, at and behind the ends of blocks.
    const LENGTHS: std::ops::Range<usize> = 0..3 * BLOCK;

    #[test]
    fn a_string_ends_at_its_closing_quote_wherever_that_is() {
        for length in LENGTHS {
            let plain = "\u{7f}é".chars().cycle().take(length).collect::<String>();
            for behind in ["", ",", &"x".repeat(BLOCK)] {
                let text = format!("\"{plain}\"{behind}");
                let mut walk = Walk::new(&text);
                assert_eq!(walk.string().unwrap().plain(), Some(plain.as_str()));
                assert_eq!(walk.at, plain.len() + 2);
            }
        }
    }

    #[test]
    fn escapes_are_seen_wherever_they_are() {
        for length in LENGTHS {
            for escape in [r#"\""#, r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t", r"\u00eF"] {
                let written = format!("{}{escape}{}", "x".repeat(length), "y".repeat(length % 7));
                let text = format!("\"{written}\"]");
                let mut walk = Walk::new(&text);
                let found = walk.string().unwrap();
                assert_eq!((found.text, found.has_escapes, walk.at), (written.as_str(), true, written.len() + 2));
            }
        }
    }

    #[test]
    fn what_is_no_string_is_refused_wherever_it_goes_wrong() {
        for length in LENGTHS {
            for wrong in ["", "\n\"", "\0\"", "\u{1f}\"", r"\", r#"\""#, r#"\x""#, r#"\u00g0""#, r"\u00", r#"\u""#] {
                let text = format!("\"{}{wrong}", "x".repeat(length));
                assert!(Walk::new(&text).string().is_none(), "{text:?}");
            }
        }
    }

    #[test]
    fn a_string_is_looked_at_once_and_by_blocks() {
        let plain = format!("\"{}\"", "x".repeat(100 * BLOCK));
        assert!(steps::of(|| assert!(Walk::new(&plain).string().is_some())) <= 102);
        let escapes = format!("\"{}\"", r"\n".repeat(1000));
        assert!(steps::of(|| assert!(Walk::new(&escapes).string().is_some())) <= 1001);
    }
}
