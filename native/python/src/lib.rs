//! The Python module `dspark_json._native`: plans and parsing over buffers, rows through Arrow's C data interface.

mod aside;
mod glance;
mod recording;
mod response;
mod storing;

use std::ffi::CStr;
use std::sync::Arc;

use arrow_array::ffi::FFI_ArrowArray;
use arrow_array::{Array, StructArray};
use arrow_schema::Schema;
use arrow_schema::ffi::FFI_ArrowSchema;
use dspark_json_core as core;
use pyo3::buffer::PyBuffer;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

create_exception!(
    _native,
    MalformedError,
    PyException,
    "A malformed record in mode FAILFAST: its number, and a status or None."
);
create_exception!(_native, EngineError, PyException, "The engine failed at a record: its number, and why.");

const SCHEMA: &CStr = c"arrow_schema";

/// What to make of records; threads may share it.
#[pyclass(frozen, module = "dspark_json._native")]
struct Plan {
    plan: core::Plan,
}

/// Rows, to be taken over once.
#[pyclass(frozen, module = "dspark_json._native")]
struct Batch {
    // Where it lies in memory has to stay the same.
    rows: Box<FFI_ArrowArray>,
}

/// Counts of one batch.
#[pyclass(frozen, get_all, module = "dspark_json._native")]
struct Stats {
    records: u64,
    bytes: u64,
    corrupt: u64,
    mismatches: u64,
    invalid: u64,
    truncated: u64,
    dropped: u64,
    filtered: u64,
}

#[pymethods]
impl Plan {
    #[new]
    #[pyo3(signature = (declared, columns, *, typed_content, typed_arguments, tools, answers_of, strict, mode,
        corrupt_column, rescued_column, rescue_unknown))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    #[expect(clippy::fn_params_excessive_bools, reason = "they are keywords")]
    fn new(
        declared: &Bound<'_, PyAny>,
        columns: &Bound<'_, PyAny>,
        typed_content: bool,
        typed_arguments: bool,
        tools: Option<Vec<String>>,
        answers_of: Option<String>,
        strict: bool,
        mode: &str,
        corrupt_column: String,
        rescued_column: String,
        rescue_unknown: bool,
    ) -> PyResult<Self> {
        let mode = match mode {
            "PERMISSIVE" => core::Mode::Permissive,
            "DROPMALFORMED" => core::Mode::DropMalformed,
            "FAILFAST" => core::Mode::FailFast,
            other => return Err(PyValueError::new_err(format!("{other} is no mode"))),
        };
        let options = core::Options {
            is_content_typed: typed_content,
            are_arguments_typed: typed_arguments,
            tools,
            answers_of,
            is_strict: strict,
            mode,
            corrupt_column,
            rescued_column,
            keeps_unknown: rescue_unknown,
        };
        let plan = core::Plan::new(&schema(declared)?, Arc::new(schema(columns)?), options);
        Ok(Self { plan: plan.map_err(|error| PyValueError::new_err(error.to_string()))? })
    }

    /// The rows of the records `buffer[ends[i - 1]:ends[i]]`, and their counts. Other threads run meanwhile.
    #[expect(clippy::too_many_arguments, reason = "they are one value on Python's side")]
    #[expect(clippy::needless_pass_by_value, reason = "PyO3 hands them over")]
    fn parse(
        &self,
        py: Python<'_>,
        buffer: PyBuffer<u8>,
        ends: Vec<u64>,
        appended_at: Vec<i64>,
        first_seq: u64,
        spool_id: &str,
        lane: &str,
    ) -> PyResult<(Batch, Stats)> {
        let bytes = readable(&buffer)?;
        let records =
            core::Records { buffer: bytes, ends: &ends, appended_at: &appended_at, first_seq, spool_id, lane };
        let (rows, stats) = py.detach(|| core::parse(&records, &self.plan)).map_err(raised)?;
        let rows = Box::new(FFI_ArrowArray::new(&StructArray::from(rows).to_data()));
        Ok((Batch { rows }, Stats::from(stats)))
    }
}

#[pymethods]
impl Batch {
    /// Where the rows' `ArrowArray` of Arrow's C data interface lies, as long as this object lives: who takes it over marks
    /// it as released, else it is freed with this object. Its schema is the plan's columns, which Python has: making it
    /// of a description again would take longer than many batches do.
    fn address(&self) -> usize {
        std::ptr::from_ref(&*self.rows).addr()
    }
}

impl From<core::Stats> for Stats {
    fn from(stats: core::Stats) -> Self {
        let core::Stats { records, bytes, corrupt, mismatches, invalid, truncated, dropped, filtered } = stats;
        Self { records, bytes, corrupt, mismatches, invalid, truncated, dropped, filtered }
    }
}

/// The position of the first line `buffer[ends[i - 1]:ends[i]]` that does not match its CRC-32; None where all do. Other
/// threads run meanwhile.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands them over")]
fn first_damaged(py: Python<'_>, buffer: PyBuffer<u8>, ends: Vec<u64>, crcs: Vec<u32>) -> PyResult<Option<usize>> {
    let bytes = readable(&buffer)?;
    Ok(py.detach(|| core::first_damaged(bytes, &ends, &crcs)))
}

/// The bytes of a buffer; `ValueError` where somebody may write to them.
fn readable(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.readonly() || !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the buffer is no contiguous, read-only one"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(&[]);
    }
    // SAFETY: `buffer` keeps its memory where it is as long as it lives, which is as long as what is returned may live,
    // and nobody may write to it meanwhile: it is read-only, and behind it are `bytes`, or records of a spool, which are
    // never changed once they are committed.
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) })
}

fn schema(object: &Bound<'_, PyAny>) -> PyResult<Schema> {
    let capsule = object.call_method0("__arrow_c_schema__")?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(SCHEMA))?;
    // SAFETY: a capsule of this name holds an ArrowSchema by Arrow's PyCapsule interface, and lives until it is dropped
    // at the end of this function.
    let schema = unsafe { pointer.cast::<FFI_ArrowSchema>().as_ref() };
    Schema::try_from(schema).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn raised(error: core::BatchError) -> PyErr {
    match error {
        core::BatchError::Malformed { seq, status } => MalformedError::new_err((seq, status)),
        core::BatchError::TooLarge { seq } => EngineError::new_err((seq, "a column would pass 2 GiB")),
        core::BatchError::Internal { seq, what } => EngineError::new_err((seq, what)),
        core::BatchError::Spans(_) => PyValueError::new_err(error.to_string()),
    }
}

#[pymodule]
mod _native {
    #[pymodule_export]
    use super::glance::Glance;
    #[pymodule_export]
    use super::recording::frame;
    #[pymodule_export]
    use super::storing::store;
    #[pymodule_export]
    use super::{Batch, EngineError, MalformedError, Plan, Stats, first_damaged};
}
