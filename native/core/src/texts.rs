//! The values inside an answer's texts: contents of choices, arguments of tool calls.

use std::ops::Range;

use crate::columns::{Column, Struct};
use crate::content::Status;
use crate::document::text_of;
use crate::error::{Scan, Stop};
use crate::plan::{Places, Plan, TextValue};
use crate::reader::{Answer, Reader, Verdict};
use crate::request;
use crate::rescue::Path;
use crate::scan::{Cursor, PADDING, grow, skip_space};
use crate::shape::{Shape, StructShape};
use crate::taps::{Span, Tap};
use crate::text::Text;

impl Reader<'_> {
    /// Whether the server stopped writing the choice's texts before their end; `None`: not known yet.
    ///
    /// `is_ended` says that the whole choice was seen, so that a finish reason not seen is none.
    fn is_cut_short(&self, line: &[u8], is_ended: bool) -> Option<bool> {
        if self.taps.get(Tap::FinishReason).is_some_and(|span| *text_of(span.of(line)) == *b"length")
            || self.answer.verdict == Verdict::Judged(Some(false))
        {
            return Some(true);
        }
        (self.answer.verdict != Verdict::Open && (is_ended || self.is_exact)).then_some(false)
    }

    /// Reads the arguments of a call whose function ends here.
    pub(crate) fn end_function(
        &mut self,
        line: &[u8],
        shape: &StructShape,
        inner: &mut Struct,
        row: usize,
        path: Option<&Path<'_>>,
    ) -> Scan<()> {
        let Plan { arguments, places, tools, .. } = self.plan;
        if let Some(tools) = tools {
            let name = self.taps.get(Tap::FunctionName).map(|span| text_of(span.of(line)));
            if !name.is_some_and(|name| tools.contains(&*name)) {
                return Ok(());
            }
            self.answer.calls_tool = true;
        }
        if !arguments.is_read {
            return Ok(());
        }
        let place = Place {
            shape: &shape.members[places.parsed_arguments].shape,
            row,
            path: &Path::name(path, b"parsed_arguments"),
        };
        let is_cut_short = self.is_cut_short(line, false);
        let status = match self.taps.get(Tap::Arguments) {
            None => Status::Missing,
            Some(span) => {
                let said = self.said(line, span, text_of_column(&mut inner.members[places.arguments]), row);
                let column = &mut inner.members[places.parsed_arguments];
                let status = self.content(arguments, &said, span.start, is_cut_short, column, place);
                self.put_back(said, text_of_column(&mut inner.members[places.arguments]));
                status?
            }
        };
        set_status(&mut inner.members[places.arguments_status], row, status)?;
        if arguments.is_typed {
            self.answer.note(status);
        }
        Ok(())
    }

    /// Reads the content of a choice that ends here.
    pub(crate) fn end_choice(
        &mut self,
        line: &[u8],
        shape: &StructShape,
        inner: &mut Struct,
        row: usize,
        path: Option<&Path<'_>>,
    ) -> Scan<()> {
        let Plan { contents, places, .. } = self.plan;
        let reason = self.taps.get(Tap::FinishReason).map(|span| text_of(span.of(line)));
        self.answer.finished += usize::from(reason.is_some_and(|reason| !matches!(&*reason, b"abort" | b"error")));
        if contents.is_read {
            let place = Place { shape: &shape.members[places.parsed].shape, row, path: &Path::name(path, b"parsed") };
            let is_cut_short = self.is_cut_short(line, true);
            let content = self.taps.get(Tap::Content);
            let status = match content.or(self.taps.get(Tap::Text)) {
                None => Status::Missing,
                Some(span) => {
                    let said = self.said(line, span, text_column(inner, places, content.is_some()), row);
                    let column = &mut inner.members[places.parsed];
                    let status = self.content(contents, &said, span.start, is_cut_short, column, place);
                    self.put_back(said, text_column(inner, places, content.is_some()));
                    status?
                }
            };
            let is_nothing_but_calls = self.answer.has_calls && matches!(status, Status::Empty | Status::Missing);
            if !is_nothing_but_calls && self.wants_status(line) {
                set_status(&mut inner.members[places.parse_status], row, status)?;
                self.answer.note(status);
            }
        }
        let Answer { statuses, lost_statuses, .. } = self.answer;
        self.answer.lost += usize::from(statuses > 0 && lost_statuses == statuses);
        Ok(())
    }

    /// Whether a content type is in force, or the request asked for JSON.
    fn wants_status(&mut self, line: &[u8]) -> bool {
        if self.plan.contents.is_typed {
            return true;
        }
        if !self.plan.needs.asked_for_json {
            return false;
        }
        if self.answer.asked_for_json.is_none() {
            self.answer.asked_for_json = Some(request::asked_for_json(&self.taps, line));
        }
        self.answer.asked_for_json == Some(true)
    }

    /// The value of a text, and how its parse went. What is rescued from it stands at `start` of the record.
    fn content(
        &mut self,
        how: &TextValue,
        said: &Said,
        start: usize,
        is_cut_short: Option<bool>,
        column: &mut Column,
        place: Place<'_>,
    ) -> Scan<Status> {
        let text = said.text();
        if skip_space(text, 0) == text.len() {
            return Ok(Status::Empty);
        }
        let unknown = self.unknown.len();
        self.rescue.begin_content(start);
        let status = match self.strict_content(how, said.padded(), column, place) {
            Ok(()) if self.rescue.has_mismatched() => Ok(Status::Mismatch),
            Ok(()) => Ok(Status::Ok),
            Err(stop @ (Stop::TooLarge | Stop::Defect)) => Err(stop),
            Err(_) => {
                column.truncate(place.row);
                self.rescue.restart_content();
                self.unknown.truncate(unknown);
                self.exact_content(how, text, is_cut_short, column, place)
            }
        };
        self.rescue.end_content();
        status
    }

    /// The value of a text, which has its padding, that is nothing but one.
    fn strict_content(&mut self, how: &TextValue, text: &[u8], column: &mut Column, place: Place<'_>) -> Scan<()> {
        let outside = std::mem::take(&mut self.depth);
        let read = self.value_alone(how, text, column, place);
        self.depth = outside;
        read
    }

    fn value_alone(&mut self, how: &TextValue, text: &[u8], column: &mut Column, place: Place<'_>) -> Scan<()> {
        let mut cursor = Cursor::new(text, 0);
        let is_null = cursor.peek()? == b'n';
        let start = cursor.at;
        if how.is_typed {
            cursor.at = self.value(text, start, place.shape, column, place.row, place.path)?;
            self.rescue.bound_content(place.path, start, &text[start..cursor.at]);
            return cursor.expect_end();
        }
        cursor.skip(0)?;
        let end = cursor.at;
        cursor.expect_end()?;
        match column {
            Column::Text(parsed) if !is_null => parsed.set(place.row, &text[start..end]),
            _ => Ok(()),
        }
    }

    /// What a STRING column has of the value at `span`, from where it costs least.
    fn said(&mut self, line: &[u8], span: Span, column: Option<&mut Text>, row: usize) -> Said {
        if let Some(text) = column
            && let Some(range) = text.last(row)
        {
            let mut data = std::mem::take(&mut text.data);
            if data.len() < range.end + PADDING {
                grow(&mut data, range.end, PADDING);
            }
            // What is behind it was written by and by; nothing goes on with a zero.
            data[range.end] = 0;
            return Said { data, range, is_of_column: true };
        }
        let mut data = std::mem::take(&mut self.scratch);
        data.clear();
        data.extend_from_slice(&text_of(span.of(line)));
        let end = data.len();
        data.resize(end + PADDING, 0);
        Said { data, range: 0..end, is_of_column: false }
    }

    fn put_back(&mut self, said: Said, column: Option<&mut Text>) {
        match column {
            Some(text) if said.is_of_column => text.data = said.data,
            _ => self.scratch = said.data,
        }
    }
}

/// A text that is read, in all the data of a column or alone, with its padding behind it.
struct Said {
    data: Vec<u8>,
    range: Range<usize>,
    is_of_column: bool,
}

impl Said {
    fn text(&self) -> &[u8] {
        &self.data[self.range.clone()]
    }

    fn padded(&self) -> &[u8] {
        &self.data[self.range.start..self.range.end + PADDING]
    }
}

/// Where a value of a text goes to.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) row: usize,
    pub(crate) path: &'a Path<'a>,
}

/// The column that the answer's text is kept in: the message's content, or the text of completions.
fn text_column<'c>(choice: &'c mut Struct, places: &Places, is_message: bool) -> Option<&'c mut Text> {
    if !is_message {
        return text_of_column(&mut choice.members[places.text]);
    }
    match &mut choice.members[places.message] {
        Column::Struct(message) => text_of_column(&mut message.members[places.content]),
        _ => None,
    }
}

fn text_of_column(column: &mut Column) -> Option<&mut Text> {
    if let Column::Text(text) = column { Some(text) } else { None }
}

fn set_status(column: &mut Column, row: usize, status: Status) -> Scan<()> {
    match column {
        Column::Text(text) => text.set(row, status.name().as_bytes()),
        _ => Ok(()),
    }
}
