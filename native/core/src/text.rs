//! A column of texts while it is made.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::ArrowError;

use crate::bits::{Valid, Zeros};
use crate::blocks::foresee;
use crate::error::{Scan, Stop};
use crate::scan::grow;
use crate::steps;

/// Texts.
#[derive(Default)]
pub(crate) struct Text {
    /// Ends of the rows so far, behind a 0.
    offsets: Vec<i32>,
    /// The texts; what stands behind the last end is scratch space.
    pub(crate) data: Vec<u8>,
    valid: Valid,
}

impl Text {
    /// Makes all rows before `row` be there; where its text begins.
    #[inline(always)]
    pub(crate) fn begin(&mut self, row: usize) -> usize {
        if self.offsets.len() != row + 1 {
            self.leave_out(row);
        }
        place(self.offsets[row])
    }

    /// The rows up to before this one are null.
    #[inline(never)]
    fn leave_out(&mut self, row: usize) {
        if self.offsets.is_empty() {
            self.offsets.push(0);
        }
        if self.offsets.len() != row + 1 {
            self.valid.leave_out(self.offsets.len() - 1);
            self.offsets.resize(row + 1, self.offsets.last().copied().unwrap_or_default());
        }
    }

    /// The text of the row that was begun is what was written to the data from its beginning to here.
    #[inline(always)]
    pub(crate) fn end(&mut self, row: usize, used: usize) -> Scan<()> {
        foresee(&self.data, used);
        foresee(&self.offsets, row);
        if self.offsets.len() == self.offsets.capacity() {
            make_room(&mut self.offsets);
        }
        self.offsets.push(i32::try_from(used).map_err(|_| Stop::TooLarge)?);
        self.valid.set(row);
        Ok(())
    }

    #[inline]
    pub(crate) fn set(&mut self, row: usize, text: &[u8]) -> Scan<()> {
        steps::add(text.len());
        let used = self.begin(row);
        let end = used + text.len();
        if self.data.len() < end {
            grow(&mut self.data, used, text.len());
        }
        self.data[used..end].copy_from_slice(text);
        self.end(row, end)
    }

    /// Sets the first `rows` rows, none of which was set, to one text.
    pub(crate) fn fill(&mut self, rows: usize, text: &[u8]) -> Scan<()> {
        steps::add(rows * text.len());
        i32::try_from(rows * text.len()).map_err(|_| Stop::TooLarge)?;
        let step = i32::try_from(text.len()).map_err(|_| Stop::TooLarge)?;
        self.data = text.repeat(rows);
        self.offsets = std::iter::successors(Some(0), |end| Some(end + step)).take(rows + 1).collect();
        self.valid = Valid::default();
        Ok(())
    }

    /// Where the text of the row that was set last stands in the data, if it is `row`.
    pub(crate) fn last(&self, row: usize) -> Option<std::ops::Range<usize>> {
        (self.offsets.len() == row + 2 && self.valid.get(row)).then(|| self.range(row))
    }

    /// The text of a row that was set.
    pub(crate) fn get(&self, row: usize) -> &[u8] {
        &self.data[self.range(row)]
    }

    fn range(&self, row: usize) -> std::ops::Range<usize> {
        place(self.offsets[row])..place(self.offsets[row + 1])
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        self.valid.truncate(rows);
    }

    pub(crate) fn finish(mut self, rows: usize, zeros: &mut Zeros) -> Result<ArrayRef, ArrowError> {
        if self.offsets.len() < 2 {
            return Ok(Arc::new(StringArray::try_new(zeros.offsets(rows), zeros.bytes(0), zeros.nulls(rows))?));
        }
        let used = self.begin(rows);
        self.data.truncate(used);
        let offsets = OffsetBuffer::new(self.offsets.into());
        let (data, nulls) = (self.data.into(), self.valid.finish_nulls(rows));
        if cfg!(debug_assertions) {
            return Ok(Arc::new(StringArray::try_new(offsets, data, nulls)?));
        }
        // SAFETY: the offsets rise and end at `used`, and there is a bit for each row. All texts are pieces of lines,
        // which are UTF-8, cut at ASCII characters, characters that escapes mean, or names of this crate: checked again
        // they would cost as much as half of what writing them does.
        #[expect(unsafe_code, reason = "what is checked once is not checked twice")]
        Ok(Arc::new(unsafe { StringArray::new_unchecked(offsets, data, nulls) }))
    }
}

/// Makes a buffer four times as large. Room that nothing is written to is no memory yet, and a batch makes a hundred
/// buffers.
#[cold]
#[inline(never)]
pub(crate) fn make_room<T>(values: &mut Vec<T>) {
    const FEWEST: usize = 256;
    values.reserve(FEWEST.max(3 * values.len()));
}

/// An offset, which is never negative, as a place.
#[inline(always)]
pub(crate) fn place(offset: i32) -> usize {
    offset.cast_unsigned() as usize
}
