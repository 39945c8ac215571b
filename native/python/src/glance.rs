//! The class `Glance`: what the hook wants to know of a request and of its answer.

use dspark_json_core as core;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

/// What to look for; threads may share it.
#[pyclass(frozen, module = "dspark_json._native")]
pub(crate) struct Glance {
    glance: core::Glance,
}

type Request<'py> = (Option<&'py str>, bool, Bound<'py, PyBytes>, Option<&'py str>, Option<Bound<'py, PyBytes>>);
type Answer<'py> = (Option<&'py str>, Option<&'py str>, bool, Bound<'py, PyBytes>);
type Streamed<'py> = (Option<String>, Option<String>, bool, bool, Bound<'py, PyBytes>);

#[pymethods]
impl Glance {
    #[new]
    fn new(settings: Vec<String>, echoed: Vec<String>, echoed_inside: Vec<String>) -> Self {
        Self { glance: core::Glance::new(settings, echoed, echoed_inside) }
    }

    /// Model, stream, the kept settings, name and text of the content's schema; None for the long way.
    fn request<'py>(&self, py: Python<'py>, text: &'py [u8]) -> Option<Request<'py>> {
        let core::Request { model, is_stream, settings, schema } = self.glance.request(text)?;
        let (name, schema) = schema.unzip();
        let schema = schema.map(|schema| PyBytes::new(py, schema.as_bytes()));
        Some((model, is_stream, PyBytes::new(py, &settings), name.flatten(), schema))
    }

    /// Id, model, whether it is completed, and what stands between the outer braces; None for the long way.
    fn answer<'py>(&self, py: Python<'py>, text: &'py [u8]) -> Option<Answer<'py>> {
        let core::Answer { id, model, is_completed, members } = self.glance.answer(text)?;
        Some((id, model, is_completed, PyBytes::new(py, members)))
    }

    /// Id and model of a streamed answer, whether it is completed, whether `[DONE]` came, and what stands between the
    /// outer braces of the assembled object; None for the long way.
    #[expect(clippy::needless_pass_by_value, reason = "it keeps the parts while others may run")]
    fn stream<'py>(&self, py: Python<'py>, parts: Vec<PyBackedBytes>, is_ended: bool) -> Option<Streamed<'py>> {
        let core::Streamed { id, model, is_completed, is_done, members } =
            py.detach(|| self.glance.stream(&parts, is_ended))?;
        Some((id, model, is_completed, is_done, PyBytes::new(py, members.as_bytes())))
    }
}
