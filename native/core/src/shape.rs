//! The declared rows as the walk over a record needs them: what each place takes, what is made of it, by which names
//! members go on the wire, and what has to be remembered on the way.

use std::collections::HashMap;

use arrow_schema::{DataType, Field, Fields, TimeUnit};

use crate::error::PlanError;
use crate::rescue::Path;
use crate::scan::{Cursor, padded};
use crate::taps::Tap;
use crate::wire::{NONE, Name, NameHash, Wire};

/// Key of a field's metadata: a JSON array of the names on the wire, the first non-null one wins. Absent: the field's
/// own name. Empty: the reader makes the value.
const WIRE: &str = "dspark.wire";
/// Key of a timestamp's metadata: what the number on the wire counts, `s` or `us` since 1970.
const UNIT: &str = "dspark.unit";

/// A type, and whether columns are made of it.
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    /// The type to make, of the fields wanted alone; `None`: values are at most checked.
    pub(crate) arrow: Option<DataType>,
}

pub(crate) enum Kind {
    /// Nothing is made here, and any value will do.
    Skip,
    Text,
    Long,
    Int,
    Double,
    Boolean,
    Seconds,
    Micros,
    List(Box<ListShape>),
    Map(Box<MapShape>),
    Struct(Box<StructShape>),
}

pub(crate) struct ListShape {
    pub(crate) item: Shape,
    pub(crate) role: ListRole,
}

/// What a list is beside its items.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListRole {
    None,
    Choices,
    ToolCalls,
}

pub(crate) struct MapShape {
    pub(crate) value: Shape,
}

pub(crate) struct StructShape {
    /// The fields as declared; behind them those that only check what stands on the wire.
    pub(crate) members: Vec<Member>,
    /// The members wanted, in the order in which they are wanted.
    pub(crate) output: Vec<usize>,
    /// The names of the wire that mean something.
    pub(crate) wires: Vec<Wire>,
    pub(crate) names: Vec<Name>,
    by_name: HashMap<Box<[u8]>, u16, NameHash>,
    /// The columns that the reader makes.
    made: Vec<Box<str>>,
    pub(crate) role: StructRole,
    /// Whether members without a column are kept.
    pub(crate) keeps_unknown: bool,
    /// Whether the row is there even where the wire has nothing.
    pub(crate) is_always_there: bool,
}

/// What is left to do where an object ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StructRole {
    None,
    Choice,
    Function,
}

pub(crate) struct Member {
    pub(crate) name: Box<str>,
    pub(crate) shape: Shape,
    /// Whether it has several names on the wire.
    pub(crate) is_ranked: bool,
}

impl StructShape {
    #[inline]
    pub(crate) fn wire(&self, name: &[u8]) -> Option<usize> {
        self.by_name.get(name).map(|&number| usize::from(number))
    }

    /// Where a member without a column stands.
    pub(crate) fn unknown_path<'a>(&self, parent: Option<&'a Path<'a>>, name: &'a [u8]) -> Path<'a> {
        // The record's own columns hold no paths, and options rename them.
        if parent.is_some() && self.made.iter().any(|made| made.as_bytes() == name) {
            Path::shadowed(parent, name)
        } else {
            Path::name(parent, name)
        }
    }

    /// The member of this name.
    pub(crate) fn member(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|member| &*member.name == name)
    }
}

/// Where in the rows a type stands, as far as that matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Rows,
    Record,
    RecordSchema,
    Request,
    Choices,
    Choice,
    Message,
    ToolCalls,
    ToolCall,
    Function,
    Elsewhere,
}

/// What has to be known of a record beside the columns wanted.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Needs {
    /// What fits no column of the envelope.
    pub(crate) envelope: bool,
    /// The contents, and what in them fits no column.
    pub(crate) contents: bool,
    pub(crate) judged_contents: bool,
    /// The arguments of tool calls, and what in them fits no column.
    pub(crate) arguments: bool,
    pub(crate) judged_arguments: bool,
    /// Whether the answer is complete.
    pub(crate) verdict: bool,
    /// Whether the request asked for JSON.
    pub(crate) asked_for_json: bool,
    /// The schema that the request asked for.
    pub(crate) schema: bool,
    /// The names of the tools called.
    pub(crate) tools: bool,
    /// The error that the record has where the answer has none.
    pub(crate) error: bool,
}

impl Needs {
    /// Whether something in an answer is judged by what the record object says.
    pub(crate) fn record_first(self) -> bool {
        self.contents || self.arguments || self.verdict
    }

    fn tap(self, place: Place, name: &str) -> Option<Tap> {
        let (tap, needed) = match (place, name) {
            (Place::Rows, "_dspark") => {
                (Tap::Record, self.record_first() || self.asked_for_json || self.schema || self.error)
            }
            (Place::Rows, "error") => (Tap::Error, self.verdict || self.error),
            (Place::Rows, "status") => (Tap::State, self.verdict),
            (Place::Record, "status") => (Tap::Status, self.verdict),
            (Place::Record, "completed") => (Tap::Completed, self.verdict),
            (Place::Record, "path") => (Tap::Path, self.verdict),
            (Place::Record, "body") => (Tap::Body, self.verdict),
            (Place::Record, "error") => (Tap::RecordError, self.verdict || self.error),
            (Place::Record, "schema") => (Tap::Schema, self.asked_for_json || self.schema),
            (Place::RecordSchema, "name") => (Tap::SchemaName, self.schema),
            (Place::RecordSchema, "hash") => (Tap::SchemaHash, self.schema),
            (Place::Request, "response_format") => (Tap::ResponseFormat, self.asked_for_json),
            (Place::Request, "structured_outputs") => (Tap::StructuredOutputs, self.asked_for_json),
            (Place::Request, "guided_json") => (Tap::GuidedJson, self.asked_for_json),
            (Place::Choice, "finish_reason") => (Tap::FinishReason, self.verdict),
            (Place::Choice, "text") => (Tap::Text, self.contents),
            (Place::Message, "content") => (Tap::Content, self.contents),
            (Place::Message, "tool_calls") => (Tap::ToolCalls, self.contents),
            (Place::Function, "name") => (Tap::FunctionName, self.tools),
            (Place::Function, "arguments") => (Tap::Arguments, self.arguments),
            _ => return None,
        };
        needed.then_some(tap)
    }
}

impl Place {
    /// Where a member of a struct stands.
    fn member(self, name: &str) -> Self {
        match (self, name) {
            (Self::Rows, "_dspark") => Self::Record,
            (Self::Rows, "choices") => Self::Choices,
            (Self::Record, "schema") => Self::RecordSchema,
            (Self::Record, "request") => Self::Request,
            (Self::Choice, "message") => Self::Message,
            (Self::Message, "tool_calls") => Self::ToolCalls,
            (Self::ToolCall, "function") => Self::Function,
            _ => Self::Elsewhere,
        }
    }

    fn item(self) -> Self {
        match self {
            Self::Choices => Self::Choice,
            Self::ToolCalls => Self::ToolCall,
            _ => Self::Elsewhere,
        }
    }

    /// Whether the number of the record in its lane, which readers know better, stands under this name.
    fn is_position(self, name: &str) -> bool {
        self == Self::Record && matches!(name, "lane" | "seq")
    }

    /// What the reader makes here is the value of a text.
    fn is_value_of_text(self, name: &str) -> bool {
        matches!((self, name), (Self::Choice, "parsed") | (Self::Function, "parsed_arguments"))
    }

    fn list_role(self, needs: Needs) -> ListRole {
        match self {
            Self::Choices if needs.contents || needs.verdict => ListRole::Choices,
            Self::ToolCalls if needs.contents => ListRole::ToolCalls,
            _ => ListRole::None,
        }
    }

    fn struct_role(self, needs: Needs) -> StructRole {
        match self {
            Self::Choice if needs.contents || needs.verdict => StructRole::Choice,
            Self::Function if needs.arguments || needs.tools => StructRole::Function,
            _ => StructRole::None,
        }
    }
}

/// Makes shapes of Arrow's types.
#[derive(Clone, Copy)]
pub(crate) struct Compiler {
    pub(crate) needs: Needs,
    pub(crate) keeps_unknown: bool,
}

impl Compiler {
    /// The shape of the rows: `declared` are all fields, `wanted` those to make.
    pub(crate) fn rows(&self, declared: &Fields, wanted: &Fields) -> Result<StructShape, PlanError> {
        self.structure(declared, Some(wanted), Place::Rows, self.needs.envelope)
    }

    fn shape(&self, field: &Field, wanted: Option<&DataType>, place: Place, judged: bool) -> Result<Shape, PlanError> {
        let kind = match field.data_type() {
            DataType::Utf8 if wanted.is_some() => Kind::Text,
            DataType::Utf8 => Kind::Skip,
            _ if wanted.is_none() && !judged && !is_container(field.data_type()) => Kind::Skip,
            DataType::Int64 => Kind::Long,
            DataType::Int32 => Kind::Int,
            DataType::Float64 => Kind::Double,
            DataType::Boolean => Kind::Boolean,
            DataType::Timestamp(TimeUnit::Microsecond, _) => {
                if field.metadata().get(UNIT).is_some_and(|unit| unit == "us") { Kind::Micros } else { Kind::Seconds }
            }
            DataType::List(item) => {
                let wanted = match wanted {
                    Some(DataType::List(item)) => Some(item.data_type()),
                    _ => None,
                };
                let role = place.list_role(self.needs);
                let item = self.shape(item, wanted, place.item(), judged)?;
                if wanted.is_none() && !judged && role == ListRole::None && matches!(item.kind, Kind::Skip) {
                    Kind::Skip
                } else {
                    Kind::List(Box::new(ListShape { item, role }))
                }
            }
            DataType::Map(entries, _) => {
                let wanted = match wanted {
                    Some(DataType::Map(entries, _)) => Some(value_field(entries)?.data_type()),
                    _ => None,
                };
                let value = self.shape(value_field(entries)?, wanted, Place::Elsewhere, judged)?;
                if wanted.is_none() && !judged { Kind::Skip } else { Kind::Map(Box::new(MapShape { value })) }
            }
            DataType::Struct(fields) => {
                let inner = match wanted {
                    Some(DataType::Struct(fields)) => Some(fields),
                    _ => None,
                };
                let shape = self.structure(fields, inner, place, judged)?;
                let is_idle = shape.role == StructRole::None
                    && shape.wires.iter().all(|wire| wire.tap.is_none())
                    && shape.members.iter().all(|member| matches!(member.shape.kind, Kind::Skip));
                if inner.is_none() && !judged && is_idle { Kind::Skip } else { Kind::Struct(Box::new(shape)) }
            }
            other => return Err(PlanError(format!("\"{}\" is of a type that rows can't have: {other}", field.name()))),
        };
        Ok(Shape { kind, arrow: wanted.cloned() })
    }

    fn structure(
        &self,
        fields: &Fields,
        wanted: Option<&Fields>,
        place: Place,
        judged: bool,
    ) -> Result<StructShape, PlanError> {
        let mut made = StructShape {
            members: Vec::with_capacity(fields.len()),
            output: Vec::new(),
            wires: Vec::new(),
            names: Vec::new(),
            by_name: HashMap::default(),
            made: Vec::new(),
            role: place.struct_role(self.needs),
            keeps_unknown: judged && self.keeps_unknown,
            is_always_there: place == Place::Record,
        };
        let mut checks = Vec::new();
        for (number, field) in fields.iter().enumerate() {
            let wanted = wanted.and_then(|fields| fields.find(field.name())).map(|(_, field)| field.data_type());
            let names = wire_names(field)?;
            if names.is_empty() {
                made.made.push(field.name().as_str().into());
            }
            let judged = match (place, field.name().as_str()) {
                (Place::Choice, "parsed") => self.needs.judged_contents,
                (Place::Function, "parsed_arguments") => self.needs.judged_arguments,
                _ => judged && !names.is_empty(),
            };
            let inner =
                if place.is_value_of_text(field.name()) { Place::Elsewhere } else { place.member(field.name()) };
            let shape = self.shape(field, wanted, inner, judged)?;
            made.members.push(Member { name: field.name().as_str().into(), shape, is_ranked: names.len() > 1 });
            let target = if place.is_position(field.name()) {
                let shape = self.shape(field, None, Place::Elsewhere, judged)?;
                checks.push(Member { name: Box::default(), shape, is_ranked: names.len() > 1 });
                fields.len() + checks.len() - 1
            } else {
                number
            };
            for (rank, name) in names.iter().enumerate() {
                let wire = made.wire_of(name)?;
                made.names[wire].is_known = true;
                made.names[wire].targets.push((small(target)?, small(rank)?));
                made.wires[wire].tap = made.wires[wire].tap.or_else(|| self.needs.tap(place, name));
            }
        }
        made.members.append(&mut checks);
        for (wire, name) in made.wires.iter_mut().zip(&made.names) {
            if let [(member, _)] = name.targets[..]
                && !made.members[usize::from(member)].is_ranked
            {
                wire.only = member;
            }
        }
        if place == Place::Rows {
            let wire = made.wire_of("status")?;
            made.wires[wire].tap = self.needs.tap(place, "status");
        }
        for field in wanted.into_iter().flatten() {
            let number = fields
                .find(field.name())
                .ok_or_else(|| PlanError(format!("a column \"{}\" is wanted that is not declared", field.name())))?;
            made.output.push(number.0);
        }
        Ok(made)
    }
}

impl StructShape {
    /// The wire name's number, made if it is new.
    fn wire_of(&mut self, name: &str) -> Result<usize, PlanError> {
        let next = small(self.wires.len())?;
        let number = *self.by_name.entry(name.as_bytes().into()).or_insert(next);
        if number == next {
            self.wires.push(Wire::new(name, number)?);
            self.names.push(Name { text: name.as_bytes().into(), targets: Vec::new(), is_known: false });
        }
        Ok(usize::from(number))
    }
}

fn small(number: usize) -> Result<u16, PlanError> {
    u16::try_from(number).ok().filter(|&n| n < NONE).ok_or_else(|| PlanError("a struct has too many fields".into()))
}

fn is_container(kind: &DataType) -> bool {
    matches!(kind, DataType::List(_) | DataType::Map(..) | DataType::Struct(_))
}

fn value_field(entries: &Field) -> Result<&Field, PlanError> {
    match entries.data_type() {
        DataType::Struct(fields) if fields.len() == 2 && fields[0].data_type() == &DataType::Utf8 => Ok(&fields[1]),
        other => Err(PlanError(format!("a map has entries that are no pairs of a name and a value: {other}"))),
    }
}

fn wire_names(field: &Field) -> Result<Vec<String>, PlanError> {
    match field.metadata().get(WIRE) {
        None => Ok(vec![field.name().clone()]),
        Some(encoded) => strings(encoded.as_bytes())
            .ok_or_else(|| PlanError(format!("the wire names of \"{}\" are no array of strings", field.name()))),
    }
}

/// A JSON array of strings.
fn strings(text: &[u8]) -> Option<Vec<String>> {
    let text = padded(text);
    let mut cursor = Cursor::new(&text, 0);
    let mut found = Vec::new();
    cursor.expect(b'[').ok()?;
    if cursor.peek().ok()? == b']' {
        return Some(found);
    }
    loop {
        cursor.expect(b'"').ok()?;
        found.push(String::from_utf8(cursor.string().ok()?.into_owned()).ok()?);
        match cursor.peek().ok()? {
            b',' => cursor.at += 1,
            b']' => return Some(found),
            _ => return None,
        }
    }
}
