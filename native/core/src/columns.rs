//! Columns while they are made.
//!
//! A value is set at its row, and rows that nothing is set at are null: a missing member costs nothing, and a value
//! that is known late (a verdict, a status) is set when it is known. Rows are set in rising order.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray, MapArray, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields};

use crate::error::{Scan, Stop};
use crate::shape::{Kind, Shape, StructShape};
use crate::steps;

const WORD: usize = u64::BITS as usize;

/// A bit a row.
#[derive(Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    #[inline(always)]
    pub(crate) fn set(&mut self, row: usize) {
        let word = row / WORD;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (row % WORD);
    }

    pub(crate) fn get(&self, row: usize) -> bool {
        self.words.get(row / WORD).is_some_and(|word| word >> (row % WORD) & 1 == 1)
    }

    fn truncate(&mut self, rows: usize) {
        self.words.truncate(rows.div_ceil(WORD));
        if !rows.is_multiple_of(WORD)
            && let Some(last) = self.words.get_mut(rows / WORD)
        {
            *last &= (1 << (rows % WORD)) - 1;
        }
    }

    fn finish(mut self, rows: usize) -> BooleanBuffer {
        self.words.resize(rows.div_ceil(WORD), 0);
        #[cfg(target_endian = "big")]
        self.words.iter_mut().for_each(|word| *word = word.swap_bytes());
        BooleanBuffer::new(Buffer::from_vec(self.words), 0, rows)
    }

    /// Which rows are not null; `None`: all of them.
    fn finish_nulls(self, rows: usize) -> Option<NullBuffer> {
        let nulls = NullBuffer::new(self.finish(rows));
        (nulls.null_count() > 0).then_some(nulls)
    }
}

/// Values of one size. Without `keep` nothing is kept: the values are only checked.
pub(crate) struct Fixed<T> {
    keep: bool,
    values: Vec<T>,
    valid: Bits,
}

impl<T: Copy + Default> Fixed<T> {
    fn new(keep: bool) -> Self {
        Self { keep, values: Vec::new(), valid: Bits::default() }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, row: usize, value: T) {
        if self.keep {
            if self.values.len() != row {
                self.values.resize(row, T::default());
            }
            self.values.push(value);
            self.valid.set(row);
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        self.valid.truncate(rows);
    }

    fn finish(mut self, rows: usize) -> (ScalarBuffer<T>, Option<NullBuffer>)
    where
        T: arrow_buffer::ArrowNativeType,
    {
        self.values.resize(rows, T::default());
        (self.values.into(), self.valid.finish_nulls(rows))
    }
}

/// Truth values.
pub(crate) struct Flags {
    keep: bool,
    values: Bits,
    valid: Bits,
}

impl Flags {
    #[inline(always)]
    pub(crate) fn set(&mut self, row: usize, value: bool) {
        if self.keep {
            if value {
                self.values.set(row);
            }
            self.valid.set(row);
        }
    }
}

/// Texts.
#[derive(Default)]
pub(crate) struct Text {
    /// Ends of the rows so far, behind a 0.
    offsets: Vec<i32>,
    /// The texts; what stands behind `used` is scratch space.
    pub(crate) data: Vec<u8>,
    used: usize,
    valid: Bits,
}

impl Text {
    /// Makes all rows before `row` be there.
    #[inline(always)]
    fn begin(&mut self, row: usize) -> Scan<i32> {
        let end = i32::try_from(self.used).map_err(|_| Stop::TooLarge)?;
        if self.offsets.len() != row + 1 {
            self.offsets.resize(row + 1, end);
        }
        Ok(end)
    }

    #[inline(always)]
    fn end(&mut self, row: usize, used: usize) -> Scan<()> {
        self.offsets.push(i32::try_from(used).map_err(|_| Stop::TooLarge)?);
        self.used = used;
        self.valid.set(row);
        Ok(())
    }

    /// Sets what a function writes behind the used part of the data; it gives the new end of that.
    #[inline(always)]
    pub(crate) fn set_with(&mut self, row: usize, write: impl FnOnce(&mut Vec<u8>, usize) -> Scan<usize>) -> Scan<()> {
        self.begin(row)?;
        let used = write(&mut self.data, self.used)?;
        self.end(row, used)
    }

    #[inline]
    pub(crate) fn set(&mut self, row: usize, text: &[u8]) -> Scan<()> {
        self.set_with(row, |data, used| {
            steps::add(text.len());
            let end = used + text.len();
            if data.len() < end {
                data.resize(end + end / 2, 0);
            }
            data[used..end].copy_from_slice(text);
            Ok(end)
        })
    }

    /// Where the text of the row that was set last stands in the data, if it is `row`.
    pub(crate) fn last(&self, row: usize) -> Option<std::ops::Range<usize>> {
        let (end, before) = self.offsets.split_last()?;
        (before.len() == row + 1 && self.valid.get(row)).then(|| {
            let start = before.last().copied().unwrap_or_default();
            usize::try_from(start).unwrap_or_default()..usize::try_from(*end).unwrap_or_default()
        })
    }

    /// The text of a row that was set.
    pub(crate) fn get(&self, row: usize) -> &[u8] {
        let end = |i: usize| self.offsets.get(i).and_then(|&end| usize::try_from(end).ok()).unwrap_or_default();
        &self.data[end(row)..end(row + 1)]
    }

    fn truncate(&mut self, rows: usize) {
        if self.offsets.len() > rows + 1 {
            self.offsets.truncate(rows + 1);
            self.used = self.offsets.last().and_then(|&end| usize::try_from(end).ok()).unwrap_or_default();
        }
        self.valid.truncate(rows);
    }

    fn finish(mut self, rows: usize) -> Result<ArrayRef, ArrowError> {
        self.begin(rows).map_err(|_| too_large())?;
        self.data.truncate(self.used);
        let offsets = OffsetBuffer::new(self.offsets.into());
        Ok(Arc::new(StringArray::try_new(offsets, self.data.into(), self.valid.finish_nulls(rows))?))
    }
}

/// Where the items of each row begin and end among those of all rows.
#[derive(Default)]
pub(crate) struct Runs {
    offsets: Vec<i32>,
    valid: Bits,
}

impl Runs {
    /// The first item that a new row gets.
    #[inline(always)]
    pub(crate) fn next(&self) -> usize {
        self.offsets.last().and_then(|&end| usize::try_from(end).ok()).unwrap_or_default()
    }

    /// The row's items are those from `next` to before `end`.
    #[inline(always)]
    pub(crate) fn set(&mut self, row: usize, end: usize) -> Scan<()> {
        let end = i32::try_from(end).map_err(|_| Stop::TooLarge)?;
        self.pad(row);
        self.offsets.push(end);
        self.valid.set(row);
        Ok(())
    }

    #[inline(always)]
    fn pad(&mut self, row: usize) {
        if self.offsets.len() != row + 1 {
            let last = self.offsets.last().copied().unwrap_or_default();
            self.offsets.resize(row + 1, last);
        }
    }

    fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.valid.truncate(rows);
    }

    fn finish(mut self, rows: usize) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        self.pad(rows);
        (OffsetBuffer::new(self.offsets.into()), self.valid.finish_nulls(rows))
    }
}

pub(crate) struct List {
    pub(crate) runs: Runs,
    pub(crate) item: Column,
}

pub(crate) struct Map {
    pub(crate) runs: Runs,
    pub(crate) keys: Text,
    pub(crate) value: Column,
}

/// What an object's walk keeps of a wire name and of a member.
#[derive(Clone, Copy, Default)]
pub(crate) struct Seen {
    /// The object that it was seen in last.
    pub(crate) object: u64,
    /// Of a member with several wire names: the place among them of the one that counts so far.
    pub(crate) rank: u16,
}

pub(crate) struct Struct {
    pub(crate) members: Vec<Column>,
    pub(crate) valid: Bits,
    /// By wire name: when it was seen.
    pub(crate) wires: Vec<Seen>,
    /// By member: when it was filled.
    pub(crate) filled: Vec<Seen>,
    /// By wire name, behind that of the beginning: the wire name that came next the last time.
    pub(crate) next: Vec<u16>,
}

/// The columns of one place of the rows.
pub(crate) enum Column {
    /// Nothing is made here, and any value will do.
    Skip,
    Text(Text),
    Long(Fixed<i64>),
    Int(Fixed<i32>),
    Double(Fixed<f64>),
    Boolean(Flags),
    Seconds(Fixed<i64>),
    Micros(Fixed<i64>),
    List(Box<List>),
    Map(Box<Map>),
    Struct(Box<Struct>),
}

impl Column {
    pub(crate) fn new(shape: &Shape) -> Self {
        let keep = shape.arrow.is_some();
        match &shape.kind {
            Kind::Skip => Self::Skip,
            Kind::Text => Self::Text(Text::default()),
            Kind::Long => Self::Long(Fixed::new(keep)),
            Kind::Int => Self::Int(Fixed::new(keep)),
            Kind::Double => Self::Double(Fixed::new(keep)),
            Kind::Boolean => Self::Boolean(Flags { keep, values: Bits::default(), valid: Bits::default() }),
            Kind::Seconds => Self::Seconds(Fixed::new(keep)),
            Kind::Micros => Self::Micros(Fixed::new(keep)),
            Kind::List(list) => Self::List(Box::new(List { runs: Runs::default(), item: Self::new(&list.item) })),
            Kind::Map(map) => {
                Self::Map(Box::new(Map { runs: Runs::default(), keys: Text::default(), value: Self::new(&map.value) }))
            }
            Kind::Struct(shape) => Self::Struct(Box::new(Struct::new(shape))),
        }
    }

    /// Takes back the rows from `rows` on, at every level.
    pub(crate) fn truncate(&mut self, rows: usize) {
        steps::add(1);
        match self {
            Self::Skip => {}
            Self::Text(text) => text.truncate(rows),
            Self::Long(fixed) | Self::Seconds(fixed) | Self::Micros(fixed) => fixed.truncate(rows),
            Self::Int(fixed) => fixed.truncate(rows),
            Self::Double(fixed) => fixed.truncate(rows),
            Self::Boolean(flags) => {
                flags.values.truncate(rows);
                flags.valid.truncate(rows);
            }
            Self::List(list) => {
                list.runs.truncate(rows);
                list.item.truncate(list.runs.next());
            }
            Self::Map(map) => {
                map.runs.truncate(rows);
                map.keys.truncate(map.runs.next());
                map.value.truncate(map.runs.next());
            }
            Self::Struct(inner) => inner.truncate(rows),
        }
    }

    /// The array of the first `rows` rows, of the type that the shape gives.
    pub(crate) fn finish(self, shape: &Shape, rows: usize) -> Result<ArrayRef, ArrowError> {
        let arrow = shape.arrow.as_ref().ok_or_else(|| defect("a column that is not kept is finished"))?;
        Ok(match (self, &shape.kind, arrow) {
            (Self::Text(text), _, _) => text.finish(rows)?,
            (Self::Long(fixed), _, _) => {
                let (values, nulls) = fixed.finish(rows);
                Arc::new(Int64Array::try_new(values, nulls)?)
            }
            (Self::Int(fixed), _, _) => {
                let (values, nulls) = fixed.finish(rows);
                Arc::new(Int32Array::try_new(values, nulls)?)
            }
            (Self::Double(fixed), _, _) => {
                let (values, nulls) = fixed.finish(rows);
                Arc::new(Float64Array::try_new(values, nulls)?)
            }
            (Self::Boolean(flags), _, _) => {
                Arc::new(BooleanArray::new(flags.values.finish(rows), flags.valid.finish_nulls(rows)))
            }
            (Self::Seconds(fixed) | Self::Micros(fixed), _, DataType::Timestamp(_, zone)) => {
                let (values, nulls) = fixed.finish(rows);
                Arc::new(TimestampMicrosecondArray::try_new(values, nulls)?.with_timezone_opt(zone.clone()))
            }
            (Self::List(list), Kind::List(shape), DataType::List(field)) => {
                let items = list.runs.next();
                let (offsets, nulls) = list.runs.finish(rows);
                let values = list.item.finish(&shape.item, items)?;
                Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, nulls)?)
            }
            (Self::Map(map), Kind::Map(shape), DataType::Map(field, sorted)) => {
                let items = map.runs.next();
                let (offsets, nulls) = map.runs.finish(rows);
                let columns = vec![map.keys.finish(items)?, map.value.finish(&shape.value, items)?];
                let entries = StructArray::try_new(struct_fields(field)?, columns, None)?;
                Arc::new(MapArray::try_new(Arc::clone(field), offsets, entries, nulls, *sorted)?)
            }
            (Self::Struct(inner), Kind::Struct(shape), DataType::Struct(fields)) => {
                Arc::new(inner.finish(shape, fields.clone(), rows)?)
            }
            _ => return Err(defect("a column is of another kind than its shape")),
        })
    }
}

impl Struct {
    pub(crate) fn new(shape: &StructShape) -> Self {
        Self {
            members: shape.members.iter().map(|member| Column::new(&member.shape)).collect(),
            valid: Bits::default(),
            wires: vec![Seen::default(); shape.wires.len()],
            filled: vec![Seen::default(); shape.members.len()],
            next: vec![u16::MAX; shape.wires.len() + 1],
        }
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.valid.truncate(rows);
        for member in &mut self.members {
            member.truncate(rows);
        }
    }

    /// The arrays of the members that are kept, in the order in which they are wanted.
    pub(crate) fn finish_members(self, shape: &StructShape, rows: usize) -> Result<Vec<ArrayRef>, ArrowError> {
        let mut members: Vec<Option<Column>> = self.members.into_iter().map(Some).collect();
        shape
            .output
            .iter()
            .map(|&number| {
                let column = members[number].take().ok_or_else(|| defect("a member is wanted twice"))?;
                column.finish(&shape.members[number].shape, rows)
            })
            .collect()
    }

    fn finish(mut self, shape: &StructShape, fields: Fields, rows: usize) -> Result<StructArray, ArrowError> {
        let valid = std::mem::take(&mut self.valid);
        let nulls = if shape.is_always_there { None } else { valid.finish_nulls(rows) };
        StructArray::try_new(fields, self.finish_members(shape, rows)?, nulls)
    }
}

fn struct_fields(field: &Field) -> Result<Fields, ArrowError> {
    match field.data_type() {
        DataType::Struct(fields) => Ok(fields.clone()),
        _ => Err(defect("a map's entries are no struct")),
    }
}

fn defect(what: &str) -> ArrowError {
    ArrowError::InvalidArgumentError(what.to_owned())
}

fn too_large() -> ArrowError {
    ArrowError::OffsetOverflowError(i32::MAX as usize)
}
