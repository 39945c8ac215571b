//! A batch of records to a batch of rows.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::ArrowError;

use crate::bits::Zeros;
use crate::columns::{Column, Struct};
use crate::content::Status;
use crate::document::{Document, Kind};
use crate::error::{BatchError, Scan, Stop};
use crate::plan::{Mode, Plan};
use crate::reader::Reader;
use crate::scan::{PADDING, padded};

/// Records of one lane as they lie in memory: record `i` has the number `first_seq + i` and is
/// `buffer[ends[i - 1]..ends[i]]` (the first one begins at 0), its line feed included.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    /// The lines.
    pub buffer: &'a [u8],
    /// Where each record ends.
    pub ends: &'a [u64],
    /// When each record was appended, in microseconds since 1970.
    pub appended_at: &'a [i64],
    /// Number of the first record.
    pub first_seq: u64,
    /// The spool.
    pub spool_id: &'a str,
    /// The lane.
    pub lane: &'a str,
}

/// Counts of one batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records of the batch.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Lines that can't be read.
    pub corrupt: u64,
    /// Values of another type than declared.
    pub mismatches: u64,
    /// Contents with the status `invalid`.
    pub invalid: u64,
    /// Contents with the status `truncated`.
    pub truncated: u64,
    /// Rows left out by the mode.
    pub dropped: u64,
    /// Records left out by the filters; no count but the first two has them.
    pub filtered: u64,
}

/// What became of a line.
enum Outcome {
    Read,
    Corrupt,
    Filtered,
}

/// The rows of the records, in order, with the columns of the plan.
///
/// # Errors
///
/// Where the spans don't fit, the mode is `FAILFAST` and a record is malformed, or a column gets too large. A panic of
/// the engine is an error too, with the number of the record.
pub fn parse(records: &Records<'_>, plan: &Plan) -> Result<(RecordBatch, Stats), BatchError> {
    guarded(records.first_seq, |at| parse_all(records, plan, at))
}

/// Makes an error of a panic; `at` is the number of the record at hand.
fn guarded<T>(first_seq: u64, work: impl FnOnce(&Cell<u64>) -> Result<T, BatchError>) -> Result<T, BatchError> {
    let at = Cell::new(first_seq);
    catch_unwind(AssertUnwindSafe(|| work(&at)))
        .unwrap_or_else(|panic| Err(BatchError::Internal { seq: at.get(), what: said(&*panic) }))
}

fn said(panic: &dyn Any) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

fn parse_all(records: &Records<'_>, plan: &Plan, at: &Cell<u64>) -> Result<(RecordBatch, Stats), BatchError> {
    let mut lines = Lines::of(records)?;
    let mut stats = Stats { records: records.ends.len() as u64, bytes: lines.buffer.len() as u64, ..Stats::default() };
    let mut rows = Struct::new(&plan.rows);
    let mut reader = Reader::new(plan);
    // The places in the batch of the records that are rows.
    let mut kept = Vec::with_capacity(records.ends.len());
    for (number, seq) in (0..records.ends.len()).zip(records.first_seq..) {
        at.set(seq);
        let text = lines.line(number);
        let outcome = reader.line(&text, &mut rows, kept.len()).map_err(|stop| failure(stop, seq))?;
        if takes(plan.mode, &reader, &outcome, seq, &mut stats)? {
            kept.push(number);
        } else {
            rows.truncate(kept.len());
        }
    }
    fill_positions(plan, records, &kept, &mut rows).map_err(|stop| failure(stop, at.get()))?;
    let batch = finish(plan, rows, kept.len());
    let batch = batch.map_err(|error| BatchError::Internal { seq: at.get(), what: error.to_string() })?;
    Ok((batch, stats))
}

fn failure(stop: Stop, seq: u64) -> BatchError {
    match stop {
        Stop::TooLarge => BatchError::TooLarge { seq },
        _ => BatchError::Internal { seq, what: format!("it stopped with {stop:?}") },
    }
}

/// Whether the record becomes a row; counts it.
fn takes(mode: Mode, reader: &Reader<'_>, outcome: &Outcome, seq: u64, stats: &mut Stats) -> Result<bool, BatchError> {
    let is_corrupt = match outcome {
        Outcome::Filtered => {
            stats.filtered += 1;
            return Ok(false);
        }
        Outcome::Corrupt => true,
        Outcome::Read => false,
    };
    stats.corrupt += u64::from(is_corrupt);
    stats.mismatches += reader.rescue.mismatches;
    stats.invalid += reader.answer.invalid;
    stats.truncated += reader.answer.truncated;
    match mode {
        Mode::Permissive => Ok(true),
        Mode::DropMalformed => {
            let is_malformed = is_corrupt || reader.answer.is_lost();
            stats.dropped += u64::from(is_malformed);
            Ok(!is_malformed)
        }
        Mode::FailFast => {
            let failed = reader.answer.failed;
            if is_corrupt || failed.is_some() {
                return Err(BatchError::Malformed { seq, status: failed.map(Status::name) });
            }
            Ok(true)
        }
    }
}

/// Bytes of lines that are checked together: the lines are read from the cache then.
const CHECKED_TOGETHER: usize = 1 << 16;

/// The lines of a batch.
struct Lines<'a> {
    buffer: &'a [u8],
    ends: &'a [u64],
    /// Up to which line, and whether, the last ones checked together are UTF-8.
    checked: usize,
    is_utf8: bool,
}

impl<'a> Lines<'a> {
    fn of(records: &Records<'a>) -> Result<Self, BatchError> {
        let Records { buffer, ends, appended_at, .. } = *records;
        if ends.len() != appended_at.len() {
            return Err(BatchError::Spans(format!("{} ends, {} times", ends.len(), appended_at.len())));
        }
        let last = ends.last().copied().unwrap_or(0);
        let inside = usize::try_from(last).ok().and_then(|last| buffer.get(..last));
        let (Some(buffer), true) = (inside, ends.is_sorted()) else {
            return Err(BatchError::Spans(format!("the ends go beyond {} bytes, or back", buffer.len())));
        };
        Ok(Self { buffer, ends, checked: 0, is_utf8: true })
    }

    /// Where a line begins, or all of them end.
    fn place(&self, number: usize) -> usize {
        number.checked_sub(1).map_or(0, |last| usize::try_from(self.ends[last]).unwrap_or(self.buffer.len()))
    }

    /// The next record without its line feed, what is not UTF-8 in it replaced, and its padding. Records are asked for in
    /// order.
    fn line(&mut self, number: usize) -> Cow<'a, [u8]> {
        let (start, end) = (self.place(number), self.place(number + 1));
        if number >= self.checked {
            let inside = |&&end: &&u64| usize::try_from(end).is_ok_and(|end| end <= start + CHECKED_TOGETHER);
            self.checked = number + self.ends[number..].iter().take_while(inside).count().max(1);
            self.is_utf8 = simdutf8::basic::from_utf8(&self.buffer[start..self.place(self.checked)]).is_ok();
        }
        let line = &self.buffer[start..end];
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let is_whole = |at: usize| self.buffer.get(at).is_none_or(|byte| byte & 0xc0 != 0x80);
        let is_utf8 = (self.is_utf8 && is_whole(start) && is_whole(end)) || simdutf8::basic::from_utf8(line).is_ok();
        // A line feed ends it: what follows in the buffer will do for its padding.
        if is_utf8
            && line.len() < end - start
            && let Some(text) = self.buffer.get(start..start + line.len() + PADDING)
        {
            Cow::Borrowed(text)
        } else if is_utf8 {
            Cow::Owned(padded(line))
        } else {
            Cow::Owned(padded(String::from_utf8_lossy(line).as_bytes()))
        }
    }
}

impl Reader<'_> {
    /// Reads a line, which has its padding in `text`, whatever it holds, into the columns at `row`.
    fn line(&mut self, text: &[u8], rows: &mut Struct, row: usize) -> Scan<Outcome> {
        let line = &text[..text.len() - PADDING];
        self.begin();
        match self.record(text, rows, row) {
            Ok(()) => return Ok(self.filtered(line)),
            Err(Stop::Filtered) => return Ok(Outcome::Filtered),
            Err(Stop::Syntax) => {}
            Err(Stop::Exact) => {
                rows.truncate(row);
                self.begin();
                if let Ok(document) = Document::whole(line)
                    && document.root().kind() == Kind::Object
                {
                    self.exact_record(&document, rows, row)?;
                    return Ok(self.filtered(line));
                }
            }
            Err(stop) => return Err(stop),
        }
        rows.truncate(row);
        self.begin();
        let has_record = self.exact_rest(line, rows, row)?;
        if let Column::Text(corrupt) = &mut rows.members[self.plan.places.corrupt] {
            corrupt.set(row, line)?;
        }
        // It is kept where it can't be told what was asked for.
        Ok(if has_record && !self.is_asked_for(line) { Outcome::Filtered } else { Outcome::Corrupt })
    }

    /// What becomes of a record that could be read.
    fn filtered(&self, line: &[u8]) -> Outcome {
        let calls_tool = self.plan.tools.is_none() || self.answer.calls_tool;
        if calls_tool && self.is_asked_for(line) { Outcome::Read } else { Outcome::Filtered }
    }
}

/// What the reader knows of each record by itself.
fn fill_positions(plan: &Plan, records: &Records<'_>, kept: &[usize], rows: &mut Struct) -> Scan<()> {
    let Column::Struct(record) = &mut rows.members[plan.places.record] else { return Ok(()) };
    for (place, text) in [(plan.places.spool_id, records.spool_id), (plan.places.lane, records.lane)] {
        if let Column::Text(column) = &mut record.members[place] {
            column.fill(kept.len(), text.as_bytes())?;
        }
    }
    if let Column::Long(seq) = &mut record.members[plan.places.seq] {
        for (row, &number) in kept.iter().enumerate() {
            seq.set(row, (records.first_seq + number as u64).cast_signed());
        }
    }
    if let Column::Seconds(appended_at) | Column::Micros(appended_at) = &mut record.members[plan.places.appended_at] {
        for (row, &number) in kept.iter().enumerate() {
            appended_at.set(row, records.appended_at[number]);
        }
    }
    Ok(())
}

fn finish(plan: &Plan, rows: Struct, count: usize) -> Result<RecordBatch, ArrowError> {
    let columns = rows.finish_members(&plan.rows, count, &mut Zeros::default())?;
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    RecordBatch::try_new_with_options(Arc::clone(&plan.columns), columns, &options)
}

#[cfg(test)]
mod tests {
    use arrow_array::Array;
    use arrow_schema::DataType;

    use super::*;
    use crate::testing::{choice, field, line, options, parse_lines, plan, rows, structure, texts};

    fn typed() -> DataType {
        structure(vec![field("a", DataType::Int64), field("b", DataType::Utf8)])
    }

    #[test]
    fn a_panic_is_an_error_with_the_number_of_the_record() {
        let made: Result<(), BatchError> = guarded(5, |at| {
            at.set(7);
            panic!("it broke")
        });
        assert_eq!(made, Err(BatchError::Internal { seq: 7, what: "it broke".into() }));
    }

    #[test]
    fn every_line_is_a_row_and_none_touches_another() {
        let good = choice(r#"{"a":1,"b":"x"}"#);
        let bad = ["", "x", "{", "[1]", "{}", r#"{"choices":[{"message":{"content":"{"}}]}"#, &good[..good.len() - 1]];
        let lines: Vec<String> = bad.iter().flat_map(|bad| [(*bad).to_owned(), good.clone()]).collect();
        let (batch, stats) = parse_lines(&lines, &plan(typed())).unwrap();
        assert_eq!((batch.num_rows(), stats.records, stats.corrupt), (lines.len(), lines.len() as u64, 5));
        for row in (1..lines.len()).step_by(2) {
            assert_eq!(batch.slice(row, 1).column(1).to_data(), batch.slice(1, 1).column(1).to_data());
        }
        let corrupt = texts(&batch, "_corrupt_record");
        assert_eq!(corrupt[0].as_deref(), Some(""));
        assert_eq!(corrupt[1], None);
    }

    #[test]
    fn what_found_no_column_is_rescued_in_order() {
        let members = r#""x":1,"choices":[{"p":2,"parsed":3,"message":{"content":"{\"r\":4,\"a\":\"5\"}"},"it's":6}]"#;
        let (batch, stats) = parse_lines(&[line(members)], &plan(typed())).unwrap();
        let rescued = r#"{"x": 1, "choices[0].p": 2, "choices[0]['parsed']": 3, "choices[0].parsed.r": 4, "choices[0].parsed.a": "5", "choices[0]['it\\u0027s']": 6}"#;
        assert_eq!(texts(&batch, "_rescued_data"), [Some(rescued.to_owned())]);
        assert_eq!(stats.mismatches, 1);
    }

    #[test]
    fn spans_that_do_not_fit_are_an_error() {
        let plan = plan(typed());
        let whole = Records { buffer: b"{}\n", ends: &[3], appended_at: &[0], first_seq: 0, spool_id: "", lane: "" };
        assert!(parse(&whole, &plan).is_ok());
        for records in [
            Records { ends: &[4], ..whole },
            Records { ends: &[3, 2], appended_at: &[0, 0], ..whole },
            Records { appended_at: &[], ..whole },
        ] {
            assert!(matches!(parse(&records, &plan), Err(BatchError::Spans(_))));
        }
    }

    #[test]
    fn a_projection_without_columns_has_its_rows() {
        let plan = Plan::new(&rows(typed()), Arc::new(arrow_schema::Schema::empty()), options()).unwrap();
        let (batch, _) = parse_lines(&[choice("{}"), "x".into()], &plan).unwrap();
        assert_eq!((batch.num_columns(), batch.num_rows()), (0, 2));
    }

    #[test]
    fn fail_fast_names_the_record_and_its_status() {
        let schema = rows(typed());
        let plan = Plan::new(&schema, Arc::new(schema.clone()), crate::Options { mode: Mode::FailFast, ..options() });
        let failed = |content: &str| parse_lines(&[choice("{}"), choice(content)], plan.as_ref().unwrap()).err();
        assert_eq!(failed("{}"), None);
        assert_eq!(failed("no"), Some(BatchError::Malformed { seq: 71, status: Some("invalid") }));
        assert_eq!(failed(r#"{"a":"x"}"#), Some(BatchError::Malformed { seq: 71, status: Some("mismatch") }));
    }
}
