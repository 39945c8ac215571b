//! One pass over a record: from the bytes of the line straight into the columns, contents included.
//!
//! The pass is strict and expects what servers send. Where a record is broken, or holds something whose order matters
//! (duplicate names above all), it stops, what it made is taken back, and `exact`
//! reads the record.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::columns::{Column, Filled, List, Map, Struct};
use crate::error::{Scan, Stop};
use crate::number::Number;
use crate::numbers::{self, FIRST_SECOND, LAST_SECOND, MICROS, MICROSECONDS};
use crate::reader::Reader;
use crate::rescue::Path;
use crate::scan::{Cursor, deeper};
use crate::shape::{Kind, ListRole, ListShape, MapShape, Shape, StructRole, StructShape};
use crate::steps;
use crate::taps::{Span, Tap};
use crate::wire::Name;

/// Names up to this many are compared with each other, more of them are hashed.
const FEW: usize = 8;

impl Reader<'_> {
    /// Reads the value at a place; where it ends.
    pub(crate) fn value(
        &mut self,
        text: &[u8],
        at: usize,
        shape: &Shape,
        column: &mut Column,
        row: usize,
        path: &Path<'_>,
    ) -> Scan<usize> {
        let mut cursor = Cursor::new(text, at);
        let byte = cursor.peek()?;
        if byte == b'n' {
            cursor.literal(b"null")?;
        } else if !scalar(&mut cursor, byte, column, row)? {
            return self.any_value(text, cursor.at, byte, shape, column, row, path);
        }
        Ok(cursor.at)
    }

    /// The same for the value that is next and begins with `byte`, if it is not null.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "text and place are one value, in registers")]
    fn any_value(
        &mut self,
        text: &[u8],
        at: usize,
        byte: u8,
        shape: &Shape,
        column: &mut Column,
        row: usize,
        path: &Path<'_>,
    ) -> Scan<usize> {
        let mut cursor = Cursor::new(text, at);
        let start = cursor.at;
        let fits = match (column, byte) {
            (Column::List(list), b'[') => return self.list(text, cursor.at, list_shape(shape)?, list, row, path),
            (Column::Struct(inner), b'{') => {
                return self.object(text, cursor.at, struct_shape(shape)?, inner, row, Some(path));
            }
            (Column::Map(map), b'{') => return self.map(text, cursor.at, map_shape(shape)?, map, row, path),
            (Column::Skip, _) => {
                cursor.skip(self.depth)?;
                Some(())
            }
            (Column::Text(text), _) => {
                cursor.skip(self.depth)?;
                text.set(row, &cursor.text[start..cursor.at])?;
                Some(())
            }
            (column, b'-' | b'0'..=b'9') => set_number(column, row, &cursor.number()?),
            _ => {
                cursor.skip(self.depth)?;
                None
            }
        };
        if fits.is_none() {
            self.rescue.mismatch(path, start, &cursor.text[start..cursor.at]);
        }
        Ok(cursor.at)
    }

    fn list(
        &mut self,
        text: &[u8],
        at: usize,
        shape: &ListShape,
        list: &mut List,
        row: usize,
        path: &Path<'_>,
    ) -> Scan<usize> {
        let mut cursor = Cursor::new(text, at);
        let first = list.runs.next();
        let mut item = first;
        self.depth = deeper(self.depth)?;
        cursor.at += 1;
        if cursor.peek()? == b']' {
            cursor.at += 1;
        } else {
            loop {
                self.begin_item(shape.role);
                let here = Path::index(Some(path), item - first);
                cursor.at = self.value(text, cursor.at, &shape.item, &mut list.item, item, &here)?;
                item += 1;
                if !goes_on(&mut cursor, b']')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        list.runs.set(row, item)?;
        Ok(cursor.at)
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
        text: &[u8],
        at: usize,
        shape: &MapShape,
        map: &mut Map,
        row: usize,
        path: &Path<'_>,
    ) -> Scan<usize> {
        let mut cursor = Cursor::new(text, at);
        let first = map.runs.next();
        let mut entry = first;
        self.depth = deeper(self.depth)?;
        cursor.at += 1;
        if cursor.peek()? == b'}' {
            cursor.at += 1;
        } else {
            loop {
                cursor.expect(b'"')?;
                let name = cursor.string()?;
                cursor.expect(b':')?;
                map.keys.set(entry, &name)?;
                let here = Path::name(Some(path), &name);
                cursor.at = self.value(text, cursor.at, &shape.value, &mut map.value, entry, &here)?;
                entry += 1;
                if !goes_on(&mut cursor, b'}')? {
                    break;
                }
            }
        }
        self.depth -= 1;
        if has_duplicates(entry - first, |i| map.keys.get(first + i)) {
            return Err(Stop::Exact);
        }
        map.runs.set(row, entry)?;
        Ok(cursor.at)
    }

    pub(crate) fn object(
        &mut self,
        text: &[u8],
        at: usize,
        shape: &StructShape,
        inner: &mut Struct,
        row: usize,
        path: Option<&Path<'_>>,
    ) -> Scan<usize> {
        let mut cursor = Cursor::new(text, at);
        if shape.role == StructRole::Function {
            self.taps.forget_function();
        }
        self.object += 1;
        inner.object = self.object;
        let unknown = self.unknown.len();
        inner.seen.forget();
        // The wire name before, and the one that came behind that the last time.
        let mut before = None;
        let mut expected = usize::from(inner.first);
        self.depth = deeper(self.depth)?;
        cursor.at += 1;
        let mut is_open = cursor.peek()? != b'}';
        cursor.at += usize::from(!is_open);
        while is_open {
            steps::add(1);
            cursor.peek()?;
            let stands = inner.wires.get(expected).and_then(|wire| wire.stands_at(cursor.text, cursor.at));
            let known = if let Some(length) = stands {
                cursor.at += length;
                Some(expected)
            } else {
                let (known, at) = self.other_name(text, cursor.at, shape, inner, before, path)?;
                cursor.at = at;
                known
            };
            if let Some(known) = known {
                before = Some(known);
                expected = usize::from(inner.wires[known].next);
                cursor.expect(b':')?;
                if !inner.seen.note(known) {
                    return Err(Stop::Exact);
                }
                match cursor.peek()? {
                    b'n' => cursor.literal(b"null")?,
                    byte => cursor.at = self.member(cursor, byte, shape, known, inner, row, path)?,
                }
            }
            is_open = goes_on(&mut cursor, b'}')?;
        }
        self.depth -= 1;
        if self.unknown.len() > unknown {
            self.end_unknown(cursor.text, unknown)?;
        }
        inner.valid.set(row);
        match shape.role {
            StructRole::None => {}
            StructRole::Choice => self.end_choice(cursor.text, shape, inner, row, path)?,
            StructRole::Function => self.end_function(cursor.text, shape, inner, row, path)?,
        }
        Ok(cursor.at)
    }

    /// Reads a name that is not the expected one: its number if it means something, else its value is read too. And
    /// where that ends.
    #[inline(never)]
    fn other_name(
        &mut self,
        text: &[u8],
        at: usize,
        shape: &StructShape,
        inner: &mut Struct,
        before: Option<usize>,
        path: Option<&Path<'_>>,
    ) -> Scan<(Option<usize>, usize)> {
        let mut cursor = Cursor::new(text, at);
        cursor.expect(b'"')?;
        let start = cursor.at;
        let name = cursor.string()?;
        steps::add(name.len());
        if let Some(known) = shape.wire(&name) {
            #[expect(clippy::cast_possible_truncation, reason = "wires are counted in 16 bits")]
            {
                *before.map_or(&mut inner.first, |before| &mut inner.wires[before].next) = known as u16;
            }
            return Ok((Some(known), cursor.at));
        }
        let span = Span { start, end: cursor.at - 1 };
        if shape.keeps_unknown && matches!(name, Cow::Owned(_)) {
            // Names are compared as they stand: this one has another spelling.
            return Err(Stop::Exact);
        }
        cursor.expect(b':')?;
        Ok((None, self.unknown(text, cursor.at, span, &name, shape, path)?))
    }

    /// The value, not null and beginning with `byte`, of a member whose name means something.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "it is part of its only caller")]
    fn member(
        &mut self,
        mut cursor: Cursor<'_>,
        byte: u8,
        shape: &StructShape,
        known: usize,
        inner: &mut Struct,
        row: usize,
        path: Option<&Path<'_>>,
    ) -> Scan<usize> {
        let start = cursor.at;
        let (only, tap) = (usize::from(inner.wires[known].only), inner.wires[known].tap);
        if let Some(column) = inner.members.get_mut(only) {
            if !scalar(&mut cursor, byte, column, row)? {
                let here = Path::name(path, &shape.names[known].text);
                cursor.at =
                    self.any_value(cursor.text, cursor.at, byte, &shape.members[only].shape, column, row, &here)?;
            }
        } else {
            cursor.at = self.targets(cursor.text, cursor.at, shape, &shape.names[known], inner, row, path)?;
        }
        if let Some(tap) = tap {
            self.taps.set(tap, Span { start, end: cursor.at });
            if tap == Tap::Record {
                self.end_record_object(cursor.text)?;
            }
        }
        Ok(cursor.at)
    }

    /// The value, not null, of a member that goes to no column, to several, or to one that has several names.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "text and place are one value, in registers")]
    fn targets(
        &mut self,
        text: &[u8],
        at: usize,
        shape: &StructShape,
        name: &Name,
        inner: &mut Struct,
        row: usize,
        path: Option<&Path<'_>>,
    ) -> Scan<usize> {
        let mut cursor = Cursor::new(text, at);
        let start = cursor.at;
        let here = Path::name(path, &name.text);
        let object = inner.object;
        if name.targets.is_empty() {
            cursor.skip(self.depth)?;
            if shape.keeps_unknown && !name.is_known {
                self.rescue.unknown(&here, start, &cursor.text[start..cursor.at]);
            }
        }
        for &(number, rank) in &name.targets {
            let number = usize::from(number);
            let member = &shape.members[number];
            cursor.at = start;
            if member.is_ranked && !Self::is_next(&mut inner.filled[number], object, rank)? {
                cursor.skip(self.depth)?;
            } else {
                cursor.at = self.value(text, cursor.at, &member.shape, &mut inner.members[number], row, &here)?;
            }
        }
        Ok(cursor.at)
    }

    /// The value of a member whose name, which stands at `span`, means nothing.
    #[inline(never)]
    fn unknown(
        &mut self,
        text: &[u8],
        at: usize,
        span: Span,
        name: &[u8],
        shape: &StructShape,
        path: Option<&Path<'_>>,
    ) -> Scan<usize> {
        let mut cursor = Cursor::new(text, at);
        if shape.keeps_unknown {
            self.unknown.push(span);
        }
        let is_null = cursor.peek()? == b'n';
        let start = cursor.at;
        cursor.skip(self.depth)?;
        if shape.keeps_unknown && !is_null {
            self.rescue.unknown(&shape.unknown_path(path, name), start, &cursor.text[start..cursor.at]);
        }
        Ok(cursor.at)
    }

    /// Whether a non-null value under one of a member's several names is the one that counts so far.
    fn is_next(filled: &mut Filled, object: u64, rank: u16) -> Scan<bool> {
        if filled.object == object {
            return if rank > filled.rank { Ok(false) } else { Err(Stop::Exact) };
        }
        *filled = Filled { object, rank };
        Ok(true)
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

/// A comma, or the end of a container.
#[inline(always)]
fn goes_on(cursor: &mut Cursor<'_>, closer: u8) -> Scan<bool> {
    let byte = cursor.peek()?;
    cursor.at += 1;
    if byte == b',' {
        return Ok(true);
    }
    if byte == closer { Ok(false) } else { Err(Stop::Syntax) }
}

/// Reads the value that begins with `byte` where it is of the usual kind for its column; else the cursor stays.
#[inline(always)]
fn scalar(cursor: &mut Cursor<'_>, byte: u8, column: &mut Column, row: usize) -> Scan<bool> {
    let start = cursor.at;
    let is_read = match column {
        Column::Text(text) if byte == b'"' => {
            cursor.at += 1;
            let used = text.begin(row);
            let used = cursor.decode(&mut text.data, used)?;
            text.end(row, used)?;
            return Ok(true);
        }
        Column::Double(fixed) if is_number(byte) => {
            cursor.number()?.short_double().map(|value| fixed.set(row, value)).is_some()
        }
        Column::Long(_) | Column::Int(_) | Column::Seconds(_) | Column::Micros(_) if is_number(byte) => {
            cursor.number()?.short_integer().and_then(|value| set_integer(column, row, value)).is_some()
        }
        Column::Boolean(flags) if matches!(byte, b't' | b'f') => {
            cursor.literal(if byte == b't' { b"true" } else { b"false" })?;
            flags.set(row, byte == b't');
            return Ok(true);
        }
        _ => return Ok(false),
    };
    if !is_read {
        cursor.at = start;
    }
    Ok(is_read)
}

#[inline(always)]
fn is_number(byte: u8) -> bool {
    byte == b'-' || byte.is_ascii_digit()
}

/// Sets an integer; `None` where the column does not take it.
#[inline(always)]
fn set_integer(column: &mut Column, row: usize, value: i64) -> Option<()> {
    match column {
        Column::Long(fixed) => fixed.set(row, value),
        Column::Int(fixed) => fixed.set(row, i32::try_from(value).ok()?),
        Column::Seconds(fixed) if (FIRST_SECOND..=LAST_SECOND).contains(&value) => fixed.set(row, value * MICROS),
        Column::Micros(fixed) if MICROSECONDS.contains(&value) => fixed.set(row, value),
        _ => return None,
    }
    Some(())
}

/// Sets any number; `None` where the column does not take it.
fn set_number(column: &mut Column, row: usize, number: &Number<'_>) -> Option<()> {
    match column {
        Column::Double(fixed) => {
            fixed.set(row, number.short_double().or_else(|| numbers::double(number.text))?);
            Some(())
        }
        Column::Seconds(fixed) if number.short_integer().is_none() => {
            fixed.set(row, numbers::seconds(number.text)?);
            Some(())
        }
        column => {
            let value = number.short_integer().or_else(|| numbers::integral(number.text, i64::MIN, i64::MAX))?;
            set_integer(column, row, value)
        }
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
