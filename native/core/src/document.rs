//! A careful parser that notes where each value stands: for what the one-pass walk leaves open.
//!
//! It can say whether a broken text is a proper prefix of valid JSON, takes raw control characters inside strings where
//! they are allowed, and gives the members of an object that count among duplicates.

use std::borrow::Cow;

use crate::rescue::escape_control;
use crate::scan::{Cursor, MAX_DEPTH, padded, skip_space};
use crate::steps;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

impl Kind {
    /// That of the value that begins with a byte.
    fn of(byte: u8) -> Self {
        match byte {
            b'{' => Self::Object,
            b'[' => Self::Array,
            b'"' => Self::String,
            b't' => Self::True,
            b'f' => Self::False,
            b'n' => Self::Null,
            _ => Self::Number,
        }
    }
}

/// The text is not JSON; `is_cut`: it just ends too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) is_cut: bool,
}

const CUT: Broken = Broken { is_cut: true };
const BROKEN: Broken = Broken { is_cut: false };

/// As small as it can be: there may be one for every second byte of a text.
struct Node {
    start: u32,
    end: u32,
    /// The node behind this one and all that it holds.
    next: u32,
}

/// One JSON value of a text and everything inside it, in the order of the text.
pub(crate) struct Document<'a> {
    text: &'a [u8],
    nodes: Vec<Node>,
    pub(crate) has_controls: bool,
}

/// A value of a document.
#[derive(Clone, Copy)]
pub(crate) struct Value<'d> {
    document: &'d Document<'d>,
    node: usize,
}

/// Names and values of an object's members, in the order of the text.
pub(crate) type Members<'d> = Vec<(Cow<'d, [u8]>, Value<'d>)>;

impl<'a> Document<'a> {
    /// The one JSON value that the whole text is, white space around it allowed.
    pub(crate) fn whole(text: &'a [u8]) -> Result<Self, Broken> {
        let document = Self::prefix(text, 0, false)?;
        if skip_space(text, document.end()) < text.len() { Err(BROKEN) } else { Ok(document) }
    }

    /// The JSON value that the text begins with at `start`, whatever follows.
    pub(crate) fn prefix(text: &'a [u8], start: usize, allow_controls: bool) -> Result<Self, Broken> {
        let document = Self { text, nodes: Vec::new(), has_controls: false };
        Parser { document, allow_controls, open: Vec::new() }.run(start)
    }

    pub(crate) fn text(&self) -> &'a [u8] {
        self.text
    }

    pub(crate) fn root(&self) -> Value<'_> {
        Value { document: self, node: 0 }
    }

    /// Where the value ends.
    pub(crate) fn end(&self) -> usize {
        self.nodes[0].end as usize
    }
}

impl<'d> Value<'d> {
    fn noted(self) -> &'d Node {
        steps::add(1);
        &self.document.nodes[self.node]
    }

    pub(crate) fn kind(self) -> Kind {
        Kind::of(self.document.text[self.start()])
    }

    pub(crate) fn start(self) -> usize {
        self.noted().start as usize
    }

    pub(crate) fn end(self) -> usize {
        self.noted().end as usize
    }

    fn token(self) -> &'d [u8] {
        &self.document.text[self.start()..self.end()]
    }

    /// The values inside a container: names and values in turn in an object.
    fn inside(self) -> impl Iterator<Item = Value<'d>> {
        let stop = self.noted().next as usize;
        let mut node = self.node + 1;
        std::iter::from_fn(move || {
            let value = Value { document: self.document, node };
            (node < stop).then(|| {
                node = value.noted().next as usize;
                value
            })
        })
    }

    /// The values of an array, in order.
    pub(crate) fn items(self) -> impl Iterator<Item = Value<'d>> {
        self.inside()
    }

    /// The members of an object as they stand, duplicates included.
    fn occurrences(self) -> impl Iterator<Item = (Cow<'d, [u8]>, Value<'d>)> {
        let mut inside = self.inside();
        std::iter::from_fn(move || Some((inside.next()?.string(), inside.next()?)))
    }

    /// The first member of this name.
    pub(crate) fn first(self, wanted: &[u8]) -> Option<Value<'d>> {
        self.occurrences().find(|(name, _)| &**name == wanted).map(|(_, value)| value)
    }

    /// The member of this name that counts, among duplicates the last one.
    pub(crate) fn last(self, wanted: &[u8]) -> Option<Value<'d>> {
        self.occurrences().filter(|(name, _)| &**name == wanted).last().map(|(_, value)| value)
    }

    /// The members of an object that count: of duplicate names the last one, of those in `first_wins` the first one.
    pub(crate) fn members(self, first_wins: &[&[u8]]) -> Members<'d> {
        let mut found: Members<'d> = self.occurrences().collect();
        // Sorted by name: less memory than a map, where a record has nothing but members.
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_unstable_by(|&one, &other| {
            steps::add(1);
            found[one].0.cmp(&found[other].0).then(one.cmp(&other))
        });
        let mut counts = vec![false; found.len()];
        for same in order.chunk_by(|&one, &other| found[one].0 == found[other].0) {
            steps::add(found[same[0]].0.len());
            let does_first = first_wins.contains(&&*found[same[0]].0);
            counts[if does_first { same[0] } else { same[same.len() - 1] }] = true;
        }
        let mut counts = counts.into_iter();
        found.retain(|_| counts.next().unwrap_or_default());
        found
    }

    /// What a string says.
    pub(crate) fn string(self) -> Cow<'d, [u8]> {
        steps::add(self.token().len());
        said_by(self.token())
    }

    /// The value's JSON text as written; raw control characters inside its strings escaped, in the shortest form.
    pub(crate) fn raw(self) -> Cow<'d, [u8]> {
        let token = self.token();
        if self.document.has_controls { Cow::Owned(escaped_controls(token)) } else { Cow::Borrowed(token) }
    }

    /// What a STRING column has of a value: a string as such, another value as its JSON text.
    pub(crate) fn as_text(self) -> Cow<'d, [u8]> {
        if self.kind() == Kind::String { self.string() } else { self.raw() }
    }
}

/// What a STRING column has of a value without raw control characters: a string as such, another value as written.
pub(crate) fn text_of(token: &[u8]) -> Cow<'_, [u8]> {
    if token.first() == Some(&b'"') { said_by(token) } else { Cow::Borrowed(token) }
}

/// What a string token says, raw control characters allowed.
fn said_by(token: &[u8]) -> Cow<'_, [u8]> {
    let inside = &token[1..token.len() - 1];
    if memchr::memchr(b'\\', inside).is_none() {
        return Cow::Borrowed(inside);
    }
    let text = if inside.iter().any(|&byte| byte < b' ') { padded(&escaped_controls(token)) } else { padded(token) };
    let mut out = Vec::new();
    let used = Cursor::new(&text, 1).decode(&mut out, 0).unwrap_or_default();
    out.truncate(used);
    Cow::Owned(out)
}

/// The token with the raw control characters inside its strings escaped.
fn escaped_controls(token: &[u8]) -> Vec<u8> {
    steps::add(token.len());
    let mut out = Vec::with_capacity(token.len() + 16);
    let mut in_string = false;
    let mut bytes = token.iter().copied();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' => {
                out.push(byte);
                out.extend(bytes.next());
                continue;
            }
            0..b' ' if in_string => {
                escape_control(byte, &mut out);
                continue;
            }
            _ => {}
        }
        out.push(byte);
    }
    out
}

struct Parser<'a> {
    document: Document<'a>,
    allow_controls: bool,
    /// The containers not closed yet.
    open: Vec<usize>,
}

impl<'a> Parser<'a> {
    fn run(mut self, start: usize) -> Result<Document<'a>, Broken> {
        // Spans are kept in 32 bits.
        if u32::try_from(self.document.text.len()).is_err() {
            return Err(BROKEN);
        }
        let mut at = self.value(skip_space(self.document.text, start))?;
        while let Some(&node) = self.open.last() {
            at = self.after_value(node, at)?;
        }
        Ok(self.document)
    }

    fn byte(&self, at: usize) -> Result<u8, Broken> {
        self.document.text.get(at).copied().ok_or(CUT)
    }

    fn space(&self, at: usize) -> usize {
        skip_space(self.document.text, at)
    }

    #[expect(clippy::cast_possible_truncation, reason = "`run` refuses longer texts")]
    fn note(&mut self, start: usize, end: usize) {
        steps::add(1);
        let next = self.document.nodes.len() as u32 + 1;
        self.document.nodes.push(Node { start: start as u32, end: end as u32, next });
    }

    /// Reads a scalar, an empty container, or the opening of containers up to a scalar; where that ends.
    fn value(&mut self, mut at: usize) -> Result<usize, Broken> {
        loop {
            let byte = self.byte(at)?;
            let (kind, closer) = match byte {
                b'{' => (Kind::Object, b'}'),
                b'[' => (Kind::Array, b']'),
                _ => return self.scalar(byte, at),
            };
            if self.open.len() == MAX_DEPTH as usize {
                return Err(BROKEN);
            }
            self.open.push(self.document.nodes.len());
            self.note(at, at);
            at = self.space(at + 1);
            if self.byte(at)? == closer {
                return Ok(self.close(at));
            }
            if kind == Kind::Object {
                at = self.name(at)?;
            }
        }
    }

    /// Reads what follows a value inside a container: a closing bracket, or a comma and the next value.
    fn after_value(&mut self, node: usize, at: usize) -> Result<usize, Broken> {
        let mut at = self.space(at);
        let byte = self.byte(at)?;
        let is_object = self.document.text[self.document.nodes[node].start as usize] == b'{';
        if byte == if is_object { b'}' } else { b']' } {
            return Ok(self.close(at));
        }
        if byte != b',' {
            return Err(BROKEN);
        }
        at = self.space(at + 1);
        if is_object {
            at = self.name(at)?;
        }
        self.value(at)
    }

    #[expect(clippy::cast_possible_truncation, reason = "`run` refuses longer texts")]
    fn close(&mut self, at: usize) -> usize {
        let next = self.document.nodes.len() as u32;
        if let Some(node) = self.open.pop() {
            self.document.nodes[node].end = at as u32 + 1;
            self.document.nodes[node].next = next;
        }
        at + 1
    }

    /// Reads a member's name and its colon; where the value begins.
    fn name(&mut self, at: usize) -> Result<usize, Broken> {
        if self.byte(at)? != b'"' {
            return Err(BROKEN);
        }
        let end = self.string(at)?;
        self.note(at, end);
        let colon = self.space(end);
        if self.byte(colon)? != b':' {
            return Err(BROKEN);
        }
        Ok(self.space(colon + 1))
    }

    fn scalar(&mut self, byte: u8, at: usize) -> Result<usize, Broken> {
        let (kind, end) = match byte {
            b'"' => {
                let end = self.string(at)?;
                self.note(at, end);
                return Ok(end);
            }
            b'-' | b'0'..=b'9' => (Kind::Number, self.number(at)?),
            b't' => (Kind::True, self.literal(at, b"true")?),
            b'f' => (Kind::False, self.literal(at, b"false")?),
            b'n' => (Kind::Null, self.literal(at, b"null")?),
            _ => return Err(BROKEN),
        };
        // At the root nothing may be glued to it: `007` does not begin with a value.
        if self.open.is_empty()
            && self.document.text.get(end).is_some_and(|&next| {
                next.is_ascii_alphanumeric()
                    || next == b'_'
                    || (kind == Kind::Number && matches!(next, b'.' | b'+' | b'-'))
            })
        {
            return Err(BROKEN);
        }
        self.note(at, end);
        Ok(end)
    }

    fn string(&mut self, start: usize) -> Result<usize, Broken> {
        let text = self.document.text;
        let mut at = start + 1;
        loop {
            steps::add(1);
            match self.byte(at)? {
                b'"' => return Ok(at + 1),
                b'\\' => {
                    let rest = &text[at + 1..];
                    let hex = rest.iter().skip(1).take(4).take_while(|byte| byte.is_ascii_hexdigit()).count();
                    at += match rest.first() {
                        None => return Err(CUT),
                        Some(b'u') if hex == 4 => 6,
                        Some(b'u') if hex + 1 == rest.len() => return Err(CUT),
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
                        _ => return Err(BROKEN),
                    };
                }
                0..b' ' if !self.allow_controls => return Err(BROKEN),
                byte => {
                    self.document.has_controls |= byte < b' ';
                    at += 1;
                }
            }
        }
    }

    fn number(&self, start: usize) -> Result<usize, Broken> {
        let text = self.document.text;
        let digits = |at: usize| {
            let count = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            steps::add(count + 1);
            count
        };
        let mut at = start + usize::from(text[start] == b'-');
        at += match self.byte(at)? {
            b'0' => 1,
            b'1'..=b'9' => digits(at),
            _ => return Err(BROKEN),
        };
        if text.get(at) == Some(&b'.') {
            if at + 1 == text.len() {
                return Err(CUT);
            }
            match digits(at + 1) {
                0 => return Ok(at),
                places => at += 1 + places,
            }
        }
        if matches!(text.get(at), Some(b'e' | b'E')) {
            let exponent = at + 1 + usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
            if exponent == text.len() {
                return Err(CUT);
            }
            match digits(exponent) {
                0 => {}
                places => at = exponent + places,
            }
        }
        Ok(at)
    }

    fn literal(&self, at: usize, word: &[u8]) -> Result<usize, Broken> {
        let rest = &self.document.text[at..];
        if rest.starts_with(word) {
            return Ok(at + word.len());
        }
        Err(Broken { is_cut: word.starts_with(rest) })
    }
}
