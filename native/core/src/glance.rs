//! The few things that a record needs of a request and of its answer, found in one walk over each text.
//!
//! For the serving process, whose time is dear. What is out of the ordinary (no JSON, an error, an echo of the request,
//! escapes where names are compared, a key that comes twice) gives `None`: the caller then looks at it the long way.

use std::borrow::Cow;

use memchr::{memchr2, memmem};

use crate::strict::{Once, OrNull, Walk};

const LONGEST_NAME: usize = 256;

/// What to look for; threads may share it.
#[derive(Debug)]
pub struct Glance {
    pub(crate) names: Names,
}

/// The names that are looked for.
#[derive(Debug, Default)]
pub struct Names {
    /// The request's members that are kept, in the order to keep them in.
    pub settings: Vec<String>,
    /// Members of an answer that may not be kept unless they are null.
    pub echoed: Vec<String>,
    /// The same of its choices and their messages.
    pub echoed_inside: Vec<String>,
    /// The same of a response's items.
    pub echoed_in_output: Vec<String>,
    /// Members that tell an error, which is not ordinary, beside those that have the word in their names.
    pub errors: Vec<String>,
    /// Events of a streamed response that say nothing that the response in the last one does not say as well.
    pub passed_events: Vec<String>,
    /// The events that may be the last one.
    pub last_events: Vec<String>,
    /// Members of an answer that is put together, in their order.
    pub top_order: Vec<String>,
    /// The same of a message.
    pub message_order: Vec<String>,
    /// The same of a text completion's choice.
    pub text_choice_order: Vec<String>,
}

impl Names {
    /// Whether a member of this name tells an error.
    pub(crate) fn tell_an_error(&self, key: &str) -> bool {
        let has_the_word = |key: &[u8]| key.windows(5).any(|part| part.eq_ignore_ascii_case(b"error"));
        is_one(key, &self.errors) || has_the_word(key.as_bytes())
    }
}

/// What a record says of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The model asked for.
    pub model: Option<&'a str>,
    /// Whether the answer is to be streamed.
    pub is_stream: bool,
    /// The settings that are kept, as the text of a JSON object, each value as it was written.
    pub settings: Vec<u8>,
    /// The schema that the content is to follow.
    pub schema: Option<Schema<'a>>,
    /// Whether JSON is asked for without a schema.
    pub is_untyped: bool,
}

/// A schema: its name, and its text (an object).
pub type Schema<'a> = (Option<&'a str>, &'a str);

/// What a record says of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// The answer's id.
    pub id: Option<&'a str>,
    /// The model that gave it.
    pub model: Option<&'a str>,
    /// Whether each choice ended by itself, and there is one.
    pub is_completed: bool,
    /// What stands between the outer braces.
    pub members: &'a [u8],
}

impl Glance {
    /// Looks for these names.
    #[must_use]
    pub fn new(mut names: Names) -> Self {
        names.passed_events.sort_unstable();
        Self { names }
    }

    /// Looks at a chat or completion request.
    #[must_use]
    pub fn request<'a>(&self, text: &'a [u8]) -> Option<Request<'a>> {
        let mut walk = Walk::new(simdutf8::basic::from_utf8(text).ok()?);
        let mut kept: Vec<Option<&'a str>> = vec![None; self.names.settings.len()];
        let (mut model, mut stream, mut format) = (Once::new(), Once::new(), Once::new());
        let (mut structured, mut guided) = (Once::new(), Once::new());
        walk.blanks();
        walk.object(0, |walk, key| {
            let start = walk.at;
            match key.plain()? {
                "model" => model.set(walk.text_or_null()?)?,
                "stream" => stream.set(walk.flag_or_null()?)?,
                "response_format" => format.set(walk.response_format()?)?,
                "structured_outputs" => structured.set(walk.structured_outputs()?)?,
                "guided_json" if walk.peek()? == b'{' => guided.set(walk.titled(1)?)?,
                "echo" => (walk.flag_or_null()? != Some(true)).then_some(())?,
                "guided_json" | "text" => walk.literal("null")?,
                "tools" => {
                    let tools = walk.value(1)?;
                    // Strict ones name schemas; an escape may hide the word.
                    if memmem::find(tools.as_bytes(), b"strict").is_some() || tools.contains("\\u") {
                        return None;
                    }
                }
                _ => {
                    walk.value(1)?;
                }
            }
            let place = self.names.settings.iter().position(|name| Some(name.as_str()) == key.plain());
            if place.is_some_and(|place| kept[place].replace(walk.since(start)).is_some()) {
                return None;
            }
            Some(())
        })?;
        walk.end()?;
        if walk.has_odd_number {
            return None;
        }
        let (format, structured) = (format.value.unwrap_or_default(), structured.value.unwrap_or_default());
        let schema = format.schema.or(structured.schema).or(guided.value);
        Some(Request {
            is_untyped: schema.is_none() && (format.is_any_json || structured.is_any_json),
            model: model.value.flatten(),
            is_stream: stream.value.flatten().unwrap_or(false),
            settings: object_of(&self.names.settings, &kept),
            schema,
        })
    }

    /// Looks at the whole answer of a chat or completion request.
    #[must_use]
    pub fn answer<'a>(&self, text: &'a [u8]) -> Option<Answer<'a>> {
        if memchr2(b'\n', b'\r', text).is_some() {
            return None;
        }
        let mut walk = Walk::new(simdutf8::basic::from_utf8(text).ok()?);
        let (mut id, mut model, mut kind, mut ended) = (Once::new(), Once::new(), Once::new(), Once::new());
        walk.blanks();
        let open = walk.at + 1;
        walk.object(0, |walk, key| {
            let key = key.plain()?;
            match key {
                "id" => id.set(walk.text_or_null()?),
                "model" => model.set(walk.text_or_null()?),
                "object" => kind.set(walk.text_or_null()?),
                "choices" => ended.set(self.choices(walk)?),
                "error" | "text" | "output" | "message" => walk.literal("null"),
                _ => walk.value_but(1, is_one(key, &self.names.echoed) || self.names.tell_an_error(key)),
            }
        })?;
        let close = walk.at - 1;
        walk.end()?;
        if kind.value.flatten() == Some("error") {
            return None;
        }
        Some(Answer {
            id: id.value.flatten(),
            model: model.value.flatten(),
            is_completed: ended.value?,
            members: text[open..close].trim_ascii(),
        })
    }

    /// Whether each of the choices ended by itself; what has none may be an error.
    fn choices(&self, walk: &mut Walk) -> Option<bool> {
        let (mut count, mut ended) = (0_usize, 0_usize);
        walk.array(1, |walk| {
            let mut reason = Once::new();
            walk.object(2, |walk, key| {
                let key = key.plain()?;
                match key {
                    "finish_reason" => reason.set(walk.text_or_null()?),
                    "message" | "delta" if walk.peek()? == b'{' => walk.object(3, |walk, key| {
                        let key = key.plain()?;
                        let is_odd = is_one(key, &self.names.echoed_inside) || self.names.tell_an_error(key);
                        walk.value_but(4, is_odd)
                    }),
                    _ => {
                        let is_odd = is_one(key, &self.names.echoed_inside) || self.names.tell_an_error(key);
                        walk.value_but(3, is_odd)
                    }
                }
            })?;
            count += 1;
            ended +=
                usize::from(matches!(reason.value.flatten(), Some(reason) if reason != "abort" && reason != "error"));
            Some(())
        })?;
        (count > 0).then_some(ended == count)
    }
}

/// Pieces of a text in one.
#[must_use]
pub fn joined(pieces: &[impl AsRef<[u8]>]) -> Cow<'_, [u8]> {
    match pieces {
        [whole] => Cow::Borrowed(whole.as_ref()),
        _ => Cow::Owned(pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>().concat()),
    }
}

pub(crate) fn is_one(key: &str, names: &[String]) -> bool {
    names.iter().any(|name| name == key)
}

fn object_of(names: &[String], values: &[Option<&str>]) -> Vec<u8> {
    let mut text = Vec::with_capacity(2 + values.iter().flatten().map(|value| value.len() + 32).sum::<usize>());
    text.push(b'{');
    for (name, value) in names.iter().zip(values).filter_map(|(name, value)| value.map(|value| (name, value))) {
        if text.len() > 1 {
            text.push(b',');
        }
        text.push(b'"');
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b"\":");
        text.extend_from_slice(value.as_bytes());
    }
    text.push(b'}');
    text
}

/// What a request says of the JSON that it wants.
#[derive(Default)]
struct Format<'a> {
    schema: Option<Schema<'a>>,
    is_any_json: bool,
}

impl<'a> Walk<'a> {
    fn response_format(&mut self) -> Option<Format<'a>> {
        if self.peek()? == b'n' {
            return self.literal("null").map(|()| Format::default());
        }
        let (mut kind, mut format) = (Once::new(), Once::new());
        self.object(1, |walk, key| match key.plain()? {
            "type" => kind.set(walk.text_or_null()?),
            "json_schema" if walk.peek()? == b'{' => {
                let (mut name, mut schema) = (Once::new(), Once::new());
                walk.object(2, |walk, key| match key.plain()? {
                    "name" => name.set(walk.text_or_null()?),
                    "schema" => (walk.peek()? == b'{').then_some(()).and_then(|()| schema.set(walk.value(3)?)),
                    _ => walk.value(3).map(|_| ()),
                })?;
                format.set((short(name.value.flatten())?, schema.value?))
            }
            "json_schema" => walk.literal("null"),
            _ => walk.value(2).map(|_| ()),
        })?;
        match (kind.value.flatten()?, format.value) {
            ("json_schema", Some(schema)) => Some(Format { schema: Some(schema), is_any_json: false }),
            ("json_object", _) => Some(Format { schema: None, is_any_json: true }),
            ("text", _) => Some(Format::default()),
            _ => None,
        }
    }

    fn structured_outputs(&mut self) -> Option<Format<'a>> {
        if self.peek()? == b'n' {
            return self.literal("null").map(|()| Format::default());
        }
        let (mut schema, mut any) = (Once::new(), Once::new());
        self.object(1, |walk, key| match key.plain()? {
            "json" if walk.peek()? == b'{' => schema.set(walk.titled(2)?),
            "json" => walk.literal("null"),
            "json_object" => any.set(walk.flag_or_null()?),
            _ => walk.value(2).map(|_| ()),
        })?;
        Some(Format { schema: schema.value, is_any_json: any.value.flatten() == Some(true) })
    }

    /// A schema whose title serves as its name.
    fn titled(&mut self, depth: usize) -> Option<Schema<'a>> {
        let start = self.at;
        let mut title = Once::new();
        self.object(depth, |walk, key| match key.plain()? {
            "title" if walk.peek()? == b'"' => title.set(walk.text_or_null()?),
            "title" => None,
            _ => walk.value(depth + 1).map(|_| ()),
        })?;
        Some((short(title.value.flatten())?, self.since(start)))
    }
}

/// A name as records may carry it.
fn short(name: OrNull<&str>) -> Option<OrNull<&str>> {
    name.is_none_or(|name| name.len() <= LONGEST_NAME).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glance() -> Glance {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Glance::new(Names {
            settings: names(&["seed", "n", "response_format"]),
            echoed: names(&["prompt", "tools"]),
            echoed_inside: names(&["prompt"]),
            errors: names(&["detail"]),
            ..Names::default()
        })
    }

    #[test]
    fn a_request_gives_its_settings_in_the_given_order_as_written() {
        let text = br#"{"n" : 1.50,"model":"m","x":[{"a":"\u00e9"}],"seed": {"b": []},"stream":true}"#;
        let glance = glance();
        let found = glance.request(text).unwrap();
        assert_eq!((found.model, found.is_stream, found.schema), (Some("m"), true, None));
        assert_eq!(found.settings, br#"{"seed":{"b": []},"n":1.50}"#);
    }

    #[test]
    fn a_request_gives_the_schema_of_its_format() {
        let text =
            br#"{"response_format":{"json_schema":{"strict":true,"name":"a","schema":{"x":1}},"type":"json_schema"}}"#;
        assert_eq!(glance().request(text).unwrap().schema, Some((Some("a"), r#"{"x":1}"#)));
    }

    #[test]
    fn the_format_s_schema_comes_before_those_that_only_a_title_names() {
        let format = r#""response_format":{"type":"json_schema","json_schema":{"schema":{"f":1}}}"#;
        let structured = r#""structured_outputs":{"json":{"title":"s","x":{"title":"y"}},"json_object":true}"#;
        let guided = r#""guided_json":{"g":1}"#;
        let found = |members: &[&str]| {
            let text = format!("{{{}}}", members.join(","));
            let glance = glance();
            let found = glance.request(text.as_bytes()).unwrap();
            (found.schema.map(|(name, text)| (name.map(str::to_owned), text.to_owned())), found.is_untyped)
        };
        let schema = |name: Option<&str>, text: &str| (Some((name.map(str::to_owned), text.to_owned())), false);
        assert_eq!(found(&[guided, structured, format]), schema(None, r#"{"f":1}"#));
        assert_eq!(found(&[guided, structured]), schema(Some("s"), r#"{"title":"s","x":{"title":"y"}}"#));
        assert_eq!(found(&[guided, r#""structured_outputs":{"json":null,"regex":"a"}"#]), schema(None, r#"{"g":1}"#));
    }

    #[test]
    fn json_is_untyped_where_no_schema_goes_with_it() {
        let is_untyped = |text: &str| glance().request(text.as_bytes()).unwrap().is_untyped;
        assert!(is_untyped(r#"{"response_format":{"type":"json_object"}}"#));
        assert!(is_untyped(r#"{"structured_outputs":{"json_object":true}}"#));
        assert!(!is_untyped(r#"{"structured_outputs":{"json_object":false}}"#));
        assert!(!is_untyped(r#"{"response_format":{"type":"json_object"},"guided_json":{}}"#));
        assert!(!is_untyped(r#"{"response_format":{"type":"text"}}"#));
    }

    #[test]
    fn a_request_out_of_the_ordinary_gives_nothing() {
        for text in [
            "",
            "[]",
            "{}x",
            r#"{"n":01}"#,
            r#"{"n":1e5}"#,
            r#"{"n":123456789012345678}"#,
            r#"{"n":1,"n":1}"#,
            r#"{"model":1}"#,
            r#"{"mod\u0065l":"m"}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":"\u12"}"#,
            "{\"a\":\"\n\"}",
            r#"{"guided_json":true}"#,
            r#"{"guided_json":"{}"}"#,
            r#"{"guided_json":{"title":7}}"#,
            r#"{"structured_outputs":{"json":"{}"}}"#,
            r#"{"structured_outputs":{"json_object":1}}"#,
            r#"{"structured_outputs":[]}"#,
            r#"{"echo":true}"#,
            r#"{"tools":[{"strict":true}]}"#,
            r#"{"response_format":{"type":"json_schema","json_schema":{"schema":"{}"}}}"#,
            r#"{"response_format":{"type":"json_schema"}}"#,
        ] {
            assert_eq!(glance().request(text.as_bytes()), None, "{text}");
        }
        assert_eq!(glance().request(b"{\"a\":\"\xff\"}"), None);
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(100), "]".repeat(100));
        assert_eq!(glance().request(deep.as_bytes()), None);
    }

    #[test]
    fn what_may_be_an_error_is_not_looked_at() {
        for text in [
            r#"{"choices":[]}"#,
            r#"{"choices":null}"#,
            r#"{"id":"c"}"#,
            r#"{"choices":[{}],"message":"m"}"#,
            r#"{"choices":[{}],"last_Error":"m"}"#,
            r#"{"choices":[{}],"detail":["m"]}"#,
            r#"{"choices":[{"error":"m"}]}"#,
            r#"{"choices":[{"message":{"error":"m"}}]}"#,
        ] {
            assert_eq!(glance().answer(text.as_bytes()), None, "{text}");
        }
        assert!(glance().answer(br#"{"choices":[{"error":null}],"message":null,"detail":null}"#).is_some());
    }

    #[test]
    fn an_answer_is_completed_where_each_of_its_choices_ended_by_itself() {
        for (choices, is_completed) in [
            (r#"[{"finish_reason":"stop"}]"#, true),
            (r#"[{"finish_reason":"stop","message":{"prompt":null,"a":"\""}},{"finish_reason":"length"}]"#, true),
            (r#"[{"finish_reason":"stop"},{"finish_reason":null}]"#, false),
            (r#"[{"finish_reason":"abort"}]"#, false),
            ("[{}]", false),
        ] {
            let text = format!(r#" {{ "id":"c","choices":{choices},"prompt":null,"error":null }} "#);
            let glance = glance();
            let found = glance.answer(text.as_bytes()).unwrap();
            assert_eq!((found.id, found.model, found.is_completed), (Some("c"), None, is_completed), "{text}");
            assert_eq!(found.members, &text.as_bytes()[3..text.len() - 3]);
        }
    }

    #[test]
    fn an_answer_out_of_the_ordinary_gives_nothing() {
        for text in [
            "null",
            "{\n}",
            r#"{"id":7}"#,
            r#"{"id":"a","id":"b"}"#,
            r#"{"id":"\u0041"}"#,
            r#"{"error":{}}"#,
            r#"{"object":"error"}"#,
            r#"{"prompt":"p"}"#,
            r#"{"pr\u006fmpt":"p"}"#,
            r#"{"choices":[{"prompt":"p"}]}"#,
            r#"{"choices":[{"message":{"prompt":"p"}}]}"#,
            r#"{"choices":[{"delta":{"prom\u0070t":"p"}}]}"#,
            r#"{"choices":[1]}"#,
            r#"{"choices":[{"finish_reason":"stop"}"#,
        ] {
            assert_eq!(glance().answer(text.as_bytes()), None, "{text}");
        }
    }
}
