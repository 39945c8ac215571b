//! One pass over a record: from the bytes of the line straight into the columns, contents included.
//!
//! The pass is strict and expects what servers send. Where a record is broken, or holds something whose order matters
//! (duplicate names, a record object that does not stand in front), it stops, what it made is taken back, and `exact`
//! reads the record.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::columns::{Column, List, Map, Seen, Struct};
use crate::error::{Scan, Stop};
use crate::numbers::{self, FIRST_SECOND, LAST_SECOND, MICROS, MICROSECONDS};
use crate::reader::Reader;
use crate::rescue::Path;
use crate::scan::{Cursor, Number};
use crate::shape::{Kind, ListRole, ListShape, MapShape, Shape, StructRole, StructShape};
use crate::steps;
use crate::taps::{Span, Tap};

/// Names up to this many are compared with each other, more of them are hashed.
const FEW: usize = 8;

impl Reader<'_> {
    pub(crate) fn value(
        &mut self,
        cursor: &mut Cursor<'_>,
        shape: &Shape,
        column: &mut Column,
        row: usize,
        path: &Path<'_>,
    ) -> Scan<()> {
        let byte = cursor.peek()?;
        let start = cursor.at;
        let fits = match (column, byte) {
            (_, b'n') => return cursor.literal(b"null"),
            (Column::Skip, _) => return cursor.skip(),
            (Column::Text(text), b'"') => {
                cursor.at += 1;
                return text.set_with(row, |data, used| cursor.decode(data, used));
            }
            (Column::Text(text), _) => {
                cursor.skip()?;
                return text.set(row, &cursor.text[start..cursor.at]);
            }
            (Column::Long(fixed), b'-' | b'0'..=b'9') => long(&cursor.number()?).map(|value| fixed.set(row, value)),
            (Column::Double(fixed), b'-' | b'0'..=b'9') => {
                let number = cursor.number()?;
                number.short_double().or_else(|| numbers::double(number.text)).map(|value| fixed.set(row, value))
            }
            (Column::Boolean(flags), b't') => {
                cursor.literal(b"true")?;
                flags.set(row, true);
                return Ok(());
            }
            (Column::Boolean(flags), b'f') => {
                cursor.literal(b"false")?;
                flags.set(row, false);
                return Ok(());
            }
            (Column::Int(fixed), b'-' | b'0'..=b'9') => {
                long(&cursor.number()?).and_then(|value| i32::try_from(value).ok()).map(|value| fixed.set(row, value))
            }
            (Column::Seconds(fixed), b'-' | b'0'..=b'9') => {
                seconds(&cursor.number()?).map(|value| fixed.set(row, value))
            }
            (Column::Micros(fixed), b'-' | b'0'..=b'9') => {
                long(&cursor.number()?).filter(|value| MICROSECONDS.contains(value)).map(|value| fixed.set(row, value))
            }
            (Column::List(list), b'[') => return self.list(cursor, list_shape(shape)?, list, row, path),
            (Column::Struct(inner), b'{') => return self.object(cursor, struct_shape(shape)?, inner, row, Some(path)),
            (Column::Map(map), b'{') => return self.map(cursor, map_shape(shape)?, map, row, path),
            _ => {
                cursor.skip()?;
                None
            }
        };
        if fits.is_none() {
            self.rescue.mismatch(path, start, &cursor.text[start..cursor.at]);
        }
        Ok(())
    }

    fn list(
        &mut self,
        cursor: &mut Cursor<'_>,
        shape: &ListShape,
        list: &mut List,
        row: usize,
        path: &Path<'_>,
    ) -> Scan<()> {
        let first = list.runs.next();
        let mut item = first;
        if shape.role == ListRole::Choices && self.taps.get(Tap::Record).is_none() {
            return Err(Stop::Exact);
        }
        cursor.enter()?;
        if cursor.peek()? == b']' {
            cursor.leave();
        } else {
            loop {
                self.begin_item(shape.role);
                self.value(cursor, &shape.item, &mut list.item, item, &Path::index(Some(path), item - first))?;
                item += 1;
                match cursor.peek()? {
                    b',' => cursor.at += 1,
                    b']' => break cursor.leave(),
                    _ => return Err(Stop::Syntax),
                }
            }
        }
        list.runs.set(row, item)
    }

    #[inline]
    pub(crate) fn begin_item(&mut self, role: ListRole) {
        match role {
            ListRole::None => {}
            ListRole::ToolCalls => self.answer.has_calls = true,
            ListRole::Choices => {
                self.taps.forget_choice();
                self.answer.choices += 1;
                self.answer.has_calls = false;
                self.answer.statuses = 0;
                self.answer.lost_statuses = 0;
            }
        }
    }

    fn map(
        &mut self,
        cursor: &mut Cursor<'_>,
        shape: &MapShape,
        map: &mut Map,
        row: usize,
        path: &Path<'_>,
    ) -> Scan<()> {
        let first = map.runs.next();
        let mut entry = first;
        cursor.enter()?;
        if cursor.peek()? == b'}' {
            cursor.leave();
        } else {
            loop {
                cursor.expect(b'"')?;
                let name = cursor.string()?;
                cursor.expect(b':')?;
                map.keys.set(entry, &name)?;
                self.value(cursor, &shape.value, &mut map.value, entry, &Path::name(Some(path), &name))?;
                entry += 1;
                match cursor.peek()? {
                    b',' => cursor.at += 1,
                    b'}' => break cursor.leave(),
                    _ => return Err(Stop::Syntax),
                }
            }
        }
        if has_duplicates(entry - first, |i| map.keys.get(first + i)) {
            return Err(Stop::Exact);
        }
        map.runs.set(row, entry)
    }

    pub(crate) fn object(
        &mut self,
        cursor: &mut Cursor<'_>,
        shape: &StructShape,
        inner: &mut Struct,
        row: usize,
        path: Option<&Path<'_>>,
    ) -> Scan<()> {
        if shape.role == StructRole::Function {
            self.taps.forget_function();
        }
        self.object += 1;
        let object = self.object;
        let unknown = self.unknown.len();
        // The place in `next` of the wire name before.
        let mut before = 0;
        cursor.enter()?;
        if cursor.peek()? == b'}' {
            cursor.leave();
        } else {
            loop {
                cursor.expect(b'"')?;
                steps::add(1);
                let expected = usize::from(inner.next[before]);
                let length = shape.wires.get(expected).and_then(|wire| wire.stands_at(cursor.text, cursor.at));
                let known = if let Some(length) = length {
                    cursor.at += length;
                    expected
                } else {
                    let start = cursor.at;
                    let name = cursor.string()?;
                    steps::add(name.len());
                    let Some(known) = shape.wire(&name) else {
                        let span = Span { start, end: cursor.at - 1 };
                        if shape.keeps_unknown && matches!(name, Cow::Owned(_)) {
                            // Names are compared as they stand: this one has another spelling.
                            return Err(Stop::Exact);
                        }
                        cursor.expect(b':')?;
                        self.unknown(cursor, span, &name, shape, path)?;
                        if comma(cursor)? {
                            continue;
                        }
                        break;
                    };
                    #[expect(clippy::cast_possible_truncation, reason = "wires are counted in 16 bits")]
                    {
                        inner.next[before] = known as u16;
                    }
                    known
                };
                before = known + 1;
                cursor.expect(b':')?;
                let seen = &mut inner.wires[known].object;
                if *seen == object {
                    return Err(Stop::Exact);
                }
                *seen = object;
                self.member(cursor, shape, known, inner, row, path)?;
                if !comma(cursor)? {
                    break;
                }
            }
        }
        if self.unknown.len() > unknown {
            self.end_unknown(cursor.text, unknown)?;
        }
        inner.valid.set(row);
        match shape.role {
            StructRole::None => Ok(()),
            StructRole::Choice => self.end_choice(cursor.text, shape, inner, row, path),
            StructRole::Function => self.end_function(cursor.text, shape, inner, row, path),
        }
    }

    /// The value of a member whose name means something.
    #[inline]
    fn member(
        &mut self,
        cursor: &mut Cursor<'_>,
        shape: &StructShape,
        known: usize,
        inner: &mut Struct,
        row: usize,
        path: Option<&Path<'_>>,
    ) -> Scan<()> {
        let wire = &shape.wires[known];
        if cursor.peek()? == b'n' {
            return cursor.literal(b"null");
        }
        let start = cursor.at;
        let here = Path::name(path, &wire.name);
        let object = inner.wires[known].object;
        for &(number, rank) in &wire.targets {
            let number = usize::from(number);
            let member = &shape.members[number];
            cursor.at = start;
            if member.is_ranked && !Self::is_next(&mut inner.filled[number], object, rank)? {
                cursor.skip()?;
                continue;
            }
            self.value(cursor, &member.shape, &mut inner.members[number], row, &here)?;
        }
        if wire.targets.is_empty() {
            cursor.skip()?;
            if shape.keeps_unknown && !wire.is_known {
                self.rescue.unknown(&here, start, &cursor.text[start..cursor.at]);
            }
        }
        if let Some(tap) = wire.tap {
            self.taps.set(tap, Some(Span { start, end: cursor.at }));
            if tap == Tap::Record {
                self.end_record_object(cursor.text)?;
            }
        }
        Ok(())
    }

    /// Whether a non-null value under one of a member's several names is the one that counts so far.
    fn is_next(filled: &mut Seen, object: u64, rank: u16) -> Scan<bool> {
        if filled.object == object {
            return if rank > filled.rank { Ok(false) } else { Err(Stop::Exact) };
        }
        *filled = Seen { object, rank };
        Ok(true)
    }

    /// The value of a member whose name, which stands at `span`, means nothing.
    #[inline(never)]
    fn unknown(
        &mut self,
        cursor: &mut Cursor<'_>,
        span: Span,
        name: &[u8],
        shape: &StructShape,
        path: Option<&Path<'_>>,
    ) -> Scan<()> {
        if !shape.keeps_unknown {
            return cursor.skip();
        }
        self.unknown.push(span);
        let is_null = cursor.peek()? == b'n';
        let start = cursor.at;
        cursor.skip()?;
        if !is_null {
            self.rescue.unknown(&shape.unknown_path(path, name), start, &cursor.text[start..cursor.at]);
        }
        Ok(())
    }

    fn end_unknown(&mut self, text: &[u8], first: usize) -> Scan<()> {
        let names = &self.unknown[first..];
        let twice = has_duplicates(names.len(), |i| names[i].of(text));
        self.unknown.truncate(first);
        if twice { Err(Stop::Exact) } else { Ok(()) }
    }
}

pub(crate) fn list_shape(shape: &Shape) -> Scan<&ListShape> {
    if let Kind::List(list) = &shape.kind { Ok(list) } else { Err(Stop::Defect) }
}

pub(crate) fn map_shape(shape: &Shape) -> Scan<&MapShape> {
    if let Kind::Map(map) = &shape.kind { Ok(map) } else { Err(Stop::Defect) }
}

pub(crate) fn struct_shape(shape: &Shape) -> Scan<&StructShape> {
    if let Kind::Struct(inner) = &shape.kind { Ok(inner) } else { Err(Stop::Defect) }
}

/// A comma and the member behind it, or the end of an object.
#[inline(always)]
fn comma(cursor: &mut Cursor<'_>) -> Scan<bool> {
    match cursor.peek()? {
        b',' => {
            cursor.at += 1;
            Ok(true)
        }
        b'}' => {
            cursor.leave();
            Ok(false)
        }
        _ => Err(Stop::Syntax),
    }
}

#[inline(always)]
fn long(number: &Number<'_>) -> Option<i64> {
    number.short_integer().or_else(|| numbers::integral(number.text, i64::MIN, i64::MAX))
}

fn seconds(number: &Number<'_>) -> Option<i64> {
    match number.short_integer() {
        Some(seconds) => (FIRST_SECOND..=LAST_SECOND).contains(&seconds).then(|| seconds * MICROS),
        None => numbers::seconds(number.text),
    }
}

/// Whether two of `count` names are equal.
fn has_duplicates<'n>(count: usize, name: impl Fn(usize) -> &'n [u8]) -> bool {
    if count <= FEW {
        steps::add(count * count);
        return (1..count).any(|i| (0..i).any(|j| name(i) == name(j)));
    }
    let mut seen = HashSet::with_capacity(count);
    (0..count).any(|i| {
        steps::add(name(i).len());
        !seen.insert(name(i))
    })
}
