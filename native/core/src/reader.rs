//! What is known of the record at hand while it is read, and what follows from it.

use crate::columns::{Column, Struct};
use crate::content::Status;
use crate::document::text_of;
use crate::error::{Scan, Stop};
use crate::numbers;
use crate::plan::Plan;
use crate::rescue::Rescue;
use crate::scan::{Cursor, PADDING, skip_space};
use crate::taps::{Span, Tap, Taps};

const FIRST_ERROR_STATUS: i64 = 400;
pub(crate) const RESPONSES_PATH: &[u8] = b"/v1/responses";

/// Reads records by one plan.
pub(crate) struct Reader<'p> {
    pub(crate) plan: &'p Plan,
    pub(crate) rescue: Rescue,
    pub(crate) taps: Taps,
    pub(crate) answer: Answer,
    /// Number of the object that was begun last, to know members filled in one from those filled before.
    pub(crate) object: u64,
    /// The names without a column, of the objects that are open.
    pub(crate) unknown: Vec<Span>,
    pub(crate) scratch: Vec<u8>,
    /// How many containers are open in the text at hand.
    pub(crate) depth: u32,
    /// Whether the record is read in the exact way, which sees a choice's finish reason before its message.
    pub(crate) is_exact: bool,
}

/// Whether an answer is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not judged yet.
    #[default]
    Open,
    /// `None`: nothing can be said.
    Judged(Option<bool>),
}

impl Verdict {
    /// The hook's, if it gave one.
    pub(crate) fn written(verdict: Option<bool>) -> Self {
        verdict.map_or(Self::Open, |verdict| Self::Judged(Some(verdict)))
    }
}

/// What is known of the record's answer.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    pub(crate) asked_for_json: Option<bool>,
    pub(crate) choices: usize,
    /// Choices that have a finish reason, other than that it was given up.
    pub(crate) finished: usize,
    /// Choices of which nothing could be read.
    pub(crate) lost: usize,
    pub(crate) calls_tool: bool,
    pub(crate) invalid: u64,
    pub(crate) truncated: u64,
    /// The last one, in the order of the table, of the statuses that mode `FAILFAST` does not take.
    pub(crate) failed: Option<Status>,
    /// Of the choice at hand: whether it calls tools, how many statuses it has and how many of them are lost.
    pub(crate) has_calls: bool,
    pub(crate) statuses: usize,
    pub(crate) lost_statuses: usize,
}

impl Answer {
    /// Whether the answer has choices and none of them could be read.
    pub(crate) fn is_lost(&self) -> bool {
        self.choices > 0 && self.lost == self.choices
    }

    pub(crate) fn note(&mut self, status: Status) {
        self.statuses += 1;
        self.lost_statuses += usize::from(status.is_lost());
        self.invalid += u64::from(status == Status::Invalid);
        self.truncated += u64::from(status == Status::Truncated);
        if status.is_lost() || status == Status::Mismatch {
            self.failed = self.failed.max(Some(status));
        }
    }
}

impl<'p> Reader<'p> {
    pub(crate) fn new(plan: &'p Plan) -> Self {
        Self {
            plan,
            rescue: Rescue::new(plan.keeps_rescued),
            taps: Taps::default(),
            answer: Answer::default(),
            object: 0,
            unknown: Vec::new(),
            scratch: Vec::new(),
            depth: 0,
            is_exact: false,
        }
    }

    /// Forgets the record before.
    pub(crate) fn begin(&mut self) {
        self.rescue.clear();
        self.taps.forget_record();
        self.answer = Answer::default();
        self.unknown.clear();
        self.depth = 0;
        self.is_exact = false;
    }

    /// Reads a line, which has its padding in `text`, into the columns at `row`.
    pub(crate) fn record(&mut self, text: &[u8], rows: &mut Struct, row: usize) -> Scan<()> {
        let plan = self.plan;
        let line = &text[..text.len() - PADDING];
        let mut cursor = Cursor::new(text, 0);
        if cursor.peek()? != b'{' {
            return Err(Stop::Syntax);
        }
        cursor.at = self.object(text, cursor.at, &plan.rows, rows, row, None)?;
        cursor.expect_end()?;
        if plan.needs.verdict && self.answer.verdict == Verdict::Open {
            self.judge(line, rows, row)?;
        }
        let has_error = |tap| self.taps.get(tap).is_some_and(|span| line[span.start] == b'{');
        if plan.needs.error && !has_error(Tap::Error) && has_error(Tap::RecordError) {
            return Err(Stop::Exact);
        }
        if self.rescue.passes_a_bound() {
            return Err(Stop::Exact);
        }
        self.finish(rows, row)
    }

    /// What comes last for every record that could be read.
    pub(crate) fn finish(&mut self, rows: &mut Struct, row: usize) -> Scan<()> {
        match &mut rows.members[self.plan.places.rescued] {
            Column::Text(rescued) if !self.rescue.is_empty() => {
                let used = rescued.begin(row);
                let used = self.rescue.write(&mut rescued.data, used)?;
                rescued.end(row, used)
            }
            _ => Ok(()),
        }
    }

    fn judge(&mut self, line: &[u8], rows: &mut Struct, row: usize) -> Scan<()> {
        let is_last = match self.taps.get(Tap::Record) {
            Some(record) => line.get(skip_space(line, record.end)) != Some(&b','),
            None => false,
        };
        if is_last && self.answer.choices == 0 {
            // Others may stand in front of it.
            return Err(Stop::Exact);
        }
        let verdict =
            self.is_complete(line, true, self.answer.choices > 0 && self.answer.finished == self.answer.choices);
        self.set_verdict(verdict, rows, row);
        Ok(())
    }

    pub(crate) fn set_verdict(&mut self, verdict: Option<bool>, rows: &mut Struct, row: usize) {
        self.answer.verdict = Verdict::Judged(verdict);
        if let (Column::Struct(record), Some(verdict)) = (&mut rows.members[self.plan.places.record], verdict)
            && let Column::Boolean(completed) = &mut record.members[self.plan.places.completed]
        {
            completed.set(row, verdict);
        }
    }

    /// Whether the answer came whole, for a record whose hook did not say so; `None`: nothing can be said.
    pub(crate) fn is_complete(&self, line: &[u8], has_members: bool, is_finished: bool) -> Option<bool> {
        let text = |tap| self.taps.get(tap).map(|span| span.of(line));
        let status = text(Tap::Status).filter(|token| token[0] == b'-' || token[0].is_ascii_digit());
        let status = numbers::integral(status?, i32::MIN.into(), i32::MAX.into())?;
        let has_error = text(Tap::RecordError).is_some_and(|token| token[0] == b'{') || text(Tap::Error).is_some();
        if status >= FIRST_ERROR_STATUS || text(Tap::Body).is_some() || !has_members || has_error {
            return Some(false);
        }
        if text(Tap::Path).is_some_and(|token| *text_of(token) == *RESPONSES_PATH) {
            let state = text(Tap::State).filter(|token| token[0] == b'"').map(text_of);
            return Some(state.is_some_and(|state| matches!(&*state, b"completed" | b"incomplete")));
        }
        Some(is_finished)
    }

    /// What follows from the record object, which mostly stands in front.
    ///
    /// Where it does not, nothing that was read before it can have depended on its verdict (what would have is left to
    /// the exact way), but whether the request asked for JSON was taken for no.
    pub(crate) fn end_record_object(&mut self, line: &[u8]) -> Scan<()> {
        if self.answer.choices > 0 && self.plan.needs.asked_for_json {
            return Err(Stop::Exact);
        }
        self.answer.verdict = Verdict::written(self.written_verdict(line));
        let record = self.taps.get(Tap::Record);
        if self.plan.needs.schema
            && !self.is_asked_for(line)
            && record.is_some_and(|span| line[span.start] == b'{')
            && record_place(line).map(|place| skip_space(line, place)) == record.map(|span| span.start)
        {
            return Err(Stop::Filtered);
        }
        Ok(())
    }

    /// What the hook says of the answer's completeness.
    pub(crate) fn written_verdict(&self, line: &[u8]) -> Option<bool> {
        match line[self.taps.get(Tap::Completed)?.start] {
            b't' => Some(true),
            b'f' => Some(false),
            _ => None,
        }
    }

    /// Whether the request asked for the schema that the plan's filter names.
    pub(crate) fn is_asked_for(&self, line: &[u8]) -> bool {
        let Some(wanted) = &self.plan.answers_of else { return true };
        let text = |tap| self.taps.get(tap).map(|span| text_of(span.of(line)));
        self.taps.get(Tap::Schema).is_some_and(|span| line[span.start] == b'{')
            && (text(Tap::SchemaName).is_some_and(|name| *name == *wanted.name)
                || wanted
                    .prefix
                    .as_ref()
                    .is_some_and(|prefix| text(Tap::SchemaHash).is_some_and(|hash| hash.starts_with(prefix))))
    }
}

/// If a line begins with the record object, its name written just so: where the colon behind that ends.
pub(crate) fn record_place(line: &[u8]) -> Option<usize> {
    let after = |at: usize, token: &[u8]| {
        let start = skip_space(line, at);
        line[start..].starts_with(token).then_some(start + token.len())
    };
    after(after(after(0, b"{")?, b"\"_dspark\"")?, b":")
}
