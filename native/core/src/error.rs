//! What can go wrong: for a plan, for a batch, and inside the scan of one text.

use std::fmt;

/// Why a plan could not be made of its schemas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError(pub String);

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlanError {}

/// Why a batch could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchError {
    /// `ends` and `appended_at` do not describe the buffer.
    Spans(String),
    /// The record with this number is malformed, and the mode is `FAILFAST`.
    Malformed {
        /// Number of the record.
        seq: u64,
        /// The status that a content of it has; `None`: the line is no JSON object.
        status: Option<&'static str>,
    },
    /// The text of a column would pass 2 GiB with this record, which Arrow's offsets don't reach.
    TooLarge {
        /// Number of the record.
        seq: u64,
    },
    /// A defect of the engine showed at this record.
    Internal {
        /// Number of the record.
        seq: u64,
        /// What is known of it.
        what: String,
    },
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spans(what) => write!(f, "the records' spans don't fit: {what}"),
            Self::Malformed { seq, status: None } => write!(f, "record {seq} is no JSON object"),
            Self::Malformed { seq, status: Some(status) } => {
                write!(f, "record {seq} has a content whose status is {status}")
            }
            Self::TooLarge { seq } => write!(f, "a column passes 2 GiB with record {seq}"),
            Self::Internal { seq, what } => write!(f, "the engine failed at record {seq}: {what}"),
        }
    }
}

impl std::error::Error for BatchError {}

/// Why the scan of a text ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The text is not JSON.
    Syntax,
    /// It holds something that only the exact way reads: duplicate names above all.
    Exact,
    /// The filters leave the record out, whatever else it holds.
    Filtered,
    /// A column would pass what Arrow's offsets reach.
    TooLarge,
    /// Shapes and columns don't match: a defect.
    Defect,
}

pub(crate) type Scan<T> = Result<T, Stop>;
