//! The bytes of a streamed chat or text completion to the object that the call gives without streaming.
//!
//! For streams as servers of language models write them: an event is one line `data: {…}` and a blank one. Whatever is
//! written in another way, or would not read the same if it were written again as it stands, gives `None`: the way that
//! knows all cases (`dspark_json/capture/stream.py`, `assembly.py`) then looks at it.

use memchr::{memchr, memrchr};

use crate::assembly::Text;
use crate::chunk::{Added, Chunks};
use crate::glance::Glance;
use crate::steps;
use crate::strict::Walk;
use crate::values::string;

const DONE: &str = "[DONE]";
const EVENT: &[u8] = b"data: {";
const DONE_LINE: &[u8] = b"data: [DONE]";
/// Patterns that are kept, a choice usually has one.
const MOST_PATTERNS: usize = 16;

/// What a record says of a streamed answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Streamed {
    /// The answer's id.
    pub id: Option<String>,
    /// The model that gave it.
    pub model: Option<String>,
    /// Whether each choice ended by itself, and there is one.
    pub is_completed: bool,
    /// Whether `[DONE]` came.
    pub is_done: bool,
    /// What stands between the outer braces of the assembled object.
    pub members: String,
}

impl Glance {
    /// Assembles the answer that was sent in these parts, cut anywhere; `is_ended`: the last of them was sent.
    #[must_use]
    pub fn stream(&self, parts: &[impl AsRef<[u8]>], is_ended: bool) -> Option<Streamed> {
        let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.as_ref().len()).sum());
        for part in parts {
            bytes.extend_from_slice(part.as_ref());
        }
        if memchr(b'\r', &bytes).is_some() {
            return None;
        }
        let (lines, rest) = bytes.split_at(memrchr(b'\n', &bytes).map_or(0, |place| place + 1));
        let mut stream = Stream::new(self);
        let is_between_events = stream.lines(simdutf8::basic::from_utf8(lines).ok()?)?;
        if !rest.is_empty() {
            if !is_between_events {
                return None;
            }
            stream.rest(rest, is_ended)?;
        }
        let assembly = stream.chunks.assembly;
        if assembly.kind() == Some("error") {
            return None;
        }
        Some(Streamed {
            id: assembly.top.quoted("id").map(str::to_owned),
            model: assembly.top.quoted("model").map(str::to_owned),
            is_completed: assembly.is_completed(),
            is_done: stream.is_done,
            members: assembly.members()?,
        })
    }
}

/// How an event is written that does nothing but add a string to a text, however often it comes.
#[derive(Clone, Copy)]
struct Pattern<'a> {
    /// From the begin of its line to the string's opening quote.
    head: &'a str,
    /// From the string's closing quote to the end of its blank line.
    tail: &'a str,
    text: Text,
}

struct Stream<'a, 'g> {
    chunks: Chunks<'a, 'g>,
    patterns: Vec<Pattern<'a>>,
    /// The pattern of the last event that had one.
    pattern: usize,
    is_done: bool,
}

impl<'a, 'g> Stream<'a, 'g> {
    fn new(glance: &'g Glance) -> Self {
        Self { chunks: Chunks::new(glance), patterns: Vec::new(), pattern: 0, is_done: false }
    }

    /// Takes whole lines; whether the last event is over.
    fn lines(&mut self, text: &'a str) -> Option<bool> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && !self.is_done {
            if let Some(next) = self.again(text, at) {
                at = next;
                continue;
            }
            let end = at + memchr(b'\n', &bytes[at..])?;
            steps::add(end - at);
            match bytes[at] {
                b'\n' | b':' => at = end + 1,
                _ if matches!(bytes.get(end + 1), None | Some(b'\n')) => {
                    if let Some(added) = self.event(&text[..end], at)?
                        && let Some(tail) = text.get(added.end - 1..end + 2)
                    {
                        self.learn(Pattern { head: &text[at..=added.start], tail, text: added.text });
                    }
                    at = end + 2;
                }
                _ => return None,
            }
        }
        Some(at <= bytes.len())
    }

    /// Takes what stands behind the last line.
    fn rest(&mut self, rest: &'a [u8], is_ended: bool) -> Option<()> {
        if self.is_done {
            return Some(());
        }
        if rest == DONE_LINE || rest.trim_ascii_end().ends_with(b"}") {
            return self.event(simdutf8::basic::from_utf8(rest).ok()?, 0).map(drop);
        }
        // Cut off: what ends in another way is no object.
        let is_begun = rest.starts_with(EVENT) || EVENT.starts_with(rest) || DONE_LINE.starts_with(rest);
        (is_begun && !is_ended).then_some(())
    }

    /// The event that is written like one before it, but for its string: where the next one begins.
    fn again(&mut self, text: &'a str, at: usize) -> Option<usize> {
        for step in 0..self.patterns.len().min(2) {
            let place = (self.pattern + step) % self.patterns.len();
            let Pattern { head, tail, text: target } = self.patterns[place];
            if !text.as_bytes()[at..].starts_with(head.as_bytes()) {
                continue;
            }
            let mut walk = Walk::new(text);
            walk.at = at + head.len() - 1;
            if let Some(written) = string(&mut walk)
                && text.as_bytes()[walk.at - 1..].starts_with(tail.as_bytes())
            {
                self.chunks.assembly.texts.add(target, written.text);
                self.pattern = place;
                steps::add(1);
                return Some(walk.at - 1 + tail.len());
            }
        }
        None
    }

    fn learn(&mut self, pattern: Pattern<'a>) {
        self.pattern = match self.patterns.iter().position(|known| known.text == pattern.text) {
            Some(place) => place,
            None if self.patterns.len() < MOST_PATTERNS => self.patterns.len(),
            None => self.pattern,
        };
        if self.pattern == self.patterns.len() {
            self.patterns.push(pattern);
        } else {
            self.patterns[self.pattern] = pattern;
        }
    }

    /// Takes the event whose one line is `line[at..]`; the string that it added, if it did nothing else.
    #[expect(clippy::option_option, reason = "the outer one is for what is out of the ordinary")]
    fn event(&mut self, line: &'a str, at: usize) -> Option<Option<Added>> {
        let data = line[at..].strip_prefix("data:")?;
        let data = data.strip_prefix(' ').unwrap_or(data);
        if data == DONE {
            self.is_done = true;
            return Some(None);
        }
        let mut walk = Walk::new(line);
        walk.at = line.len() - data.len();
        let effects = self.chunks.take(&mut walk)?;
        walk.end()?;
        Some(effects.added.filter(|_| !effects.has_others))
    }
}
