//! Columns while they are made.
//!
//! A value is set at its row, and rows that nothing is set at are null: a missing member costs nothing, and a value
//! that is known late (a verdict, a status) is set when it is known. Rows are set in rising order.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray, MapArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow_buffer::{ArrowNativeType, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Fields};

use crate::bits::{Bits, Valid, WORD, Zeros};
use crate::blocks::foresee;
use crate::error::{Scan, Stop};
use crate::shape::{Kind, Shape, StructShape};
use crate::steps;
use crate::text::{Text, make_room, place};
use crate::wire::Wire;

/// Values of one size. Without `keep` nothing is kept: the values are only checked.
pub(crate) struct Fixed<T> {
    keep: bool,
    values: Vec<T>,
    valid: Valid,
}

impl<T: Copy + Default> Fixed<T> {
    fn new(keep: bool) -> Self {
        Self { keep, values: Vec::new(), valid: Valid::default() }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, row: usize, value: T) {
        if self.keep {
            if self.values.len() != row {
                self.leave_out(row);
            }
            foresee(&self.values, row);
            if self.values.len() == self.values.capacity() {
                make_room(&mut self.values);
            }
            self.values.push(value);
            self.valid.set(row);
        }
    }

    /// The rows up to before this one are null.
    #[inline(never)]
    fn leave_out(&mut self, row: usize) {
        self.valid.leave_out(self.values.len());
        self.values.resize(row, T::default());
    }

    fn truncate(&mut self, rows: usize) {
        self.values.truncate(rows);
        self.valid.truncate(rows);
    }

    fn finish(mut self, rows: usize, zeros: &mut Zeros) -> (ScalarBuffer<T>, Option<NullBuffer>)
    where
        T: ArrowNativeType,
    {
        if self.values.is_empty() {
            return (zeros.values(rows), zeros.nulls(rows));
        }
        if self.values.len() != rows {
            self.leave_out(rows);
        }
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
        self.offsets.last().copied().map_or(0, place)
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

    #[inline]
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

    fn finish(mut self, rows: usize, zeros: &mut Zeros) -> (OffsetBuffer<i32>, Option<NullBuffer>) {
        let offsets = if self.valid.is_empty() {
            zeros.offsets(rows)
        } else {
            self.pad(rows);
            OffsetBuffer::new(self.offsets.into())
        };
        (offsets, self.valid.finish_nulls(rows, zeros))
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

/// When a member with several wire names was filled.
#[derive(Clone, Copy, Default)]
pub(crate) struct Filled {
    /// The object that it was filled in last.
    pub(crate) object: u64,
    /// The place among its names of the one that counts so far.
    pub(crate) rank: u16,
}

/// The wire names that were seen in the object at hand.
#[derive(Default)]
pub(crate) struct Seen {
    first: u64,
    more: Vec<u64>,
}

impl Seen {
    fn new(names: usize) -> Self {
        Self { first: 0, more: vec![0; names.saturating_sub(1) / WORD] }
    }

    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        self.first = 0;
        if !self.more.is_empty() {
            self.more.fill(0);
        }
    }

    /// Whether a name is seen for the first time.
    #[inline(always)]
    pub(crate) fn note(&mut self, name: usize) -> bool {
        let word = match name.checked_sub(WORD) {
            None => &mut self.first,
            Some(name) => &mut self.more[name / WORD],
        };
        let bit = 1 << (name % WORD);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

pub(crate) struct Struct {
    pub(crate) members: Vec<Column>,
    pub(crate) valid: Bits,
    /// Number of the object at hand, and the names seen in it.
    pub(crate) object: u64,
    pub(crate) seen: Seen,
    /// By member: when it was filled.
    pub(crate) filled: Vec<Filled>,
    /// The wire names that mean something, with what is learned of their order.
    pub(crate) wires: Vec<Wire>,
    /// The wire name that came first the last time.
    pub(crate) first: u16,
}

/// The columns of one place of the rows. As large as a line of the cache, and on it: a record touches many of them.
#[repr(align(64))]
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
    pub(crate) fn finish(self, shape: &Shape, rows: usize, zeros: &mut Zeros) -> Result<ArrayRef, ArrowError> {
        let arrow = shape.arrow.as_ref().ok_or_else(|| defect("a column that is not kept is finished"))?;
        Ok(match (self, &shape.kind, arrow) {
            (Self::Text(text), _, _) => text.finish(rows, zeros)?,
            (Self::Long(fixed), _, _) => {
                let (values, nulls) = fixed.finish(rows, zeros);
                Arc::new(Int64Array::try_new(values, nulls)?)
            }
            (Self::Int(fixed), _, _) => {
                let (values, nulls) = fixed.finish(rows, zeros);
                Arc::new(Int32Array::try_new(values, nulls)?)
            }
            (Self::Double(fixed), _, _) => {
                let (values, nulls) = fixed.finish(rows, zeros);
                Arc::new(Float64Array::try_new(values, nulls)?)
            }
            (Self::Boolean(flags), _, _) => {
                Arc::new(BooleanArray::new(flags.values.finish(rows), flags.valid.finish_nulls(rows, zeros)))
            }
            (Self::Seconds(fixed) | Self::Micros(fixed), _, DataType::Timestamp(_, zone)) => {
                let (values, nulls) = fixed.finish(rows, zeros);
                Arc::new(TimestampMicrosecondArray::try_new(values, nulls)?.with_timezone_opt(zone.clone()))
            }
            (Self::List(list), Kind::List(shape), DataType::List(field)) => {
                let items = list.runs.next();
                let (offsets, nulls) = list.runs.finish(rows, zeros);
                let values = list.item.finish(&shape.item, items, zeros)?;
                Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, nulls)?)
            }
            (Self::Map(map), Kind::Map(shape), DataType::Map(field, sorted)) => {
                let items = map.runs.next();
                let (offsets, nulls) = map.runs.finish(rows, zeros);
                let columns = vec![map.keys.finish(items, zeros)?, map.value.finish(&shape.value, items, zeros)?];
                let entries = StructArray::try_new(struct_fields(field)?, columns, None)?;
                Arc::new(MapArray::try_new(Arc::clone(field), offsets, entries, nulls, *sorted)?)
            }
            (Self::Struct(inner), Kind::Struct(shape), DataType::Struct(fields)) => {
                Arc::new(inner.finish(shape, fields.clone(), rows, zeros)?)
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
            object: 0,
            seen: Seen::new(shape.wires.len()),
            filled: vec![Filled::default(); shape.members.len()],
            wires: shape.wires.clone(),
            first: 0,
        }
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.valid.truncate(rows);
        for member in &mut self.members {
            member.truncate(rows);
        }
    }

    /// The arrays of the members that are kept, in the order in which they are wanted.
    pub(crate) fn finish_members(
        self,
        shape: &StructShape,
        rows: usize,
        zeros: &mut Zeros,
    ) -> Result<Vec<ArrayRef>, ArrowError> {
        let mut members: Vec<Option<Column>> = self.members.into_iter().map(Some).collect();
        shape
            .output
            .iter()
            .map(|&number| {
                let column = members[number].take().ok_or_else(|| defect("a member is wanted twice"))?;
                column.finish(&shape.members[number].shape, rows, zeros)
            })
            .collect()
    }

    fn finish(
        mut self,
        shape: &StructShape,
        fields: Fields,
        rows: usize,
        zeros: &mut Zeros,
    ) -> Result<StructArray, ArrowError> {
        let valid = std::mem::take(&mut self.valid);
        let nulls = if shape.is_always_there { None } else { valid.finish_nulls(rows, zeros) };
        StructArray::try_new(fields, self.finish_members(shape, rows, zeros)?, nulls)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_fills_a_line_of_the_cache() {
        assert_eq!((size_of::<Column>(), size_of::<Wire>()), (64, 64));
    }
}
