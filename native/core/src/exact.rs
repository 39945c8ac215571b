//! The exact way: a record, or a content, is taken apart first and read then.
//!
//! Slower than the one pass and right for whatever stands there: among duplicates the member that counts is known, the
//! record object and finish reasons are read before what is judged by them.

use crate::columns::{Column, Struct};
use crate::content::{Attempt, Status, attempt};
use crate::document::{Document, Kind, Members, Value};
use crate::error::{Scan, Stop};
use crate::numbers;
use crate::plan::TextValue;
use crate::reader::{RESPONSES_PATH, Reader, Verdict, record_place};
use crate::rescue::Path;
use crate::shape::{Shape, StructRole, StructShape};
use crate::steps;
use crate::taps::{Span, Tap};
use crate::texts::Place;
use crate::walk::{list_shape, map_shape, struct_shape};

const RECORD: &[u8] = b"_dspark";
const CHOICES: &[u8] = b"choices";

impl Reader<'_> {
    /// Reads a record, which is an object, into the columns at `row`.
    pub(crate) fn exact_record(&mut self, document: &Document<'_>, rows: &mut Struct, row: usize) -> Scan<()> {
        let plan = self.plan;
        let root = document.root();
        let line = document.text();
        let mut answer = root.members(first_wins(root));
        let record: Members<'_> = match answer.iter().position(|(name, _)| &**name == RECORD) {
            Some(place) => vec![answer.remove(place)],
            None => Vec::new(),
        };
        self.is_exact = true;
        self.rescue.note_members();
        self.exact_members(line, &record, &plan.rows, rows, row, None)?;
        self.answer.verdict = Verdict::written(self.written_verdict(line));
        if self.answer.verdict == Verdict::Open {
            for (name, value) in &answer {
                self.tap(&plan.rows, name, *value);
            }
            let verdict = self.is_complete(line, !answer.is_empty(), is_finished(&answer));
            self.set_verdict(verdict, rows, row);
        }
        self.exact_members(line, &answer, &plan.rows, rows, row, None)?;
        let written = |value: Value<'_>| (value.start(), &line[value.start()..value.end()]);
        self.rescue.bound_record(record.iter().chain(&answer).map(|(name, value)| {
            let (start, raw) = written(*value);
            (&**name, start, raw)
        }));
        self.exact_error(line, rows, row)?;
        self.finish(rows, row)
    }

    /// Of a line that can't be read: what is left of the record object. Whether it could be read.
    pub(crate) fn exact_rest(&mut self, line: &[u8], rows: &mut Struct, row: usize) -> Scan<bool> {
        let Some(place) = record_place(line) else { return Ok(false) };
        let Ok(document) = Document::prefix(line, place, false) else { return Ok(false) };
        let root = document.root();
        if root.kind() != Kind::Object {
            return Ok(false);
        }
        let number = self.plan.places.record;
        self.tap(&self.plan.rows, RECORD, root);
        self.exact_value(
            line,
            root,
            &self.plan.rows.members[number].shape,
            &mut rows.members[number],
            row,
            &Path::name(None, RECORD),
        )?;
        self.rescue.clear();
        Ok(true)
    }

    /// The value of a text after the repairs; it must be known whether a text that just ends was cut short.
    pub(crate) fn exact_content(
        &mut self,
        how: &TextValue,
        text: &[u8],
        is_cut_short: Option<bool>,
        column: &mut Column,
        place: Place<'_>,
    ) -> Scan<Status> {
        let Attempt { document, status } = attempt(text, self.plan.is_strict);
        let document = match document {
            Ok(document) => document,
            Err(broken) if !broken.is_cut => return Ok(Status::Invalid),
            Err(_) => {
                let is_cut_short = is_cut_short.ok_or(Stop::Exact)?;
                return Ok(if is_cut_short { Status::Truncated } else { Status::Invalid });
            }
        };
        let root = document.root();
        if !how.is_typed {
            if let Column::Text(parsed) = column
                && root.kind() != Kind::Null
            {
                parsed.set(place.row, &root.raw())?;
            }
            return Ok(status);
        }
        self.exact_value(text, root, place.shape, column, place.row, place.path)?;
        self.rescue.bound_content(place.path, root.start(), &root.raw());
        Ok(if self.rescue.has_mismatched() { status.max(Status::Mismatch) } else { status })
    }

    /// Remembers where a value stands if it is looked into later.
    fn tap(&mut self, shape: &StructShape, name: &[u8], value: Value<'_>) {
        if value.kind() != Kind::Null
            && let Some(tap) = shape.wire(name).and_then(|number| shape.wires[number].tap)
        {
            self.taps.set(tap, Span { start: value.start(), end: value.end() });
        }
    }

    fn exact_value(
        &mut self,
        line: &[u8],
        value: Value<'_>,
        shape: &Shape,
        column: &mut Column,
        row: usize,
        path: &Path<'_>,
    ) -> Scan<()> {
        let fits = match (column, value.kind()) {
            (_, Kind::Null) | (Column::Skip, _) => return Ok(()),
            (Column::Text(text), _) => return text.set(row, &value.as_text()),
            (Column::Long(fixed), Kind::Number) => {
                numbers::integral(&value.raw(), i64::MIN, i64::MAX).map(|value| fixed.set(row, value))
            }
            (Column::Int(fixed), Kind::Number) => numbers::integral(&value.raw(), i32::MIN.into(), i32::MAX.into())
                .and_then(|value| i32::try_from(value).ok())
                .map(|value| fixed.set(row, value)),
            (Column::Double(fixed), Kind::Number) => numbers::double(&value.raw()).map(|value| fixed.set(row, value)),
            (Column::Boolean(flags), Kind::True | Kind::False) => {
                flags.set(row, value.kind() == Kind::True);
                Some(())
            }
            (Column::Seconds(fixed), Kind::Number) => numbers::seconds(&value.raw()).map(|value| fixed.set(row, value)),
            (Column::Micros(fixed), Kind::Number) => {
                let (low, high) = (*numbers::MICROSECONDS.start(), *numbers::MICROSECONDS.end());
                numbers::integral(&value.raw(), low, high).map(|value| fixed.set(row, value))
            }
            (Column::List(list), Kind::Array) => {
                let shape = list_shape(shape)?;
                let first = list.runs.next();
                let mut item = first;
                for value in value.items() {
                    self.begin_item(shape.role);
                    let here = Path::index(Some(path), item - first);
                    self.exact_value(line, value, &shape.item, &mut list.item, item, &here)?;
                    item += 1;
                }
                return list.runs.set(row, item);
            }
            (Column::Map(map), Kind::Object) => {
                let shape = map_shape(shape)?;
                let mut entry = map.runs.next();
                for (name, value) in value.members(&[]) {
                    map.keys.set(entry, &name)?;
                    let here = Path::name(Some(path), &name);
                    self.exact_value(line, value, &shape.value, &mut map.value, entry, &here)?;
                    entry += 1;
                }
                return map.runs.set(row, entry);
            }
            (Column::Struct(inner), Kind::Object) => {
                let shape = struct_shape(shape)?;
                if shape.role == StructRole::Function {
                    self.taps.forget_function();
                }
                self.exact_members(line, &value.members(&[]), shape, inner, row, Some(path))?;
                inner.valid.set(row);
                return match shape.role {
                    StructRole::None => Ok(()),
                    StructRole::Choice => self.end_choice(line, shape, inner, row, Some(path)),
                    StructRole::Function => self.end_function(line, shape, inner, row, Some(path)),
                };
            }
            _ => None,
        };
        if fits.is_none() {
            self.rescue.mismatch(path, value.start(), &value.raw());
        }
        Ok(())
    }

    /// Reads members that count into their columns; those without one are kept.
    fn exact_members(
        &mut self,
        line: &[u8],
        members: &Members<'_>,
        shape: &StructShape,
        inner: &mut Struct,
        row: usize,
        path: Option<&Path<'_>>,
    ) -> Scan<()> {
        // (column, place of the name among the column's, name, value)
        let mut found = Vec::new();
        for &(ref name, value) in members {
            steps::add(name.len());
            if value.kind() == Kind::Null {
                continue;
            }
            self.tap(shape, name, value);
            match shape.wire(name).map(|number| &shape.names[number]).filter(|wire| wire.is_known) {
                Some(wire) => {
                    found.extend(wire.targets.iter().map(|&(column, rank)| (column, rank, &*wire.text, value)));
                }
                None if shape.keeps_unknown => {
                    self.rescue.unknown(&shape.unknown_path(path, name), value.start(), &value.raw());
                }
                None => {}
            }
        }
        found.sort_by_key(|&(column, rank, ..)| (column, rank));
        found.dedup_by_key(|&mut (column, ..)| column);
        for (column, _, name, value) in found {
            let column = usize::from(column);
            let here = Path::name(path, name);
            self.exact_value(line, value, &shape.members[column].shape, &mut inner.members[column], row, &here)?;
        }
        Ok(())
    }

    /// Where the answer has no error the row has the record's.
    fn exact_error(&mut self, line: &[u8], rows: &mut Struct, row: usize) -> Scan<()> {
        let object = |tap| self.taps.get(tap).filter(|span| line[span.start] == b'{');
        let (Column::Struct(error), None) = (&mut rows.members[self.plan.places.error], object(Tap::Error)) else {
            return Ok(());
        };
        let Some(document) = object(Tap::RecordError).and_then(|span| Document::prefix(line, span.start, false).ok())
        else {
            return Ok(());
        };
        let shape = struct_shape(&self.plan.rows.members[self.plan.places.error].shape)?;
        for (name, value) in document.root().members(&[]) {
            if matches!(&*name, b"message" | b"type" | b"code")
                && value.kind() != Kind::Null
                && let Some(number) = std::str::from_utf8(&name).ok().and_then(|name| shape.member(name))
                && let Column::Text(text) = &mut error.members[number]
            {
                text.set(row, &value.as_text())?;
            }
        }
        error.valid.set(row);
        Ok(())
    }
}

/// The names whose first occurrence counts: what the hook put in front, a body can't forge.
fn first_wins(root: Value<'_>) -> &'static [&'static [u8]] {
    let path =
        root.first(RECORD).filter(|record| record.kind() == Kind::Object).and_then(|record| record.last(b"path"));
    if path.is_some_and(|path| path.kind() == Kind::String && *path.string() == *RESPONSES_PATH) {
        &[RECORD, CHOICES]
    } else {
        &[RECORD]
    }
}

/// Whether there are choices and each has a finish reason other than `abort` and `error`.
fn is_finished(answer: &Members<'_>) -> bool {
    let choices = answer.iter().find(|(name, _)| &**name == CHOICES).map(|(_, value)| *value);
    let Some(choices) = choices.filter(|value| value.kind() == Kind::Array) else { return false };
    let mut reasons = choices.items().map(|choice| {
        let reason = if choice.kind() == Kind::Object { choice.last(b"finish_reason") } else { None };
        reason.is_some_and(|value| value.kind() != Kind::Null && !matches!(&*value.as_text(), b"abort" | b"error"))
    });
    reasons.next().is_some_and(|first| first && reasons.all(|finished| finished))
}
