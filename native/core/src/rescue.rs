//! What found no column: the values of `_rescued_data` and the paths they go by.
//!
//! What is kept is bounded, so that time and memory stay linear in the line. Where the entries of one content pass a
//! bound its whole value takes their place, where then those of the record do, the whole values of its members.

use std::ops::Range;

use crate::error::{Scan, Stop};
use crate::steps;

/// A place inside a record: the place it is in, and a member's name or an array's index.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Name(&'a [u8]),
    /// A member on the wire that has the name of a field which the reader makes at that place.
    Shadowed(&'a [u8]),
    Index(usize),
}

const MAX_ENTRIES: usize = 1_000;
const MAX_PATH_BYTES: usize = 65_536;

impl<'a> Path<'a> {
    #[inline(always)]
    pub(crate) fn name(parent: Option<&'a Path<'a>>, name: &'a [u8]) -> Self {
        Self { parent, step: Step::Name(name) }
    }

    pub(crate) fn shadowed(parent: Option<&'a Path<'a>>, name: &'a [u8]) -> Self {
        Self { parent, step: Step::Shadowed(name) }
    }

    #[inline(always)]
    pub(crate) fn index(parent: Option<&'a Path<'a>>, index: usize) -> Self {
        Self { parent, step: Step::Index(index) }
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Some(parent) = self.parent {
            parent.write(out);
        }
        match self.step {
            Step::Index(index) => out.extend_from_slice(format!("[{index}]").as_bytes()),
            Step::Name(name) if is_plain(name) => {
                if self.parent.is_some() {
                    out.push(b'.');
                }
                out.extend_from_slice(name);
            }
            Step::Name(name) | Step::Shadowed(name) => {
                out.extend_from_slice(b"['");
                let mut parts = name.split(|&byte| byte == b'\'');
                escape(parts.next().unwrap_or_default(), out);
                for part in parts {
                    out.extend_from_slice(b"\\u0027");
                    escape(part, out);
                }
                out.extend_from_slice(b"']");
            }
        }
    }

    /// The name of the record's member that the place is in.
    fn member(&self) -> &'a [u8] {
        let mut place = *self;
        while let Some(parent) = place.parent {
            place = *parent;
        }
        match place.step {
            Step::Name(name) | Step::Shadowed(name) => name,
            Step::Index(_) => b"",
        }
    }
}

/// `[A-Za-z_][A-Za-z0-9_]*`
fn is_plain(name: &[u8]) -> bool {
    name.first().is_some_and(|byte| !byte.is_ascii_digit())
        && name.iter().all(|&byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Appends a text with JSON's escapes, each in its shortest form.
pub(crate) fn escape(text: &[u8], out: &mut Vec<u8>) {
    steps::add(text.len());
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            b' '.. => out.push(byte),
            _ => escape_control(byte, out),
        }
    }
}

/// Appends a control character's escape in its shortest form.
pub(crate) fn escape_control(byte: u8, out: &mut Vec<u8>) {
    match byte {
        0x08 => out.extend_from_slice(b"\\b"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\n' => out.extend_from_slice(b"\\n"),
        0x0c => out.extend_from_slice(b"\\f"),
        b'\r' => out.extend_from_slice(b"\\r"),
        _ => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
    }
}

/// How much is kept.
#[derive(Clone, Copy, Default)]
struct Amount {
    entries: usize,
    path_bytes: usize,
}

impl Amount {
    fn passes_a_bound(self) -> bool {
        self.entries > MAX_ENTRIES || self.path_bytes > MAX_PATH_BYTES
    }
}

/// A value that is kept.
struct Entry {
    /// Place in the record, and inside a content of it.
    place: (usize, usize),
    /// Where its `"<path>": <value>` stands.
    text: Range<usize>,
}

/// The content that is being read.
#[derive(Clone, Copy)]
struct Content {
    /// Where its text stands in the record.
    place: usize,
    amount: Amount,
    /// What there was before it.
    entries: usize,
    text: usize,
    mismatches: u64,
}

/// Collects the values of one record that found no column, and counts the mismatches among them.
pub(crate) struct Rescue {
    /// Whether anything is kept; else the mismatches are only counted.
    is_wanted: bool,
    pub(crate) mismatches: u64,
    entries: Vec<Entry>,
    text: Vec<u8>,
    path: Vec<u8>,
    /// How much is kept of the record itself, and of the contents that were read.
    amount: Amount,
    content: Option<Content>,
    /// A place in each of the record's members that have entries, where they are noted, and the name of the last one.
    members: Option<Vec<usize>>,
    member: Vec<u8>,
}

impl Rescue {
    pub(crate) fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            mismatches: 0,
            entries: Vec::new(),
            text: Vec::new(),
            path: Vec::new(),
            amount: Amount::default(),
            content: None,
            members: None,
            member: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.mismatches = 0;
        self.entries.clear();
        self.text.clear();
        self.amount = Amount::default();
        self.content = None;
        self.members = None;
    }

    pub(crate) fn note_members(&mut self) {
        self.members = Some(Vec::new());
    }

    /// What is kept from now on stands inside the content at this place of the record.
    pub(crate) fn begin_content(&mut self, place: usize) {
        let Self { mismatches, .. } = *self;
        let (entries, text) = (self.entries.len(), self.text.len());
        self.content = Some(Content { place, amount: Amount::default(), entries, text, mismatches });
    }

    /// Takes back what was kept of the content.
    pub(crate) fn restart_content(&mut self) {
        if let Some(content) = &mut self.content {
            content.amount = Amount::default();
            self.entries.truncate(content.entries);
            self.text.truncate(content.text);
            self.mismatches = content.mismatches;
        }
    }

    /// Whether the content has mismatches.
    pub(crate) fn has_mismatched(&self) -> bool {
        self.content.is_some_and(|content| self.mismatches > content.mismatches)
    }

    /// After all of the content is read: keeps its whole value instead, if what was kept of it passes a bound.
    pub(crate) fn bound_content(&mut self, path: &Path<'_>, start: usize, raw: &[u8]) {
        if let Some(content) = &mut self.content
            && content.amount.passes_a_bound()
        {
            content.amount = Amount::default();
            self.entries.truncate(content.entries);
            self.text.truncate(content.text);
            self.keep(path, start, raw);
        }
    }

    pub(crate) fn end_content(&mut self) {
        if let Some(content) = self.content.take() {
            self.amount.entries += content.amount.entries;
            self.amount.path_bytes += content.amount.path_bytes;
        }
    }

    /// Whether the whole values of members have to take the place of what is kept of the record.
    pub(crate) fn passes_a_bound(&self) -> bool {
        self.amount.passes_a_bound()
    }

    /// After all of the record is read: keeps the whole values of its members (name, place, value as written) instead,
    /// if what was kept of them passes a bound.
    pub(crate) fn bound_record<'m>(&mut self, members: impl Iterator<Item = (&'m [u8], usize, &'m [u8])>) {
        if !self.passes_a_bound() {
            return;
        }
        self.entries.clear();
        self.text.clear();
        let mut noted = self.members.take().unwrap_or_default();
        noted.sort_unstable();
        for (name, start, raw) in members {
            let next = noted.get(noted.partition_point(|&place| place < start));
            if next.is_some_and(|&place| place < start + raw.len()) {
                self.write_entry(&Path::name(None, name), (start, 0), raw);
            }
        }
    }

    /// Keeps the value of a member that no column has, written as `raw` at `start`.
    #[cold]
    pub(crate) fn unknown(&mut self, path: &Path<'_>, start: usize, raw: &[u8]) {
        self.keep(path, start, raw);
    }

    /// Keeps a value of another type than its column has.
    #[cold]
    pub(crate) fn mismatch(&mut self, path: &Path<'_>, start: usize, raw: &[u8]) {
        self.mismatches += 1;
        self.keep(path, start, raw);
    }

    fn keep(&mut self, path: &Path<'_>, start: usize, raw: &[u8]) {
        if !self.is_wanted {
            return;
        }
        let place = self.content.map_or((start, 0), |content| (content.place, start));
        if let Some(members) = &mut self.members
            && (members.is_empty() || self.member != path.member())
        {
            members.push(place.0);
            self.member.clear();
            self.member.extend_from_slice(path.member());
        }
        let amount = self.content.map_or(self.amount, |content| content.amount);
        if self.amount.passes_a_bound() || amount.passes_a_bound() {
            return;
        }
        self.write_entry(path, place, raw);
        let amount = self.content.as_mut().map_or(&mut self.amount, |content| &mut content.amount);
        amount.entries += 1;
        amount.path_bytes += self.path.len();
    }

    fn write_entry(&mut self, path: &Path<'_>, place: (usize, usize), raw: &[u8]) {
        steps::add(raw.len());
        let begin = self.text.len();
        self.path.clear();
        path.write(&mut self.path);
        self.text.push(b'"');
        escape(&self.path, &mut self.text);
        self.text.extend_from_slice(b"\": ");
        self.text.extend_from_slice(raw);
        self.entries.push(Entry { place, text: begin..self.text.len() });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Writes `{"<path>": <value as written>, …}` in the order of the values in the record to `out` behind `used`.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, used: usize) -> Scan<usize> {
        if !self.entries.is_sorted_by_key(|entry| entry.place) {
            steps::add(self.entries.len());
            self.entries.sort_by_key(|entry| entry.place);
        }
        let mut end = used;
        let mut put = |bytes: &[u8]| {
            steps::add(bytes.len());
            if out.len() < end + bytes.len() {
                out.resize((end + bytes.len()) * 3 / 2, 0);
            }
            out[end..end + bytes.len()].copy_from_slice(bytes);
            end += bytes.len();
        };
        for (number, entry) in self.entries.iter().enumerate() {
            put(if number == 0 { b"{" } else { b", " });
            put(&self.text[entry.text.clone()]);
        }
        put(b"}");
        if i32::try_from(end).is_err() { Err(Stop::TooLarge) } else { Ok(end) }
    }
}
