//! Captured exchanges to drafts of records, and records to the lines of segments.

use dspark_json_core as core;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use crate::aside::{aside, copied, handed_over};

const OK: u16 = 200;

/// A draft of a record: its meta up to the reference to a schema, and from there on (`None`: it is all in the first);
/// the answer's members; the place of its schema among those of the group; whether the client left; the model that was
/// asked for JSON without a schema.
type Draft<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>, Bound<'py, PyBytes>, usize, bool, Option<String>);
/// A schema that was asked for: its name, its text, how many records of the group refer to it, when the last one came.
type Schema<'py> = (Option<String>, Bound<'py, PyBytes>, usize, i64);
/// What `Glance.drafts` gives; `None` for an exchange that was not looked at.
pub(crate) type Drafts<'py> = (Vec<Option<Looked<'py>>>, Vec<Schema<'py>>);
type Part<'py> = (u64, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// What came of looking at an exchange.
#[derive(IntoPyObject)]
pub(crate) enum Looked<'py> {
    Drafted(Draft<'py>),
    /// The half that is out of the ordinary.
    Declined(&'static str),
}

/// What is read of exchanges, and how much of it may be looked at.
pub(crate) struct Limits {
    pub(crate) routes: Vec<String>,
    pub(crate) request: usize,
    pub(crate) answer: usize,
    pub(crate) stream: usize,
    /// Whether records keep the settings of their requests, and refer to schemas.
    pub(crate) keeps_settings: bool,
}

/// The drafts of those that are ordinary, which half is not of the others, and the schemas that the drafts refer to.
pub(crate) fn drafts<'py>(exchanges: &Bound<'py, PyList>, glance: &core::Glance, limits: &Limits) -> Drafts<'py> {
    let py = exchanges.py();
    let captured: Vec<_> = exchanges.iter().map(|exchange| Held::of(&exchange, limits).ok()).collect();
    let seen: Vec<_> = captured.iter().map(|held| held.as_ref().map(Held::exchange)).collect();
    let size: usize = captured.iter().flatten().map(|held| held.size).sum();
    let look = |exchange: &Option<core::Exchange>| exchange.as_ref().map(|exchange| glance.draft(exchange));
    let found = aside(py, size, || seen.iter().map(look).collect::<Vec<_>>());
    let mut schemas: Vec<((Option<String>, String), usize, i64)> = Vec::new();
    let mut made = Vec::with_capacity(found.len());
    for (draft, exchange) in found.into_iter().zip(&seen) {
        let (draft, exchange) = match (draft, exchange) {
            (Some(Ok(draft)), Some(exchange)) => (draft, exchange),
            (odd, _) => {
                made.push(odd.and_then(Result::err).map(|odd| Looked::Declined(half(odd))));
                continue;
            }
        };
        let (members, left) = (PyBytes::new(py, &draft.members), draft.is_disconnected);
        let Some(schema) = draft.schema else {
            let whole = [&draft.head, b"null".as_slice(), &draft.tail].concat();
            let draft = (PyBytes::new(py, &whole), None, members, 0, left, draft.untyped_model);
            made.push(Some(Looked::Drafted(draft)));
            continue;
        };
        let place = schemas.iter().position(|(known, ..)| *known == schema).unwrap_or_else(|| {
            schemas.push((schema, 0, exchange.received_at));
            schemas.len() - 1
        });
        let (_, count, last) = &mut schemas[place];
        *count += 1;
        *last = (*last).max(exchange.received_at);
        let (head, tail) = (PyBytes::new(py, &draft.head), PyBytes::new(py, &draft.tail));
        made.push(Some(Looked::Drafted((head, Some(tail), members, place, left, draft.untyped_model))));
    }
    let schemas = schemas.into_iter();
    let asked = schemas.map(|((name, text), count, last)| (name, PyBytes::new(py, text.as_bytes()), count, last));
    (made, asked.collect())
}

fn half(odd: core::Odd) -> &'static str {
    match odd {
        core::Odd::Request => "request",
        core::Odd::Answer => "answer",
    }
}

/// The lines and the index entries of records (pairs of meta and members), one part a segment.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands them over")]
pub(crate) fn frame<'py>(
    py: Python<'py>,
    records: Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
    seq: u64,
    lane: &str,
    end: u64,
    full: u64,
    appended_at: u64,
) -> PyResult<Vec<Part<'py>>> {
    let held: Vec<_> =
        records.iter().map(|(meta, body)| core::Record { meta: meta.as_bytes(), body: body.as_bytes() }).collect();
    let place = core::Place { seq, lane, end, full, appended_at };
    let size: usize = held.iter().map(|record| record.meta.len() + record.body.len()).sum();
    let parts = copied(py, size, || core::frame(&held, place)).into_iter();
    parts.map(|part| Ok((part.first_seq, handed_over(py, part.data)?, PyBytes::new(py, &part.entries)))).collect()
}

/// The objects whose bytes are looked at, for as long as that takes.
struct Held<'py> {
    path: Bound<'py, PyString>,
    request: Vec<Bound<'py, PyBytes>>,
    body: Vec<Bound<'py, PyBytes>>,
    request_id: Option<Bound<'py, PyBytes>>,
    received_at: i64,
    first_byte_ms: Option<f64>,
    duration_ms: Option<f64>,
    is_ended: bool,
    is_streamed: bool,
    keeps_settings: bool,
    size: usize,
}

/// Something that no ordinary exchange has: the long way is to look at it.
struct Odd;

impl From<PyErr> for Odd {
    fn from(_: PyErr) -> Self {
        Self
    }
}

impl<'py> Held<'py> {
    fn of(captured: &Bound<'py, PyAny>, limits: &Limits) -> Result<Self, Odd> {
        let py = captured.py();
        let get = |name: &Bound<'py, PyString>| captured.getattr(name);
        let is_none = |name: &Bound<'py, PyString>| get(name).is_ok_and(|value| value.is_none());
        let is_whole = is_none(intern!(py, "missing")) && is_none(intern!(py, "raised"));
        if !is_whole || !is_none(intern!(py, "request_id")) || get(intern!(py, "status"))?.extract::<u16>()? != OK {
            return Err(Odd);
        }
        let size: usize = get(intern!(py, "size"))?.extract()?;
        let size_of_request: usize = get(intern!(py, "request_size"))?.extract()?;
        let path = get(intern!(py, "path"))?.cast_into::<PyString>().map_err(PyErr::from)?;
        let is_covered = path.to_str().is_ok_and(|path| limits.routes.iter().any(|route| route == path));
        let headers = get(intern!(py, "headers"))?;
        let is_streamed = announces_events(&headers)?;
        let most = if is_streamed { limits.stream } else { limits.answer };
        if !is_covered || size > most || size_of_request > limits.request {
            return Err(Odd);
        }
        let id = filled(first(&get(intern!(py, "request_headers"))?, b"x-request-id")?);
        let request_id = if id.is_some() { id } else { filled(first(&headers, b"x-request-id")?) };
        Ok(Self {
            path,
            request: pieces(&get(intern!(py, "request"))?)?,
            body: pieces(&get(intern!(py, "body"))?)?,
            request_id,
            received_at: get(intern!(py, "received_at"))?.extract()?,
            first_byte_ms: get(intern!(py, "first_byte_ms"))?.extract()?,
            duration_ms: get(intern!(py, "duration_ms"))?.extract()?,
            is_ended: get(intern!(py, "ended"))?.extract()?,
            is_streamed,
            keeps_settings: limits.keeps_settings,
            size: size + size_of_request,
        })
    }

    fn exchange(&self) -> core::Exchange<'_> {
        core::Exchange {
            path: self.path.to_str().unwrap_or_default(),
            request: self.request.iter().map(PyBytesMethods::as_bytes).collect(),
            body: self.body.iter().map(PyBytesMethods::as_bytes).collect(),
            request_id: self.request_id.as_ref().map(PyBytesMethods::as_bytes),
            received_at: self.received_at,
            first_byte_ms: self.first_byte_ms,
            duration_ms: self.duration_ms,
            is_ended: self.is_ended,
            is_streamed: self.is_streamed,
            keeps_settings: self.keeps_settings,
        }
    }
}

fn pieces<'py>(list: &Bound<'py, PyAny>) -> Result<Vec<Bound<'py, PyBytes>>, Odd> {
    list.cast::<PyList>().map_err(PyErr::from)?.iter().map(as_bytes).collect()
}

fn as_bytes(value: Bound<'_, PyAny>) -> Result<Bound<'_, PyBytes>, Odd> {
    value.cast_into::<PyBytes>().map_err(|_| Odd)
}

fn filled(value: Option<Bound<PyBytes>>) -> Option<Bound<PyBytes>> {
    value.filter(|value| !value.as_bytes().is_empty())
}

/// Whether headers announce server-sent events.
fn announces_events(headers: &Bound<PyAny>) -> Result<bool, Odd> {
    const KIND: &[u8] = b"text/event-stream";
    let kind = first(headers, b"content-type")?;
    let start = kind.as_ref().and_then(|kind| kind.as_bytes().trim_ascii_start().get(..KIND.len()));
    Ok(start.is_some_and(|start| start.eq_ignore_ascii_case(KIND)))
}

/// The value of the first header of this (lower case) name.
fn first<'py>(headers: &Bound<'py, PyAny>, name: &[u8]) -> Result<Option<Bound<'py, PyBytes>>, Odd> {
    if let Ok(list) = headers.cast::<PyList>() {
        return search(list.iter(), name);
    }
    search(headers.cast::<PyTuple>().map_err(PyErr::from)?.iter(), name)
}

fn search<'py>(
    headers: impl Iterator<Item = Bound<'py, PyAny>>,
    name: &[u8],
) -> Result<Option<Bound<'py, PyBytes>>, Odd> {
    for header in headers {
        let pair = header.cast::<PyTuple>().map_err(PyErr::from)?;
        if as_bytes(pair.get_item(0)?)?.as_bytes().eq_ignore_ascii_case(name) {
            return as_bytes(pair.get_item(1)?).map(Some);
        }
    }
    Ok(None)
}
