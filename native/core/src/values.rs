//! Values of an answer that may be written again as they stand: whoever reads them reads the same.

use memchr::memchr;

use crate::strict::{Walk, Written};

/// More members of one object are for others: each is compared with those before it.
const MOST_MEMBERS: usize = 64;
/// Digits of an integer that fits 64 bits whatever they are.
const LONGEST_INTEGER: usize = 18;
const LONGEST_NUMBER: usize = 32;
/// Digits of an exponent that leaves a number this long within a double.
const LONGEST_EXPONENT: usize = 2;

/// The keys of the objects around a place, those of the outermost first.
#[derive(Default)]
pub(crate) struct Keys<'a>(Vec<&'a str>);

/// An object of no key twice, none of them written in two ways.
pub(crate) fn object<'a>(
    walk: &mut Walk<'a>,
    keys: &mut Keys<'a>,
    depth: usize,
    mut member: impl FnMut(&mut Walk<'a>, &mut Keys<'a>, Written<'a>) -> Option<()>,
) -> Option<()> {
    let outer = keys.0.len();
    walk.object(depth, |walk, key| {
        let known = &keys.0[outer..];
        if known.len() == MOST_MEMBERS || known.contains(&key.text) || (key.has_escapes && !is_written_shortly(key)) {
            return None;
        }
        keys.0.push(key.text);
        member(walk, keys, key)
    })?;
    keys.0.truncate(outer);
    Some(())
}

/// Any value; `depth` containers are around it.
pub(crate) fn value<'a>(walk: &mut Walk<'a>, keys: &mut Keys<'a>, depth: usize) -> Option<&'a str> {
    let start = walk.at;
    match walk.peek()? {
        b'"' => string(walk).map(drop)?,
        b'{' => object(walk, keys, depth, |walk, keys, _| value(walk, keys, depth + 1).map(drop))?,
        b'[' => walk.array(depth, |walk| value(walk, keys, depth + 1).map(drop))?,
        b'-' | b'0'..=b'9' => number(walk)?,
        _ => walk.value(depth).map(drop)?,
    }
    Some(walk.since(start))
}

/// A string without a half of a surrogate pair: what it says may stand behind another string.
pub(crate) fn string<'a>(walk: &mut Walk<'a>) -> Option<Written<'a>> {
    let written = walk.string()?;
    (!written.has_escapes || has_whole_pairs(written.text.as_bytes())?).then_some(written)
}

/// A small number that is not negative.
pub(crate) fn index(walk: &mut Walk) -> Option<u32> {
    let start = walk.at;
    walk.number()?;
    walk.since(start).parse().ok()
}

fn number(walk: &mut Walk) -> Option<()> {
    let start = walk.at;
    walk.number()?;
    let text = walk.since(start);
    let is_kept = match text.split_once(['e', 'E']) {
        Some((_, exponent)) => exponent.trim_start_matches(['+', '-']).len() <= LONGEST_EXPONENT,
        None => text.contains('.') || text.trim_start_matches('-').len() <= LONGEST_INTEGER,
    };
    (is_kept && text.len() <= LONGEST_NUMBER).then_some(())
}

/// Whether each character of a key that has to be escaped is, and in the one way that there is.
fn is_written_shortly(key: Written) -> bool {
    let mut rest = key.text.as_bytes();
    while let Some(place) = memchr(b'\\', rest) {
        if matches!(rest.get(place + 1), None | Some(b'u' | b'/')) {
            return false;
        }
        rest = &rest[place + 2..];
    }
    true
}

/// For what stands between the quotes of a string.
fn has_whole_pairs(mut rest: &[u8]) -> Option<bool> {
    while let Some(place) = memchr(b'\\', rest) {
        rest = &rest[place + 1..];
        let (length, is_whole) = match unit(rest) {
            Some(0xd800..0xdc00) => {
                let low = rest.get(5..).and_then(|behind| behind.strip_prefix(b"\\")).and_then(unit);
                (11, matches!(low, Some(0xdc00..0xe000)))
            }
            Some(0xdc00..0xe000) => return Some(false),
            Some(_) => (5, true),
            None => (1, true),
        };
        if !is_whole {
            return Some(false);
        }
        rest = rest.get(length..)?;
    }
    Some(true)
}

/// The UTF-16 unit of an escape, from behind its backslash; none for an escape of another kind.
fn unit(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"u")?.get(..4)?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_taken(text: &str) -> bool {
        let mut walk = Walk::new(text);
        value(&mut walk, &mut Keys::default(), 0) == Some(text)
    }

    #[test]
    fn what_every_reader_reads_alike_is_taken_as_it_is_written() {
        for text in [
            r#"{"a":[1,-2.50,true,false,null,{"b":{},"a":"\u00e9\""}],"b":[]}"#,
            "-999999999999999999",
            "123456789012345678",
            "-1.1920928955078125e-07",
            "1E+5",
            r#""\ud83d\ude00\\ud800""#,
            r#"{"\n":1,"\\":2,"n":3,"\"":4}"#,
            r#"[{"a":1},{"a":2}]"#,
        ] {
            assert!(is_taken(text), "{text}");
        }
    }

    #[test]
    fn what_readers_read_differently_is_refused() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"[{"x":{"a":1,"b":2,"a":1}}]"#,
            r#"{"\u0061":1}"#,
            r#"{"\/":1}"#,
            "1234567890123456789",
            "-123456789012345678901234567890",
            "0.1234567890123456789012345678901",
            "1e100",
            "1e-100",
            r#""\ud83d""#,
            r#""\ude00""#,
            r#""\ud83d \ude00""#,
            r#""\ud83d\ud83d""#,
            r#""\ud83d\\ude00""#,
            r#""\uD83D\n""#,
            "nul",
            "+1",
            "01",
            "1.",
            "'a'",
            "NaN",
        ] {
            assert!(!is_taken(text), "{text}");
        }
        let many =
            |count: usize| format!("{{{}}}", (0..count).map(|n| format!("\"{n}\":{n}")).collect::<Vec<_>>().join(","));
        assert!(is_taken(&many(MOST_MEMBERS)));
        assert!(!is_taken(&many(MOST_MEMBERS + 1)));
        assert!(!is_taken(&format!("{}{}", "[".repeat(200), "]".repeat(200))));
    }

    #[test]
    fn an_index_is_a_small_number() {
        let found = |text| index(&mut Walk::new(text));
        assert_eq!((found("0"), found("41,"), found("4294967296")), (Some(0), Some(41), None));
        assert_eq!((found("-1"), found("1.0"), found("null"), found("true")), (None, None, None, None));
    }
}
