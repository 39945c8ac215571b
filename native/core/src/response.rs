//! What a record says of a response of `/v1/responses`: its one choice in the chat form, and its members without what
//! they echo of the request, in one walk over its text.
//!
//! The rules are those of `dspark_json/capture/responses.py` and `redaction.py`. What is out of the ordinary (also: an
//! error, `choices` of its own, parts that are no objects, texts that are no strings) gives `None`.

use std::mem::MaybeUninit;

use memchr::{memchr, memmem};

use crate::choice::{Choice, Joined, Said};
use crate::glance::{Glance, is_one};
use crate::strict::{Once, OrNull, Walk};
use crate::values::{self, Keys};

const DONE: &[u8] = b"data: [DONE]";
const BETWEEN: &[u8] = b"\n\n";

/// What a record says of a response.
#[derive(Debug)]
pub struct Response<'a> {
    /// The response's id.
    pub id: Option<&'a str>,
    /// The model that gave it.
    pub model: Option<&'a str>,
    /// Whether it came to its end.
    pub is_whole: bool,
    pieces: Vec<&'a str>,
}

impl Response<'_> {
    /// How many bytes the record's members have: `choices`, and what stands between the response's outer braces.
    #[must_use]
    pub fn size(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// Writes these members into a room of just their size, with blanks for line breaks.
    ///
    /// # Panics
    ///
    /// If the room has another size.
    pub fn write(&self, mut room: &mut [MaybeUninit<u8>]) {
        for piece in &self.pieces {
            let (here, rest) = room.split_at_mut(piece.len());
            for (to, &byte) in here.iter_mut().zip(piece.as_bytes()) {
                to.write(if matches!(byte, b'\n' | b'\r') { b' ' } else { byte });
            }
            room = rest;
        }
        assert!(room.is_empty(), "the room is larger than the members");
    }
}

/// An object's text without some of its values.
struct Kept<'a> {
    pieces: Vec<&'a str>,
    /// Where the next piece begins.
    from: usize,
}

impl<'a> Kept<'a> {
    /// Goes over a value, which becomes null.
    fn leave_out(&mut self, walk: &mut Walk<'a>, depth: usize) -> Option<()> {
        self.pieces.extend([walk.since(self.from), "null"]);
        walk.value(depth)?;
        self.from = walk.at;
        Some(())
    }
}

/// An item of the output so far.
struct Item<'a> {
    kind: Once<&'a str>,
    phase: Once<OrNull<&'a str>>,
    content: Once<Said<'a>>,
    summary: Once<Said<'a>>,
    /// Of a call: its id, name and arguments, any values.
    call: [Once<&'a str>; 3],
}

impl Glance {
    /// Looks at a response; `is_private`: what it echoes of the request becomes null.
    #[must_use]
    pub fn response<'a>(&self, text: &'a [u8], is_private: bool) -> Option<Response<'a>> {
        let mut walk = Walk::new(simdutf8::basic::from_utf8(text).ok()?);
        walk.blanks();
        let response = self.response_at(&mut walk, 0, is_private)?;
        walk.end()?;
        Some(response)
    }

    /// Looks at a whole stream: each event has a name that is known, the last one holds the response.
    #[must_use]
    pub fn streamed_response<'a>(&self, stream: &'a [u8], is_private: bool) -> Option<Response<'a>> {
        let events = stream.strip_suffix(BETWEEN)?;
        if memchr(b'\r', events).is_some() || events.ends_with(b"\n") || memmem::find(events, b"\n\n\n").is_some() {
            return None;
        }
        let (mut before, mut last) = split_last(events);
        if last == DONE {
            (before, last) = split_last(before?);
        }
        let (name, data) = name_and_rest(last)?;
        if !is_one(name, &self.names.last_events) || !before.is_none_or(|before| self.are_passed(before)) {
            return None;
        }
        let mut walk = Walk::new(simdutf8::basic::from_utf8(data.strip_prefix(b"data: ")?).ok()?);
        if memchr(b'\n', data).is_some() {
            return None;
        }
        let (mut kind, mut response) = (Once::new(), Once::new());
        walk.object(0, |walk, key| match key.plain()? {
            "type" => kind.set(walk.text_or_null()?),
            "response" => response.set(self.response_at(walk, 1, is_private)?),
            _ => walk.value(1).map(|_| ()),
        })?;
        walk.end()?;
        response.value.filter(|_| kind.value.flatten() == Some(name))
    }

    /// Whether there is nothing in these events that the whole response does not say as well.
    fn are_passed(&self, events: &[u8]) -> bool {
        let mut start = 0;
        memmem::find_iter(events, BETWEEN).chain([events.len()]).all(|end| {
            let event = &events[start..end];
            start = end + BETWEEN.len();
            match name_and_rest(event) {
                Some((name, _)) => self.names.passed_events.binary_search_by(|known| known.as_str().cmp(name)).is_ok(),
                None => event.starts_with(b":") && memchr(b'\n', event).is_none(), // a comment
            }
        })
    }

    fn response_at<'a>(&self, walk: &mut Walk<'a>, depth: usize, is_private: bool) -> Option<Response<'a>> {
        let mut kept = Kept { pieces: Vec::new(), from: walk.at + 1 };
        let (mut id, mut model, mut kind, mut status) = (Once::new(), Once::new(), Once::new(), Once::new());
        let (mut details, mut output) = (Once::new(), Once::new());
        walk.object(depth, |walk, key| {
            let key = key.plain()?;
            match key {
                "id" => id.set(walk.text_or_null()?),
                "model" => model.set(walk.text_or_null()?),
                "object" => kind.set(walk.text_or_null()?),
                "status" => status.set(walk.text_or_null()?),
                "incomplete_details" => details.set(walk.reason(depth + 1)?),
                "output" => output.set(self.output(walk, depth + 1, is_private.then_some(&mut kept))?),
                "choices" => None,
                "text" if is_private => text_settings(walk, depth + 1, &mut kept),
                "error" => walk.literal("null"),
                _ if is_private && self.names.tell_an_error(key) => walk.literal("null"),
                _ if is_private && is_one(key, &self.names.echoed) => kept.leave_out(walk, depth + 1),
                _ => walk.value(depth + 1).map(|_| ()),
            }
        })?;
        if kind.value.flatten() == Some("error") {
            return None;
        }
        let status = status.value.flatten()?;
        let is_whole = matches!(status, "completed" | "incomplete");
        let (choice, count) = output.value?;
        let mut pieces = if count == 0 && !is_whole {
            vec![r#""choices":[]"#]
        } else {
            choice.member(match status {
                "completed" => Some("stop"),
                "incomplete" => {
                    Some(details.value.flatten().filter(|&why| why != "max_output_tokens").unwrap_or("length"))
                }
                "failed" => Some("error"),
                "cancelled" => Some("abort"),
                _ => None,
            })
        };
        let last = walk.since(kept.from);
        kept.pieces.push(&last[..last.len() - 1]);
        let end = kept.pieces.len() - 1;
        kept.pieces[0] = kept.pieces[0].trim_ascii_start();
        kept.pieces[end] = kept.pieces[end].trim_ascii_end();
        pieces.push(",");
        pieces.append(&mut kept.pieces);
        Some(Response { id: id.value.flatten(), model: model.value.flatten(), is_whole, pieces })
    }

    /// What the items say, and how many there are; with `kept` they lose what they echo.
    fn output<'a>(
        &self,
        walk: &mut Walk<'a>,
        depth: usize,
        mut kept: Option<&mut Kept<'a>>,
    ) -> Option<(Choice<'a>, usize)> {
        let (mut choice, mut count) = (Choice::default(), 0);
        walk.array(depth, |walk| {
            count += 1;
            self.item(walk, depth + 1, kept.as_deref_mut())?.tell(&mut choice)
        })?;
        Some((choice, count))
    }

    fn item<'a>(&self, walk: &mut Walk<'a>, depth: usize, mut kept: Option<&mut Kept<'a>>) -> Option<Item<'a>> {
        let mut item = Item {
            kind: Once::new(),
            phase: Once::new(),
            content: Once::new(),
            summary: Once::new(),
            call: [Once::new(), Once::new(), Once::new()],
        };
        walk.object(depth, |walk, key| {
            let key = key.plain()?;
            match (key, &mut kept) {
                ("type", _) => item.kind.set(walk.text_or_null()??),
                ("phase", _) => item.phase.set(walk.text_or_null()?),
                ("content", _) => item.content.set(walk.parts(depth + 1)?),
                ("summary", _) => item.summary.set(walk.parts(depth + 1)?),
                ("call_id", _) => item.call[0].set(walk.value(depth + 1)?),
                ("name", _) => item.call[1].set(walk.value(depth + 1)?),
                ("arguments", _) => item.call[2].set(walk.value(depth + 1)?),
                (_, Some(_)) if self.names.tell_an_error(key) => walk.literal("null"),
                (_, Some(kept)) if is_one(key, &self.names.echoed_in_output) => kept.leave_out(walk, depth + 1),
                _ => walk.value(depth + 1).map(|_| ()),
            }
        })?;
        Some(item)
    }
}

impl<'a> Item<'a> {
    fn tell(self, choice: &mut Choice<'a>) -> Option<()> {
        let content = self.content.value.unwrap_or_default();
        match self.kind.value? {
            "message" => choice.message(content, self.phase.value.flatten() == Some("commentary"))?,
            "reasoning" => choice.reasoning(content.text, self.summary.value.unwrap_or_default().text),
            "function_call" => {
                let call = self.call.map(|value| value.value.unwrap_or("null"));
                if !call.iter().all(|value| value.starts_with(['"', 'n'])) {
                    return None;
                }
                choice.calls.push(call);
            }
            _ => {}
        }
        Some(())
    }
}

/// The settings of a response's text, without the schema of its format.
fn text_settings<'a>(walk: &mut Walk<'a>, depth: usize, kept: &mut Kept<'a>) -> Option<()> {
    if walk.peek()? != b'{' {
        return walk.value(depth).map(|_| ());
    }
    walk.object(depth, |walk, key| {
        if key.plain()? != "format" || walk.peek()? != b'{' {
            return walk.value(depth + 1).map(|_| ());
        }
        walk.object(depth + 1, |walk, key| match key.plain()? {
            "schema" => kept.leave_out(walk, depth + 2),
            _ => walk.value(depth + 2).map(|_| ()),
        })
    })
}

/// The events before the last one, and that.
fn split_last(events: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match memmem::rfind(events, BETWEEN) {
        Some(end) => (Some(&events[..end]), &events[end + BETWEEN.len()..]),
        None => (None, events),
    }
}

/// The name of an event that begins with it, and its other lines.
fn name_and_rest(event: &[u8]) -> Option<(&str, &[u8])> {
    let named = event.strip_prefix(b"event: ")?;
    let end = memchr(b'\n', named)?;
    Some((std::str::from_utf8(&named[..end]).ok()?, &named[end + 1..]))
}

impl<'a> Walk<'a> {
    /// The reason in `incomplete_details`.
    fn reason(&mut self, depth: usize) -> Option<OrNull<&'a str>> {
        if self.peek()? == b'n' {
            return self.literal("null").map(|()| None);
        }
        let mut reason = Once::new();
        self.object(depth, |walk, key| match key.plain()? {
            "reason" => {
                let why = walk.text_or_null()?;
                // A word, not a sentence that may quote.
                why.is_none_or(|why| why.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')).then_some(())?;
                reason.set(why)
            }
            _ if matches!(walk.peek()?, b'"' | b'{' | b'[') => None,
            _ => walk.value(depth + 1).map(|_| ()),
        })?;
        Some(reason.value.flatten())
    }

    /// What the parts of an item say, or null.
    fn parts(&mut self, depth: usize) -> Option<Said<'a>> {
        let mut said = Said::default();
        if self.peek()? == b'n' {
            return self.literal("null").map(|()| said);
        }
        self.array(depth, |walk| {
            let (mut text, mut refusal, mut logprobs) = (Once::new(), Once::new(), Once::new());
            walk.object(depth + 1, |walk, key| match key.plain()? {
                "text" => text.set(walk.written_into(&mut said.text)?),
                "refusal" => refusal.set(walk.written_into(&mut said.refusal)?),
                "logprobs" => logprobs.set(walk.logprobs(depth + 2, &mut said.logprobs)?),
                _ => walk.value(depth + 2).map(|_| ()),
            })
        })?;
        Some(said)
    }

    /// A string, or null, which adds nothing.
    fn written_into(&mut self, texts: &mut Joined<'a>) -> Option<()> {
        match self.peek()? {
            b'"' => texts.add(self.string()?.text),
            _ => self.literal("null"),
        }
    }

    fn logprobs(&mut self, depth: usize, lists: &mut Vec<&'a str>) -> Option<()> {
        if self.peek()? == b'n' {
            return self.literal("null");
        }
        let start = self.at + 1;
        let mut keys = Keys::default();
        self.array(depth, |walk| values::value(walk, &mut keys, depth + 1).map(drop))?;
        let list = self.since(start);
        let list = list[..list.len() - 1].trim_ascii();
        if !list.is_empty() {
            lists.push(list);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glance::Names;

    fn glance() -> Glance {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Glance::new(Names {
            echoed: names(&["tools"]),
            echoed_in_output: names(&["secret"]),
            passed_events: names(&["response.created", "response.added"]),
            last_events: names(&["response.completed"]),
            ..Names::default()
        })
    }

    fn written(response: &Response) -> String {
        let mut room = vec![MaybeUninit::new(0); response.size()];
        response.write(&mut room);
        // SAFETY: they were made with a value each.
        #[expect(unsafe_code, reason = "what was written is to be read")]
        let bytes = room.into_iter().map(|byte| unsafe { byte.assume_init() }).collect();
        String::from_utf8(bytes).unwrap()
    }

    fn members(text: &str) -> Option<String> {
        glance().response(text.as_bytes(), true).map(|response| written(&response))
    }

    fn choices(output: &str) -> Option<String> {
        let text = format!(r#"{{"status":"completed","output":[{output}]}}"#);
        let members = members(&text)?;
        let message = members.strip_prefix(r#""choices":[{"index":0,"message":{"role":"assistant","#)?;
        Some(message.strip_suffix(&format!(",{}", &text[1..text.len() - 1]))?.to_owned())
    }

    #[test]
    fn items_are_one_choice_with_texts_as_written() {
        for (output, expected) in [
            ("", r#""content":null},"logprobs":null,"finish_reason":"stop"}]"#),
            (
                concat!(
                    r#"{"content":[{"text":"a\u00e9","logprobs":[ {"x":1} ]},{"text":"","refusal":"n"}],"type":"message"},"#,
                    r#"{"type":"message","content":[{"text":"b","logprobs":[2, 3]}],"phase":null},{"type":"x","a":[[]]}"#
                ),
                r#""content":"a\u00e9b","refusal":"n"},"logprobs":{"content":[{"x":1},2, 3]},"finish_reason":"stop"}]"#,
            ),
            (
                r#"{"type":"function_call","name":"f","arguments":"{\"a\":1}","call_id":"c"},{"type":"function_call"}"#,
                concat!(
                    r#""content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","#,
                    r#""arguments":"{\"a\":1}"}},{"id":null,"type":"function","function":{"name":null,"arguments":null}}]},"#,
                    r#""logprobs":null,"finish_reason":"stop"}]"#
                ),
            ),
        ] {
            assert_eq!(choices(output).as_deref(), Some(expected), "{output}");
        }
    }

    #[test]
    fn the_finish_reason_follows_the_status() {
        for (state, reason, is_whole) in [
            (r#""status":"completed""#, r#""stop""#, true),
            (r#""status":"incomplete""#, r#""length""#, true),
            (r#""status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}"#, r#""length""#, true),
            (r#""status":"incomplete","incomplete_details":{"reason":"content_filter"}"#, r#""content_filter""#, true),
            (r#""incomplete_details":{"reason":null},"status":"incomplete""#, r#""length""#, true),
            (r#""status":"failed""#, r#""error""#, false),
            (r#""status":"cancelled""#, r#""abort""#, false),
            (r#""status":"queued""#, "null", false),
        ] {
            let text = format!(r#"{{"id":"r",{state},"output":[{{"type":"x"}}]}}"#);
            let glance = glance();
            let found = glance.response(text.as_bytes(), true).unwrap();
            assert_eq!((found.id, found.model, found.is_whole), (Some("r"), None, is_whole));
            assert!(written(&found).contains(&format!(r#""finish_reason":{reason}}}]"#)), "{text}");
        }
        let found = members(r#"{"status":"queued","output":[]}"#).unwrap();
        assert_eq!(found, r#""choices":[],"status":"queued","output":[]"#);
    }

    #[test]
    fn what_is_echoed_becomes_null_and_line_breaks_become_blanks() {
        let text = concat!(
            " { \n\"tools\" : [{\"tools\":1}] ,\"status\":\"queued\",\"output\":[{\"type\":\"x\",\"secret\":{},\"tools\":1}],",
            "\"text\":{\"schema\":1,\"format\":{\"a\":[],\"schema\":{\"b\":2}}},\r\n\"tools\":null,\"secret\":3\t} "
        );
        let expected = concat!(
            "\"tools\" : null ,\"status\":\"queued\",\"output\":[{\"type\":\"x\",\"secret\":null,\"tools\":1}],",
            "\"text\":{\"schema\":1,\"format\":{\"a\":[],\"schema\":null}},  \"tools\":null,\"secret\":3"
        );
        let found = members(text).unwrap();
        assert_eq!(found.split_once("}],").unwrap().1, expected);
        let glance = glance();
        let kept = written(&glance.response(text.as_bytes(), false).unwrap());
        let whole = text.trim().trim_matches(['{', '}']).trim().replace(['\r', '\n'], " ");
        assert_eq!(kept.split_once("}],").unwrap().1, whole);
    }

    #[test]
    fn a_response_out_of_the_ordinary_gives_nothing() {
        for text in [
            r#"{"status":"completed"}"#,
            r#"{"output":[]}"#,
            r#"{"status":null,"output":[]}"#,
            r#"{"status":1,"output":[]}"#,
            r#"{"status":"completed","output":null}"#,
            r#"{"status":"completed","output":[1]}"#,
            r#"{"status":"completed","output":[]} x"#,
            r#"{"status":"completed","output":[],"choices":[]}"#,
            r#"{"status":"completed","output":[],"error":{}}"#,
            r#"{"status":"completed","output":[],"object":"error"}"#,
            r#"{"status":"completed","status":"completed","output":[]}"#,
            r#"{"status":"completed","output":[],"output":[]}"#,
            r#"{"status":"completed","output":[],"\u0074ools":1}"#,
            r#"{"status":"completed","output":[],"id":7}"#,
            r#"{"status":"completed","output":[],"text":{"form\u0061t":1}}"#,
            r#"{"status":"completed","output":[],"text":{"format":{"sch\u0065ma":1}}}"#,
            r#"{"status":"incomplete","output":[],"incomplete_details":"x"}"#,
        ] {
            assert_eq!(members(text), None, "{text}");
        }
        for item in [
            "{}",
            r#"{"type":1}"#,
            r#"{"type":"message","type":"message"}"#,
            r#"{"type":"message","content":"x"}"#,
            r#"{"type":"message","content":["x"]}"#,
            r#"{"type":"message","content":[{"text":1}]}"#,
            r#"{"type":"message","content":[{"text":"a","text":"b"}]}"#,
            r#"{"type":"message","content":[{"t\u0065xt":"a"}]}"#,
            r#"{"type":"message","content":[{"text":"\ud83d"},{"text":"\ude00"}]}"#,
            r#"{"type":"message","content":[{"logprobs":{}}]}"#,
            r#"{"type":"message","content":[{"logprobs":[{"a":1,"a":2}]}]}"#,
            r#"{"type":"message","content":[{"logprobs":[{"b":{"\u0061":1}}]}]}"#,
            r#"{"type":"message","content":[{"logprobs":[1e400]}]}"#,
            r#"{"type":"message","phase":1}"#,
            r#"{"type":"function_call","arguments":{}}"#,
            r#"{"type":"x","s\u0065cret":1}"#,
        ] {
            assert_eq!(choices(item), None, "{item}");
        }
        assert!(choices(r#"{"type":"x","arguments":{},"n":"\ud83d"}"#).is_some());
        assert!(glance().response(b"{\"status\":\"completed\",\"output\":[],\"x\":\"\xff\"}", true).is_none());
    }

    #[test]
    fn a_stream_gives_the_response_of_its_last_event() {
        let created = "event: response.created\ndata: {}\n\n";
        let event = |data: &str| format!("event: response.completed\ndata: {data}\n\n");
        let response = r#"{"status":"completed","output":[]}"#;
        let last = event(&format!(r#"{{"response":{response},"sequence_number":1,"type":"response.completed"}}"#));
        let look = |stream: &str| {
            let glance = glance();
            glance.streamed_response(stream.as_bytes(), true).map(|response| written(&response))
        };
        let expected = members(response);
        assert!(expected.is_some());
        for stream in [
            last.clone(),
            format!("{created}: ping\n\n{created}{last}data: [DONE]\n\n"),
            event(&format!(r#"{{"type":"response.completed","response": {response} }}"#)),
        ] {
            assert_eq!(look(&stream), expected, "{stream}");
        }
        for stream in [
            String::new(),
            created.to_owned(),
            last.trim_end().to_owned(),
            format!("{last}\n"),
            format!("\n\n{last}"),
            format!("{created}\n{last}"),
            last.replace('\n', "\r\n"),
            format!("{last}{last}"),
            format!("{last}data: [DONE]\n\ndata: [DONE]\n\n"),
            format!("event: response.new\ndata: {{}}\n\n{last}"),
            format!("event: response.created\n\n{last}").replace("created\n", "created"),
            format!("data: {{}}\n\n{last}"),
            format!(": ping\ndata: {{}}\n\n{last}"),
            last.replace("data", "id: 7\ndata"),
            last.replace("}\n", "}\nid: 7\n"),
            event(&format!(r#"{{"type":"response.created","response":{response}}}"#)),
            event(&format!(r#"{{"type":"response.completed","response":{response},"response":{response}}}"#)),
            event(r#"{"type":"response.completed"}"#),
        ] {
            assert_eq!(look(&stream), None, "{stream}");
        }
    }
}
