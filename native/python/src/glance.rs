//! The class `Glance`: what the hook wants to know of a request and of its answer.

use dspark_json_core as core;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::aside::handed_over;
use crate::recording::{self, Drafts, Limits};
use crate::response::{self, Response};

/// What to look for; threads may share it.
#[pyclass(frozen, module = "dspark_json._native")]
pub(crate) struct Glance {
    glance: core::Glance,
}

type Request<'py> = (Option<&'py str>, bool, Bound<'py, PyBytes>, Option<&'py str>, Option<Bound<'py, PyBytes>>, bool);
type Answer<'py> = (Option<&'py str>, Option<&'py str>, bool, Bound<'py, PyBytes>);
type Streamed<'py> = (Option<String>, Option<String>, bool, bool, Bound<'py, PyBytes>);

#[pymethods]
impl Glance {
    #[new]
    #[pyo3(signature = (*, settings, echoed, echoed_inside, echoed_in_output, errors, passed_events, last_events,
        top_order, message_order, text_choice_order))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords")]
    fn new(
        settings: Vec<String>,
        echoed: Vec<String>,
        echoed_inside: Vec<String>,
        echoed_in_output: Vec<String>,
        errors: Vec<String>,
        passed_events: Vec<String>,
        last_events: Vec<String>,
        top_order: Vec<String>,
        message_order: Vec<String>,
        text_choice_order: Vec<String>,
    ) -> Self {
        let names = core::Names {
            settings,
            echoed,
            echoed_inside,
            echoed_in_output,
            errors,
            passed_events,
            last_events,
            top_order,
            message_order,
            text_choice_order,
        };
        Self { glance: core::Glance::new(names) }
    }

    /// Model, stream, the kept settings, name and text of the content's schema, whether JSON is asked for without one;
    /// None for the long way.
    fn request<'py>(&self, py: Python<'py>, text: &'py [u8]) -> Option<Request<'py>> {
        let core::Request { model, is_stream, settings, schema, is_untyped } = self.glance.request(text)?;
        let (name, schema) = schema.unzip();
        let schema = schema.map(|schema| PyBytes::new(py, schema.as_bytes()));
        Some((model, is_stream, PyBytes::new(py, &settings), name.flatten(), schema, is_untyped))
    }

    /// Id, model, whether it is completed, and what stands between the outer braces; None for the long way.
    fn answer<'py>(&self, py: Python<'py>, text: &'py [u8]) -> Option<Answer<'py>> {
        let core::Answer { id, model, is_completed, members } = self.glance.answer(text)?;
        Some((id, model, is_completed, PyBytes::new(py, members)))
    }

    /// Id, model, whether it is whole, and the record's members, of the response that these parts are together; None for
    /// the long way. `is_private`: without what it echoes of the request.
    fn response<'py>(&self, parts: &Bound<'py, PyList>, is_private: bool) -> PyResult<Option<Response<'py>>> {
        response::seen(parts, |text| self.glance.response(text, is_private))
    }

    /// The same of a whole stream that holds the response in its last event.
    fn streamed_response<'py>(&self, parts: &Bound<'py, PyList>, is_private: bool) -> PyResult<Option<Response<'py>>> {
        response::seen(parts, |stream| self.glance.streamed_response(stream, is_private))
    }

    /// The drafts of those of the captured exchanges (`dspark_json.capture.captured.Captured`) that are ordinary, of
    /// these routes and of so many bytes at most, and the schemas that they refer to. Of others that are so large at
    /// most, which half is out of the ordinary: "request" or "answer". Other threads run meanwhile.
    fn drafts<'py>(
        &self,
        exchanges: &Bound<'py, PyList>,
        routes: Vec<String>,
        most_of_request: usize,
        most_of_answer: usize,
        most_of_stream: usize,
        keeps_settings: bool,
    ) -> Drafts<'py> {
        let (request, answer, stream) = (most_of_request, most_of_answer, most_of_stream);
        let limits = Limits { routes, request, answer, stream, keeps_settings };
        recording::drafts(exchanges, &self.glance, &limits)
    }

    /// Id and model of a streamed answer, whether it is completed, whether `[DONE]` came, and what stands between the
    /// outer braces of the assembled object; None for the long way.
    #[expect(clippy::needless_pass_by_value, reason = "it keeps the parts while others may run")]
    fn stream<'py>(
        &self,
        py: Python<'py>,
        parts: Vec<PyBackedBytes>,
        is_ended: bool,
    ) -> PyResult<Option<Streamed<'py>>> {
        let Some(seen) = py.detach(|| self.glance.stream(&parts, is_ended)) else {
            return Ok(None);
        };
        let core::Streamed { id, model, is_completed, is_done, members } = seen;
        Ok(Some((id, model, is_completed, is_done, handed_over(py, members.into_bytes())?)))
    }
}
