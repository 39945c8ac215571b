//! The answer's text as a value: what of it is JSON after the repairs, and the status of the outcome.
//!
//! Thinking before the value ends at the first `</think>`. Where the opening tag is missing it may have stood in the
//! prompt, or the closing one is a word of the answer. No value may be made of the inside of an answer, so the tag ends
//! thinking only if a text that begins like an answer has had a whole value before it, and if the double quotes before
//! it pair up, or what follows is one object or array and nothing else.

use crate::document::{Broken, Document, Kind};
use crate::scan::skip_space;
use crate::steps;

/// How the parse of a content went: where several apply the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Status {
    Ok,
    LeadingText,
    Fenced,
    ControlChars,
    TrailingText,
    Mismatch,
    Truncated,
    Empty,
    Missing,
    Invalid,
}

impl Status {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::LeadingText => "leading_text",
            Self::Fenced => "fenced",
            Self::ControlChars => "control_chars",
            Self::TrailingText => "trailing_text",
            Self::Mismatch => "mismatch",
            Self::Truncated => "truncated",
            Self::Empty => "empty",
            Self::Missing => "missing",
            Self::Invalid => "invalid",
        }
    }

    /// Whether nothing could be read.
    pub(crate) fn is_lost(self) -> bool {
        matches!(self, Self::Invalid | Self::Truncated)
    }
}

/// What a way of looking at a text gave: the value in it, or why there is none; and what had to be repaired so far.
pub(crate) struct Attempt<'a> {
    pub(crate) document: Result<Document<'a>, Broken>,
    pub(crate) status: Status,
}

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
const THINK: &[u8] = b"<think>";
const END_OF_THINK: &[u8] = b"</think>";
const FENCE: &[u8] = b"```";

/// The JSON value of a content.
pub(crate) fn attempt(text: &[u8], strict: bool) -> Attempt<'_> {
    match Document::whole(text) {
        Err(_) if !strict => repaired(text),
        document => Attempt { document, status: Status::Ok },
    }
}

/// Looks for the value behind a byte order mark and thinking, at most one of each.
fn repaired(text: &[u8]) -> Attempt<'_> {
    let (mark, status) =
        if text.starts_with(BYTE_ORDER_MARK) { (BYTE_ORDER_MARK.len(), Status::LeadingText) } else { (0, Status::Ok) };
    let start = skip_space(text, mark);
    let tag = find(text, END_OF_THINK, start);
    let is_opened = text[start..].starts_with(THINK);
    if is_opened && tag.is_none() {
        return broken(Status::LeadingText, true);
    }
    let whole = fenced_or_bare(text, start, status);
    let Some(tag) = tag else { return whole };
    if !is_opened && is_inside(text, start, tag, &whole) {
        return whole;
    }
    let after = fenced_or_bare(text, tag + END_OF_THINK.len(), Status::LeadingText);
    if is_opened || quotes_pair_up(&text[start..tag]) || is_container_alone(&after) { after } else { whole }
}

/// Whether a text that begins like an answer has had no whole value before the tag.
fn is_inside(text: &[u8], start: usize, tag: usize, whole: &Attempt<'_>) -> bool {
    let Ok(document) = &whole.document else {
        let text = &text[start..];
        return matches!(text.first(), Some(b'{' | b'[' | b'"')) || text.starts_with(FENCE);
    };
    tag < document.end()
}

/// Whether the double quotes make pairs; a backslash takes the character behind it along.
fn quotes_pair_up(text: &[u8]) -> bool {
    steps::add(text.len());
    let mut bytes = text.iter();
    let mut is_even = true;
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => is_even = !is_even,
            _ => {}
        }
    }
    is_even
}

fn is_container_alone(attempt: &Attempt<'_>) -> bool {
    attempt.status < Status::TrailingText
        && attempt.document.as_ref().is_ok_and(|document| matches!(document.root().kind(), Kind::Object | Kind::Array))
}

fn fenced_or_bare(text: &[u8], start: usize, status: Status) -> Attempt<'_> {
    let begin = skip_space(text, start);
    if text[begin..].starts_with(FENCE) {
        fenced(trimmed(text), begin, status.max(Status::Fenced))
    } else {
        bare(text, begin, status)
    }
}

/// The value that the text begins with, raw control characters in its strings and text after it allowed.
fn bare(text: &[u8], start: usize, mut status: Status) -> Attempt<'_> {
    let document = Document::prefix(text, start, true);
    if let Ok(document) = &document {
        if document.has_controls {
            status = status.max(Status::ControlChars);
        }
        if skip_space(text, document.end()) < text.len() {
            status = status.max(Status::TrailingText);
        }
    }
    Attempt { document, status }
}

/// The value inside the one fence that the trimmed text is; cut where the fence is still open.
fn fenced(text: &[u8], start: usize, status: Status) -> Attempt<'_> {
    let mut inside = start + FENCE.len();
    let word = &text[inside..];
    if matches!(word, b"j" | b"js" | b"jso") {
        return broken(status, true);
    }
    if word.starts_with(b"json") && !word.get(4).is_some_and(|&byte| is_language(byte)) {
        inside += 4;
    }
    if let Some(before) = text.strip_suffix(FENCE)
        && before.len() >= inside
    {
        let closed = bare(before, inside, status);
        if let Ok(document) = &closed.document {
            return if find(before, FENCE, document.end()).is_none() { closed } else { broken(status, false) };
        }
    }
    let still_open = bare(text, inside, status);
    match &still_open.document {
        Err(_) => still_open,
        // A complete value, and no more of the closing line than its beginning.
        Ok(document) => {
            let rest = trimmed(&text[skip_space(text, document.end())..]);
            broken(status, matches!(rest, b"" | b"`" | b"``"))
        }
    }
}

fn broken<'a>(status: Status, is_cut: bool) -> Attempt<'a> {
    Attempt { document: Err(Broken { is_cut }), status }
}

/// A character that makes another language of `json`.
fn is_language(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'+' | b'.' | b'-')
}

/// Without white space at the end.
fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')).map_or(0, |last| last + 1);
    steps::add(text.len() - end);
    &text[..end]
}

fn find(text: &[u8], what: &[u8], start: usize) -> Option<usize> {
    steps::add(text.len() - start);
    memchr::memmem::find(&text[start..], what).map(|place| start + place)
}
