//! What to make of the records, compiled once a query.

use std::collections::HashSet;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef};

use crate::error::PlanError;
use crate::shape::{Compiler, Kind, Needs, Shape, StructShape};

/// What happens to malformed records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are rows like others.
    Permissive,
    /// They are left out and counted.
    DropMalformed,
    /// They are an error.
    FailFast,
}

/// The part of a plan that is not in its schemas.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct Options {
    /// `choices[].parsed` is a value of the declared type; else it is the JSON text.
    pub is_content_typed: bool,
    /// So is `function.parsed_arguments`.
    pub are_arguments_typed: bool,
    /// Only answers that call one of these tools become rows, and only their arguments are read; `None`: all.
    pub tools: Option<Vec<String>>,
    /// Only answers asked for with the schema of this name, or whose hash begins so, become rows; `None`: all.
    pub answers_of: Option<String>,
    /// Contents are not repaired.
    pub is_strict: bool,
    /// What happens to malformed records.
    pub mode: Mode,
    /// Name of the column for lines that can't be read.
    pub corrupt_column: String,
    /// Name of the column for values without a column.
    pub rescued_column: String,
    /// Whether members without a column are kept there, beside values of another type than declared.
    pub keeps_unknown: bool,
}

/// How the value of a text is read: that of a content, or of a tool call's arguments.
pub(crate) struct TextValue {
    pub(crate) is_read: bool,
    pub(crate) is_typed: bool,
}

/// Which answers become rows, by the schema that their request named.
pub(crate) struct AnswersOf {
    pub(crate) name: Vec<u8>,
    /// Also a prefix of the schema's hash.
    pub(crate) prefix: Option<Vec<u8>>,
}

/// Where the members that the reader makes or looks at stand among those of their struct.
pub(crate) struct Places {
    pub(crate) record: usize,
    pub(crate) error: usize,
    pub(crate) rescued: usize,
    pub(crate) corrupt: usize,
    pub(crate) spool_id: usize,
    pub(crate) lane: usize,
    pub(crate) seq: usize,
    pub(crate) appended_at: usize,
    pub(crate) completed: usize,
    pub(crate) message: usize,
    pub(crate) content: usize,
    pub(crate) text: usize,
    pub(crate) parsed: usize,
    pub(crate) parse_status: usize,
    pub(crate) arguments: usize,
    pub(crate) parsed_arguments: usize,
    pub(crate) arguments_status: usize,
}

/// A compiled plan; threads may share it.
pub struct Plan {
    pub(crate) rows: StructShape,
    pub(crate) columns: SchemaRef,
    pub(crate) needs: Needs,
    pub(crate) places: Places,
    pub(crate) contents: TextValue,
    pub(crate) arguments: TextValue,
    pub(crate) tools: Option<HashSet<Vec<u8>>>,
    pub(crate) answers_of: Option<AnswersOf>,
    pub(crate) is_strict: bool,
    pub(crate) mode: Mode,
    pub(crate) keeps_rescued: bool,
}

impl Plan {
    /// `declared` are the whole rows, `columns` what to make of them: a projection by name, at every level. Fields say
    /// in their metadata by which names they go on the wire (`dspark.wire`) and what a timestamp counts (`dspark.unit`).
    ///
    /// # Errors
    ///
    /// Where the schemas are not those of the rows.
    pub fn new(declared: &Schema, columns: SchemaRef, options: Options) -> Result<Self, PlanError> {
        let places = Places::of(declared, &options)?;
        let needs = needs(&columns, &options);
        let compiler = Compiler { needs, keeps_unknown: options.keeps_unknown };
        let rows = compiler.rows(declared.fields(), columns.fields())?;
        let keeps_rescued = makes(&rows.members[places.rescued].shape);
        Ok(Self {
            rows,
            needs,
            places,
            contents: TextValue { is_read: needs.contents, is_typed: options.is_content_typed },
            arguments: TextValue { is_read: needs.arguments, is_typed: options.are_arguments_typed },
            tools: options.tools.map(|names| names.into_iter().map(String::into_bytes).collect()),
            answers_of: options.answers_of.map(AnswersOf::new),
            is_strict: options.is_strict,
            mode: options.mode,
            keeps_rescued,
            columns,
        })
    }
}

impl AnswersOf {
    fn new(name: String) -> Self {
        let prefix = name.to_lowercase().into_bytes();
        let is_hash = (6..=64).contains(&prefix.len()) && prefix.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        Self { name: name.into_bytes(), prefix: is_hash.then_some(prefix) }
    }
}

impl Places {
    fn of(declared: &Schema, options: &Options) -> Result<Self, PlanError> {
        let rows = declared.fields();
        let record = inside(rows, &["_dspark"])?;
        let choice = inside(rows, &["choices"])?;
        let message = inside(rows, &["choices", "message"])?;
        let function = inside(rows, &["choices", "message", "tool_calls", "function"])?;
        Ok(Self {
            record: number(rows, "_dspark")?,
            error: number(rows, "error")?,
            rescued: number(rows, &options.rescued_column)?,
            corrupt: number(rows, &options.corrupt_column)?,
            spool_id: number(record, "spool_id")?,
            lane: number(record, "lane")?,
            seq: number(record, "seq")?,
            appended_at: number(record, "appended_at")?,
            completed: number(record, "completed")?,
            message: number(choice, "message")?,
            content: number(message, "content")?,
            text: number(choice, "text")?,
            parsed: number(choice, "parsed")?,
            parse_status: number(choice, "parse_status")?,
            arguments: number(function, "arguments")?,
            parsed_arguments: number(function, "parsed_arguments")?,
            arguments_status: number(function, "arguments_status")?,
        })
    }
}

/// What has to be known of a record, given what is wanted: what nothing shows and no mode needs is not looked at.
fn needs(columns: &Schema, options: &Options) -> Needs {
    let wanted = |path: &[&str]| find(columns.fields(), path).is_some();
    let function = |name| wanted(&["choices", "message", "tool_calls", "function", name]);
    let rescued = wanted(&[&options.rescued_column]);
    let by_mode = options.mode != Mode::Permissive;
    let status = wanted(&["choices", "parse_status"]);
    let judged_contents = options.is_content_typed && (rescued || status || by_mode);
    let contents = judged_contents || status || by_mode || wanted(&["choices", "parsed"]);
    let judged_arguments = options.are_arguments_typed && (rescued || function("arguments_status") || by_mode);
    let arguments = judged_arguments || function("arguments_status") || function("parsed_arguments");
    Needs {
        envelope: rescued,
        contents,
        judged_contents,
        arguments,
        judged_arguments,
        verdict: contents || arguments || wanted(&["_dspark", "completed"]),
        asked_for_json: !options.is_content_typed && (status || by_mode),
        schema: options.answers_of.is_some(),
        tools: options.tools.is_some(),
        error: wanted(&["error"]),
    }
}

pub(crate) fn makes(shape: &Shape) -> bool {
    !matches!(shape.kind, Kind::Skip)
}

/// The field at a path, lists on the way gone into.
fn find<'a>(fields: &'a Fields, path: &[&str]) -> Option<&'a Field> {
    let (name, rest) = path.split_first()?;
    let (_, field) = fields.find(name)?;
    if rest.is_empty() { Some(field) } else { find(children(field.data_type())?, rest) }
}

fn children(kind: &DataType) -> Option<&Fields> {
    match kind {
        DataType::Struct(fields) => Some(fields),
        DataType::List(item) => children(item.data_type()),
        _ => None,
    }
}

fn inside<'a>(rows: &'a Fields, path: &[&str]) -> Result<&'a Fields, PlanError> {
    find(rows, path)
        .and_then(|field| children(field.data_type()))
        .ok_or_else(|| PlanError(format!("the rows have no {}", path.join("."))))
}

fn number(fields: &Fields, name: &str) -> Result<usize, PlanError> {
    fields.find(name).map(|(number, _)| number).ok_or_else(|| PlanError(format!("the rows have no \"{name}\"")))
}
