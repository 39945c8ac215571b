//! The Python module `dspark_json._native`: plans and parsing over buffers, rows through Arrow's C data interface.

mod glance;

use std::ffi::CStr;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::ffi::FFI_ArrowArray;
use arrow_array::{Array, RecordBatch, StructArray};
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
const ARRAY: &CStr = c"arrow_array";

/// What to make of records; threads may share it.
#[pyclass(frozen, module = "dspark_json._native")]
struct Plan {
    plan: core::Plan,
}

/// Rows, to be taken over once through `__arrow_c_array__`.
#[pyclass(frozen, module = "dspark_json._native")]
struct Batch {
    rows: Mutex<Option<RecordBatch>>,
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
        if !buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(PyValueError::new_err("the buffer is no contiguous, read-only one"));
        }
        let bytes: &[u8] = if buffer.len_bytes() == 0 {
            &[]
        } else {
            // SAFETY: `buffer` keeps its memory where it is until it is dropped at the end of this call, and nobody may
            // write to it meanwhile: it is read-only, and behind it are `bytes`, or records of a spool, which are never
            // changed once they are committed.
            unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) }
        };
        let records =
            core::Records { buffer: bytes, ends: &ends, appended_at: &appended_at, first_seq, spool_id, lane };
        let (rows, stats) = py.detach(|| core::parse(&records, &self.plan)).map_err(raised)?;
        Ok((Batch { rows: Mutex::new(Some(rows)) }, Stats::from(stats)))
    }
}

#[pymethods]
impl Batch {
    /// Arrow's interface of capsules; the schema is the plan's, whatever is asked for.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner).take();
        let rows = rows.ok_or_else(|| PyValueError::new_err("the rows were taken over before"))?;
        let schema = FFI_ArrowSchema::try_from(&*rows.schema());
        let schema = schema.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let array = FFI_ArrowArray::new(&StructArray::from(rows).to_data());
        Ok((PyCapsule::new_with_value(py, schema, SCHEMA)?, PyCapsule::new_with_value(py, array, ARRAY)?))
    }
}

impl From<core::Stats> for Stats {
    fn from(stats: core::Stats) -> Self {
        let core::Stats { records, bytes, corrupt, mismatches, invalid, truncated, dropped, filtered } = stats;
        Self { records, bytes, corrupt, mismatches, invalid, truncated, dropped, filtered }
    }
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
    use super::{Batch, EngineError, MalformedError, Plan, Stats};
}
