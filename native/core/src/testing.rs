//! Rows and records for the tests of this crate.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Fields, Schema};

use crate::{BatchError, Mode, Options, Plan, Records, Stats, parse};

pub(crate) fn field(name: &str, kind: DataType) -> Field {
    Field::new(name, kind, true)
}

/// A field that the reader makes.
pub(crate) fn made(name: &str, kind: DataType) -> Field {
    field(name, kind).with_metadata(HashMap::from([("dspark.wire".to_owned(), "[]".to_owned())]))
}

pub(crate) fn structure(fields: Vec<Field>) -> DataType {
    DataType::Struct(Fields::from(fields))
}

pub(crate) fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(field("item", item)))
}

pub(crate) fn map(value: DataType) -> DataType {
    let entries = structure(vec![Field::new("key", DataType::Utf8, false), field("value", value)]);
    DataType::Map(Arc::new(Field::new("entries", entries, false)), false)
}

/// Rows with what the reader looks at, and some more.
pub(crate) fn rows(content: DataType) -> Schema {
    let text = |name| field(name, DataType::Utf8);
    let long = |name| field(name, DataType::Int64);
    let function = structure(vec![
        text("name"),
        text("arguments"),
        made("parsed_arguments", DataType::Utf8),
        made("arguments_status", DataType::Utf8),
    ]);
    let call = structure(vec![text("id"), field("function", function)]);
    let message = structure(vec![text("role"), text("content"), field("tool_calls", list(call))]);
    let choice = structure(vec![
        long("index"),
        field("message", message),
        text("text"),
        made("parsed", content),
        made("parse_status", DataType::Utf8),
        text("finish_reason"),
        field("top_logprobs", list(map(DataType::Float64))),
    ]);
    let error = structure(vec![text("message"), text("type"), text("code")]);
    let record = structure(vec![
        made("spool_id", DataType::Utf8),
        text("lane"),
        long("seq"),
        made("appended_at", DataType::Int64),
        text("path"),
        field("status", DataType::Int32),
        field("completed", DataType::Boolean),
        field("error", error.clone()),
        field("schema", structure(vec![text("name"), text("hash")])),
        field("request", structure(vec![text("response_format"), text("structured_outputs"), text("guided_json")])),
        text("body"),
    ]);
    Schema::new(vec![
        text("id"),
        field("choices", list(choice)),
        field("error", error),
        field("metadata", map(DataType::Utf8)),
        field("token_ids", list(DataType::Int64)),
        field("_dspark", record),
        made("_rescued_data", DataType::Utf8),
        made("_corrupt_record", DataType::Utf8),
    ])
}

pub(crate) fn options() -> Options {
    Options {
        is_content_typed: true,
        are_arguments_typed: false,
        tools: None,
        answers_of: None,
        is_strict: false,
        mode: Mode::Permissive,
        corrupt_column: "_corrupt_record".into(),
        rescued_column: "_rescued_data".into(),
        keeps_unknown: true,
    }
}

/// A plan for all columns.
pub(crate) fn plan(content: DataType) -> Plan {
    let schema = rows(content);
    Plan::new(&schema, Arc::new(schema.clone()), options()).expect("the rows make a plan")
}

pub(crate) fn parse_lines(lines: &[String], plan: &Plan) -> Result<(RecordBatch, Stats), BatchError> {
    let mut ends = Vec::new();
    let mut buffer = Vec::new();
    for line in lines {
        buffer.extend_from_slice(line.as_bytes());
        buffer.push(b'\n');
        ends.push(buffer.len() as u64);
    }
    let appended_at = vec![0; ends.len()];
    let records =
        Records { buffer: &buffer, ends: &ends, appended_at: &appended_at, first_seq: 70, spool_id: "s", lane: "0003" };
    parse(&records, plan)
}

/// A line whose answer has these members.
pub(crate) fn line(members: &str) -> String {
    format!(r#"{{"_dspark":{{"seq":1,"status":200,"completed":true}},{members}}}"#)
}

/// A line with one choice of this content.
pub(crate) fn choice(content: &str) -> String {
    line(&format!(r#""choices":[{}]"#, content_choice(content)))
}

pub(crate) fn content_choice(content: &str) -> String {
    format!(r#"{{"message":{{"content":{}}},"finish_reason":"stop"}}"#, quoted(content))
}

pub(crate) fn quoted(text: &str) -> String {
    let mut out = vec![b'"'];
    crate::rescue::escape(text.as_bytes(), &mut out);
    out.push(b'"');
    String::from_utf8(out).expect("escapes keep UTF-8")
}

/// The texts of a column of the rows.
pub(crate) fn texts(batch: &RecordBatch, column: &str) -> Vec<Option<String>> {
    let column = batch.column_by_name(column).expect("the column is there").as_string::<i32>();
    (0..column.len()).map(|row| column.is_valid(row).then(|| column.value(row).to_owned())).collect()
}
