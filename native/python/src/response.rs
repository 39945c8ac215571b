//! Responses of `/v1/responses` to the members of their records.

use dspark_json_core as core;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use crate::aside::{aside, written};

/// Id, model, whether it is whole, and the record's members.
pub(crate) type Response<'py> = (Option<Bound<'py, PyString>>, Option<Bound<'py, PyString>>, bool, Bound<'py, PyBytes>);

/// What `look` sees in the parts together. Other threads run meanwhile.
pub(crate) fn seen<'py>(
    parts: &Bound<'py, PyList>,
    look: impl for<'a> Fn(&'a [u8]) -> Option<core::Response<'a>> + Sync,
) -> PyResult<Option<Response<'py>>> {
    let py = parts.py();
    let Some(parts) = parts.iter().map(|part| part.cast_into::<PyBytes>().ok()).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let parts: Vec<&[u8]> = parts.iter().map(PyBytesMethods::as_bytes).collect();
    let size = parts.iter().map(|part| part.len()).sum();
    let text = aside(py, size, || core::joined(&parts));
    let found = aside(py, size, || {
        let response = look(&text)?;
        let size = response.size();
        Some((response, size))
    });
    let Some((response, members)) = found else {
        return Ok(None);
    };
    let [id, model] = [response.id, response.model].map(|text| text.map(|text| PyString::new(py, text)));
    let is_whole = response.is_whole;
    let members = written(py, members, move |room| response.write(room))?;
    aside(py, size, move || drop(text));
    Ok(Some((id, model, is_whole, members)))
}
