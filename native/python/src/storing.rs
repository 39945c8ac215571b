//! Lines and entries into open files, in one go.

use std::fs::File;
use std::io::Error;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, RawFd};
use std::path::PathBuf;

use dspark_json_core as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Where no error of the operating system is behind it.
const INPUT_OUTPUT_ERROR: i32 = 5;

/// Writes `lines` at `end` of the file `data` and `entries` at `place` of the file `index`, whose name is `path`: the
/// step that failed (0: none, 1: the lines, 2: the entries, 3: the look at the names), its error number, and whether the
/// files still have their names. `ValueError` where a number is that of no file. Other threads run meanwhile.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "two files, each with its place")]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 hands it over")]
pub(crate) fn store(
    py: Python<'_>,
    data: RawFd,
    lines: &[u8],
    end: u64,
    index: RawFd,
    entries: &[u8],
    place: u64,
    path: PathBuf,
) -> PyResult<(u8, i32, bool)> {
    if let Some(number) = [data, index].into_iter().find(|&number| number < 0) {
        return Err(PyValueError::new_err(format!("{number} is no file descriptor")));
    }
    // SAFETY: the caller has both files open and keeps them so until this returns; they are not closed here. A negative
    // number, which a `File` can't hold, is refused above.
    let [data, index] = [data, index].map(|file| ManuallyDrop::new(unsafe { File::from_raw_fd(file) }));
    let lines = core::Piece { file: &data, at: end, bytes: lines };
    let entries = core::Piece { file: &index, at: place, bytes: entries };
    let number = |error: Error| error.raw_os_error().unwrap_or(INPUT_OUTPUT_ERROR);
    Ok(match py.detach(|| core::store(lines, entries, &path)) {
        Ok(is_in_place) => (0, 0, is_in_place),
        Err(core::StoreError::Lines(error)) => (1, number(error), false),
        Err(core::StoreError::Entries(error)) => (2, number(error), false),
        Err(core::StoreError::Look(error)) => (3, number(error), false),
    })
}
