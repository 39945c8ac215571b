//! Answers of a language model server, as lines of JSON, to Arrow columns.
//!
//! A [`Plan`] is compiled once a query, of the declared rows and the columns wanted of them; [`parse`] makes a batch of
//! rows from a batch of lines by it. Every record gives its row whatever it holds, unless filters or the mode say
//! otherwise, and one record never touches another.

#![deny(unsafe_code)]

mod assembly;
mod batch;
mod bits;
mod blocks;
mod checksums;
mod choice;
mod chunk;
mod columns;
mod content;
mod document;
mod draft;
mod error;
mod exact;
mod framing;
mod glance;
mod number;
mod numbers;
mod plan;
mod reader;
mod request;
mod rescue;
mod response;
mod scan;
mod shape;
mod steps;
mod storing;
mod stream;
mod strict;
mod taps;
mod text;
mod texts;
mod values;
mod walk;
mod wire;

#[cfg(test)]
mod linear;
#[cfg(test)]
mod testing;

pub use batch::{Records, Stats, parse};
pub use checksums::first_damaged;
pub use draft::{Draft, Exchange, Odd};
pub use error::{BatchError, PlanError};
pub use framing::{Part, Place, Record, frame};
pub use glance::{Answer, Glance, Names, Request, Schema, joined};
pub use plan::{Mode, Options, Plan};
pub use response::Response;
pub use storing::{Piece, StoreError, store};
pub use stream::Streamed;
