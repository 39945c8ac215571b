//! Which rows are not null, and what stands in those that are.

use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};

pub(crate) const WORD: usize = u64::BITS as usize;

/// A bit a row. As long as rows are set without a gap they are only counted.
#[derive(Default)]
pub(crate) struct Bits {
    /// This many first rows are set, where there are no words.
    dense: usize,
    words: Option<Box<Words>>,
}

#[derive(Default)]
struct Words {
    words: Vec<u64>,
}

impl Words {
    /// With the first `rows` rows set.
    #[cold]
    fn of(rows: usize) -> Self {
        let mut words = vec![u64::MAX; rows / WORD + 1];
        words[rows / WORD] = (1 << (rows % WORD)) - 1;
        Self { words }
    }

    #[inline]
    fn set(&mut self, row: usize) {
        let word = row / WORD;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (row % WORD);
    }

    fn get(&self, row: usize) -> bool {
        self.words.get(row / WORD).is_some_and(|word| word >> (row % WORD) & 1 == 1)
    }

    fn truncate(&mut self, rows: usize) {
        self.words.truncate(rows / WORD + 1);
        if let Some(last) = self.words.get_mut(rows / WORD) {
            *last &= (1 << (rows % WORD)) - 1;
        }
    }

    fn finish(self, rows: usize) -> BooleanBuffer {
        let mut words = self.words;
        words.resize(rows.div_ceil(WORD), 0);
        #[cfg(target_endian = "big")]
        words.iter_mut().for_each(|word| *word = word.swap_bytes());
        BooleanBuffer::new(Buffer::from_vec(words), 0, rows)
    }
}

impl Bits {
    #[inline(always)]
    pub(crate) fn set(&mut self, row: usize) {
        match &mut self.words {
            None if row == self.dense => self.dense += 1,
            None if row < self.dense => {}
            None => self.words.insert(Words::of(self.dense).into()).set(row),
            Some(words) => words.set(row),
        }
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        self.dense = self.dense.min(rows);
        if let Some(words) = &mut self.words {
            words.truncate(rows);
        }
    }

    pub(crate) fn finish(self, rows: usize) -> BooleanBuffer {
        self.words.map_or_else(|| Words::of(self.dense), |words| *words).finish(rows)
    }

    /// Whether no row was set.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_none() && self.dense == 0
    }

    /// Which rows are not null; `None`: all of them.
    pub(crate) fn finish_nulls(self, rows: usize, zeros: &mut Zeros) -> Option<NullBuffer> {
        if self.words.is_none() && self.dense == rows {
            return None;
        }
        if self.is_empty() {
            return zeros.nulls(rows);
        }
        let nulls = NullBuffer::new(self.finish(rows));
        (nulls.null_count() > 0).then_some(nulls)
    }
}

/// Which rows are not null, for a column that knows how many rows it has: as long as no row is left out nothing is kept.
#[derive(Default)]
pub(crate) struct Valid {
    words: Option<Box<Words>>,
}

impl Valid {
    /// The first `rows` rows of the column are there, and the next ones are not.
    #[cold]
    pub(crate) fn leave_out(&mut self, rows: usize) {
        self.words.get_or_insert_with(|| Words::of(rows).into());
    }

    /// The row behind the last one of the column is there.
    #[inline(always)]
    pub(crate) fn set(&mut self, row: usize) {
        if let Some(words) = &mut self.words {
            words.set(row);
        }
    }

    /// Whether a row that the column has is there.
    pub(crate) fn get(&self, row: usize) -> bool {
        self.words.as_ref().is_none_or(|words| words.get(row))
    }

    pub(crate) fn truncate(&mut self, rows: usize) {
        if let Some(words) = &mut self.words {
            words.truncate(rows);
        }
    }

    /// Which rows are not null; `None`: all of them.
    pub(crate) fn finish_nulls(self, rows: usize) -> Option<NullBuffer> {
        let nulls = NullBuffer::new(self.words?.finish(rows));
        (nulls.null_count() > 0).then_some(nulls)
    }
}

/// Zeros that all columns share which were never set: most are not, and a row is in every one of them.
#[derive(Default)]
pub(crate) struct Zeros {
    bytes: Option<Buffer>,
    offsets: Option<OffsetBuffer<i32>>,
}

impl Zeros {
    /// This many bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Buffer {
        match &self.bytes {
            Some(bytes) if bytes.len() >= count => bytes.slice_with_length(0, count),
            _ => self
                .bytes
                .insert(MutableBuffer::from_len_zeroed(count.next_power_of_two()).into())
                .slice_with_length(0, count),
        }
    }

    /// This many values.
    pub(crate) fn values<T: ArrowNativeType>(&mut self, count: usize) -> ScalarBuffer<T> {
        ScalarBuffer::new(self.bytes(count * size_of::<T>()), 0, count)
    }

    /// Nulls for this many rows, if there are any.
    pub(crate) fn nulls(&mut self, rows: usize) -> Option<NullBuffer> {
        (rows > 0).then(|| NullBuffer::new(BooleanBuffer::new(self.bytes(rows.div_ceil(8)), 0, rows)))
    }

    /// The offsets of this many rows without anything in them.
    pub(crate) fn offsets(&mut self, rows: usize) -> OffsetBuffer<i32> {
        match &self.offsets {
            Some(offsets) if offsets.len() > rows => offsets.slice(0, rows),
            _ => {
                let values = self.values((rows + 1).next_power_of_two());
                self.offsets.insert(OffsetBuffer::new(values)).slice(0, rows)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_those_of_the_rows_set_and_not_taken_back() {
        for gap in [None, Some(0), Some(63), Some(64), Some(100), Some(127)] {
            for kept in [0, 1, 63, 64, 65, 100, 128, 130] {
                let mut bits = Bits::default();
                (0..130).filter(|&row| Some(row) != gap).for_each(|row| bits.set(row));
                bits.truncate(kept);
                bits.set(131);
                let expected: Vec<bool> = (0..140).map(|row| row == 131 || (row < kept && Some(row) != gap)).collect();
                assert_eq!(bits.finish(140).iter().collect::<Vec<_>>(), expected);
            }
        }
    }
}
