//! Work that is done while other threads of Python run.

use std::mem::MaybeUninit;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Other threads may run while more bytes than this are looked at: fewer take no longer than handing the GIL over.
const MANY_TO_LOOK_AT: usize = 64 << 10;
/// The same of bytes that are only copied.
const MANY_TO_COPY: usize = 1 << 20;

/// Looks at so many bytes; other threads run meanwhile where they are many.
pub(crate) fn aside<T: Send>(py: Python<'_>, size: usize, look: impl FnOnce() -> T + Send) -> T {
    if size > MANY_TO_LOOK_AT { py.detach(look) } else { look() }
}

/// Copies so many bytes; other threads run meanwhile where they are many.
pub(crate) fn copied<T: Send>(py: Python<'_>, size: usize, copy: impl FnOnce() -> T + Send) -> T {
    if size > MANY_TO_COPY { py.detach(copy) } else { copy() }
}

/// So many bytes, written by `write` where they stay: each of them.
pub(crate) fn written(
    py: Python<'_>,
    size: usize,
    write: impl FnOnce(&mut [MaybeUninit<u8>]) + Send,
) -> PyResult<Bound<'_, PyBytes>> {
    let length = ffi::Py_ssize_t::try_from(size)?;
    // SAFETY: without a text the new object has room for `length` bytes that are not written yet, and for the zero behind
    // them. It is nobody else's before it is returned, and `bytes` lie where they are as long as they live.
    unsafe {
        let bytes = Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), length))?;
        let room = ffi::PyBytes_AsString(bytes.as_ptr()).cast::<MaybeUninit<u8>>();
        let room = std::slice::from_raw_parts_mut(room, size);
        aside(py, size, || write(room));
        Ok(bytes.cast_into_unchecked())
    }
}

/// Bytes as Python's.
pub(crate) fn handed_over(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Bound<'_, PyBytes>> {
    if bytes.len() <= MANY_TO_COPY {
        return Ok(PyBytes::new(py, &bytes));
    }
    written(py, bytes.len(), move |room| {
        for (to, &byte) in room.iter_mut().zip(&bytes) {
            to.write(byte);
        }
    })
}
