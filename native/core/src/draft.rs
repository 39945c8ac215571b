//! The record of an ordinary exchange, all but the reference to its schema.

use std::io::Write;

use crate::glance::{Glance, Request, joined};
use crate::rescue::escape;

/// A request and its whole answer of status 200, as the messages brought them.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The route, that of a chat or of a completion.
    pub path: &'a str,
    /// The pieces of the request's body.
    pub request: Vec<&'a [u8]>,
    /// The pieces of the answer's body.
    pub body: Vec<&'a [u8]>,
    /// The id that the request's or the answer's headers tell, if they do.
    pub request_id: Option<&'a [u8]>,
    /// In µs since the epoch.
    pub received_at: i64,
    /// In ms since then.
    pub first_byte_ms: Option<f64>,
    /// In ms since then.
    pub duration_ms: Option<f64>,
    /// Whether the client has the whole answer.
    pub is_ended: bool,
    /// Whether the answer is a stream of events.
    pub is_streamed: bool,
    /// Whether the request's settings are kept, and its schema is referred to.
    pub keeps_settings: bool,
}

/// A record without its number, and maybe without the reference to a schema.
#[derive(Debug, PartialEq, Eq)]
pub struct Draft {
    /// The members of `_dspark` after `seq` and `lane`, up to where the schema is referred to.
    pub head: Vec<u8>,
    /// What follows there.
    pub tail: Vec<u8>,
    /// What stands between the outer braces of the answer.
    pub members: Vec<u8>,
    /// The schema that the request names for the content: its name and its text. `None`: none is to be referred to.
    pub schema: Option<(Option<String>, String)>,
    /// Whether the client left before the answer's end.
    pub is_disconnected: bool,
    /// The model that was asked for JSON without a schema, if one was.
    pub untyped_model: Option<String>,
}

/// The half of an exchange that is out of the ordinary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Odd {
    /// The request; its answer was not looked at.
    Request,
    /// The answer alone.
    Answer,
}

impl Glance {
    /// The record of an exchange.
    ///
    /// # Errors
    /// What of it is out of the ordinary.
    pub fn draft(&self, exchange: &Exchange) -> Result<Draft, Odd> {
        let text = joined(&exchange.request);
        let request = self.request(&text).ok_or(Odd::Request)?;
        if exchange.is_streamed {
            let streamed = self.stream(&exchange.body, exchange.is_ended).ok_or(Odd::Answer)?;
            let answer = Told {
                id: streamed.id.as_deref(),
                model: streamed.model.as_deref(),
                is_completed: streamed.is_completed,
                is_disconnected: !(exchange.is_ended || streamed.is_done),
            };
            return Ok(drafted(exchange, &request, answer, streamed.members.into_bytes()));
        }
        let text = joined(&exchange.body);
        let answer = self.answer(&text).ok_or(Odd::Answer)?;
        let members = answer.members.to_vec();
        let is_disconnected = !exchange.is_ended;
        let told = Told { id: answer.id, model: answer.model, is_completed: answer.is_completed, is_disconnected };
        Ok(drafted(exchange, &request, told, members))
    }
}

/// What an answer tells, texts as they are written between their quotes.
#[derive(Clone, Copy)]
struct Told<'a> {
    id: Option<&'a str>,
    model: Option<&'a str>,
    is_completed: bool,
    is_disconnected: bool,
}

fn drafted(exchange: &Exchange, request: &Request, answer: Told, members: Vec<u8>) -> Draft {
    let is_disconnected = answer.is_disconnected;
    let mut head = Vec::with_capacity(512);
    head.extend_from_slice(br#""request_id":"#);
    match exchange.request_id {
        Some(id) => put_header(&mut head, id),
        None => put_written(&mut head, answer.id),
    }
    head.extend_from_slice(br#","path":"#);
    put_written(&mut head, Some(exchange.path));
    head.extend_from_slice(br#","model":"#);
    put_written(&mut head, request.model.or(answer.model));
    let _ = write!(head, r#","status":200,"stream":{},"received_at":{}"#, request.is_stream, exchange.received_at);
    head.extend_from_slice(br#","first_byte_ms":"#);
    put_number(&mut head, exchange.first_byte_ms);
    head.extend_from_slice(br#","duration_ms":"#);
    put_number(&mut head, exchange.duration_ms);
    let is_completed = answer.is_completed;
    let _ = write!(head, r#","completed":{is_completed},"disconnected":{is_disconnected},"error":null,"schema":"#);
    let mut tail = br#","request":"#.to_vec();
    tail.extend_from_slice(if exchange.keeps_settings { &request.settings } else { b"null" });
    tail.extend_from_slice(br#","body":null"#);
    Draft {
        head,
        tail,
        members,
        schema: request
            .schema
            .filter(|_| exchange.keeps_settings)
            .map(|(name, text)| (name.map(str::to_owned), text.to_owned())),
        is_disconnected,
        untyped_model: request.is_untyped.then(|| request.model.unwrap_or_default().to_owned()),
    }
}

/// A string as it is written between its quotes, or null.
fn put_written(text: &mut Vec<u8>, value: Option<&str>) {
    match value {
        Some(value) => {
            text.push(b'"');
            text.extend_from_slice(value.as_bytes());
            text.push(b'"');
        }
        None => text.extend_from_slice(b"null"),
    }
}

/// A header's value, which is Latin-1, as a string.
fn put_header(text: &mut Vec<u8>, value: &[u8]) {
    let value: String = value.iter().copied().map(char::from).collect();
    text.push(b'"');
    escape(value.as_bytes(), text);
    text.push(b'"');
}

fn put_number(text: &mut Vec<u8>, value: Option<f64>) {
    match value {
        Some(value) if value.is_finite() => {
            let _ = write!(text, "{value:?}");
        }
        _ => text.extend_from_slice(b"null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(id: &[u8]) -> String {
        let mut text = Vec::new();
        put_header(&mut text, id);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_header_is_written_as_latin_1_with_its_quotes_escaped() {
        assert_eq!(text_of(b"a-1"), r#""a-1""#);
        assert_eq!(text_of(b"\"\\\x01\xe9\x7f"), "\"\\\"\\\\\\u0001\u{e9}\u{7f}\"");
    }

    #[test]
    fn numbers_are_json() {
        let mut text = Vec::new();
        for value in [Some(0.0), Some(1.5), Some(1e-7), Some(1e300), Some(f64::NAN), None] {
            put_number(&mut text, value);
            text.push(b' ');
        }
        assert_eq!(text, b"0.0 1.5 1e-7 1e300 null null ");
    }
}
