//! The bytes of a streamed chat or text completion to the object that the call gives without streaming.
//!
//! For streams as servers of language models write them: an event is one line `data: {…}` and a blank one. Whatever is
//! written in another way, or would not read the same if it were written again as it stands, gives `None`: the way that
//! knows all cases (`dspark_json/capture/stream.py`, `assembly.py`) then looks at it.

use memchr::{memchr, memrchr};

use crate::assembly::Text;
use crate::chunk::{Added, Chunks};
use crate::glance::{Glance, joined};
use crate::steps;
use crate::strict::Walk;
use crate::values::string;

const DONE: &str = "[DONE]";
const EVENT: &[u8] = b"data: {";
const DONE_LINE: &[u8] = b"data: [DONE]";
/// Patterns that are kept, a choice usually has one.
const MOST_PATTERNS: usize = 16;

/// What a record says of a streamed answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Streamed {
    /// The answer's id.
    pub id: Option<String>,
    /// The model that gave it.
    pub model: Option<String>,
    /// Whether each choice ended by itself, and there is one.
    pub is_completed: bool,
    /// Whether `[DONE]` came.
    pub is_done: bool,
    /// What stands between the outer braces of the assembled object.
    pub members: String,
}

impl Glance {
    /// Assembles the answer that was sent in these parts, cut anywhere; `is_ended`: the last of them was sent.
    #[must_use]
    pub fn stream(&self, parts: &[impl AsRef<[u8]>], is_ended: bool) -> Option<Streamed> {
        let bytes = joined(parts);
        if memchr(b'\r', &bytes).is_some() {
            return None;
        }
        let (lines, rest) = bytes.split_at(memrchr(b'\n', &bytes).map_or(0, |place| place + 1));
        let mut stream = Stream::new(self);
        let is_between_events = stream.lines(simdutf8::basic::from_utf8(lines).ok()?)?;
        if !rest.is_empty() {
            if !is_between_events {
                return None;
            }
            stream.rest(rest, is_ended)?;
        }
        let assembly = stream.chunks.assembly;
        if assembly.kind() == Some("error") || assembly.may_be_an_error(&self.names) {
            return None;
        }
        Some(Streamed {
            id: assembly.top.quoted("id").map(str::to_owned),
            model: assembly.top.quoted("model").map(str::to_owned),
            is_completed: assembly.is_completed(),
            is_done: stream.is_done,
            members: assembly.members(&self.names)?,
        })
    }
}

/// How an event is written that does nothing but add a string to a text, however often it comes.
#[derive(Clone, Copy)]
struct Pattern<'a> {
    /// From the begin of its line to the string's opening quote.
    head: &'a str,
    /// From the string's closing quote to the end of its blank line.
    tail: &'a str,
    text: Text,
}

struct Stream<'a, 'g> {
    chunks: Chunks<'a, 'g>,
    patterns: Vec<Pattern<'a>>,
    /// The pattern of the last event that had one.
    pattern: usize,
    is_done: bool,
}

impl<'a, 'g> Stream<'a, 'g> {
    fn new(glance: &'g Glance) -> Self {
        Self { chunks: Chunks::new(glance), patterns: Vec::new(), pattern: 0, is_done: false }
    }

    /// Takes whole lines; whether the last event is over.
    fn lines(&mut self, text: &'a str) -> Option<bool> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() && !self.is_done {
            if let Some(next) = self.again(text, at) {
                at = next;
                continue;
            }
            let end = at + memchr(b'\n', &bytes[at..])?;
            steps::add(end + 1 - at);
            match bytes[at] {
                b'\n' | b':' => at = end + 1,
                _ if matches!(bytes.get(end + 1), None | Some(b'\n')) => {
                    if let Some(added) = self.event(&text[..end], at)?
                        && let Some(tail) = text.get(added.end - 1..end + 2)
                    {
                        self.learn(Pattern { head: &text[at..=added.start], tail, text: added.text });
                    }
                    at = end + 2;
                }
                _ => return None,
            }
        }
        Some(at <= bytes.len())
    }

    /// Takes what stands behind the last line.
    fn rest(&mut self, rest: &'a [u8], is_ended: bool) -> Option<()> {
        if self.is_done {
            return Some(());
        }
        if rest == DONE_LINE || rest.trim_ascii_end().ends_with(b"}") {
            return self.event(simdutf8::basic::from_utf8(rest).ok()?, 0).map(drop);
        }
        // Cut off: what ends in another way is no object.
        let is_begun = rest.starts_with(EVENT) || EVENT.starts_with(rest) || DONE_LINE.starts_with(rest);
        (is_begun && !is_ended).then_some(())
    }

    /// The event that is written like one before it, but for its string: where the next one begins.
    fn again(&mut self, text: &'a str, at: usize) -> Option<usize> {
        for step in 0..self.patterns.len().min(2) {
            let place = (self.pattern + step) % self.patterns.len();
            let Pattern { head, tail, text: target } = self.patterns[place];
            if !text.as_bytes()[at..].starts_with(head.as_bytes()) {
                continue;
            }
            let mut walk = Walk::new(text);
            walk.at = at + head.len() - 1;
            if let Some(written) = string(&mut walk)
                && text.as_bytes()[walk.at - 1..].starts_with(tail.as_bytes())
            {
                self.chunks.assembly.texts.add(target, written.text);
                self.pattern = place;
                steps::add(1);
                return Some(walk.at - 1 + tail.len());
            }
        }
        None
    }

    fn learn(&mut self, pattern: Pattern<'a>) {
        // So that no more than a line is compared with it.
        debug_assert!(!pattern.head.contains('\n') && pattern.tail.find('\n') == Some(pattern.tail.len() - 2));
        self.pattern = match self.patterns.iter().position(|known| known.text == pattern.text) {
            Some(place) => place,
            None if self.patterns.len() < MOST_PATTERNS => self.patterns.len(),
            None => self.pattern,
        };
        if self.pattern == self.patterns.len() {
            self.patterns.push(pattern);
        } else {
            self.patterns[self.pattern] = pattern;
        }
    }

    /// Takes the event whose one line is `line[at..]`; the string that it added, if it did nothing else.
    #[expect(clippy::option_option, reason = "the outer one is for what is out of the ordinary")]
    fn event(&mut self, line: &'a str, at: usize) -> Option<Option<Added>> {
        let data = line[at..].strip_prefix("data:")?;
        let data = data.strip_prefix(' ').unwrap_or(data);
        if data == DONE {
            self.is_done = true;
            return Some(None);
        }
        let mut walk = Walk::new(line);
        walk.at = line.len() - data.len();
        let effects = self.chunks.take(&mut walk)?;
        walk.end()?;
        Some(effects.added.filter(|_| !effects.has_others))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::glance::Names;

    fn glance() -> Glance {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        Glance::new(Names {
            echoed: names(&["prompt", "tools"]),
            echoed_inside: names(&["prompt"]),
            top_order: names(&["id", "object", "created", "model", "choices", "usage"]),
            message_order: names(&["role", "content", "tool_calls", "reasoning"]),
            text_choice_order: names(&["index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids"]),
            ..Names::default()
        })
    }

    fn assembled(stream: &str) -> Option<Streamed> {
        glance().stream(&[stream], true)
    }

    const CHAT: &str = concat!(
        r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"role":"assistant","content":""},"#,
        r#""finish_reason":null}],"prompt":"p"}"#,
        "\n\n",
        r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"é\""},"token_ids":[1]}]}"#,
        "\n\n",
        r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"tool_calls":[{"id":"t","#,
        r#""index":0,"function":{"name":"f","arguments":"{"}}]},"token_ids":[2, 3]}]}"#,
        "\n\n: ping\n\n",
        r#"data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"b"},"#,
        r#""finish_reason":"stop"}],"model":"m"}"#,
        "\n\n",
        r#"data: {"id":"c","choices":[],"usage":{"n": 1}}"#,
        "\n\ndata: [DONE]\n\n",
    );

    #[test]
    fn a_stream_gives_the_object_that_its_chunks_add_up_to() {
        let found = assembled(CHAT).unwrap();
        assert_eq!((found.id.as_deref(), found.model.as_deref()), (Some("c"), Some("m")));
        assert!(found.is_completed && found.is_done);
        assert_eq!(
            found.members,
            concat!(
                r#""id":"c","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","#,
                r#""content":"é\"b","tool_calls":[{"id":"t","type":null,"function":{"name":"f","arguments":"{"}}]},"#,
                r#""logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":[1,2, 3]}],"#,
                r#""usage":{"n": 1},"prompt":null"#,
            )
        );
    }

    #[test]
    fn parts_may_end_anywhere() {
        let whole = assembled(CHAT);
        for size in [1, 2, 3, 50] {
            let parts = CHAT.as_bytes().chunks(size).collect::<Vec<_>>();
            assert_eq!(glance().stream(&parts, true), whole);
        }
        let nothing: [&str; 0] = [];
        assert_eq!(glance().stream(&nothing, false).unwrap().members, r#""choices":[],"usage":null"#);
    }

    #[test]
    fn the_event_that_a_stream_was_cut_off_in_is_left_out() {
        let (events, _) = CHAT.rsplit_once("data: {").unwrap();
        let whole = glance().stream(&[events], false);
        assert!(whole.is_some());
        for rest in ["", "d", "data: ", "data: {", "data: {\"id", "data: [DON"] {
            assert_eq!(glance().stream(&[events, rest], false), whole, "{rest}");
            assert_eq!(glance().stream(&[events, rest], true).is_some(), rest.is_empty(), "{rest}");
        }
        assert_eq!(glance().stream(&[events.as_bytes(), b"data: {\"id\":\"\xc3"], false), whole);
        for rest in ["x", "data: 5", "data: {}}", "event: x", "data: {\"id\":{}", "\u{feff}data: [DONE]"] {
            assert_eq!(glance().stream(&[events, rest], false), None, "{rest}");
        }
        assert!(glance().stream(&[events, "data: [DONE]"], false).unwrap().is_done);
    }

    #[test]
    fn an_event_that_does_more_than_add_a_string_is_no_pattern() {
        let event = |text: &str, rest: &str| {
            format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"{rest}}}\n\n")
        };
        for (rest, expected) in [
            ("}}]", r#""content":"abc"},"#),
            (r#","x":[1]}}]"#, r#""x":[1,1,1]"#),
            (r#","reasoning":"r"}}]"#, r#""reasoning":"rrr""#),
            (r#"},"token_ids":[1]}]"#, r#""token_ids":[1,1,1]"#),
            (r#"},"logprobs":{"a":[1]}}]"#, r#""logprobs":{"a":[1,1,1]}"#),
            (r#","tool_calls":[{"index":0,"function":{"arguments":"r"}}]}}]"#, r#""arguments":"rrr""#),
        ] {
            let stream = ["a", "b", "c"].map(|text| event(text, rest)).concat();
            let members = assembled(&stream).unwrap().members;
            assert!(members.contains(r#""content":"abc""#) && members.contains(expected), "{members}");
        }
        // The value of the last event counts, even if it is written like one before.
        let [first, second] = ["1", "2"].map(|usage| event("a", &format!("}}}}],\"usage\":{usage}")));
        assert!(assembled(&[&*first, &second, &first].concat()).unwrap().members.contains("\"usage\":1"));
        // A string may end like a pattern, and hold what stands between events.
        let stream = ["a", r#"b\"}}]}\n\ndata: {"#, "c"].map(|text| event(text, "}}]")).concat();
        assert!(assembled(&stream).unwrap().members.contains(r#""content":"ab\"}}]}\n\ndata: {c""#));
    }

    fn steps_of(stream: &str) -> u64 {
        steps::of(|| drop(assembled(stream)))
    }

    #[test]
    fn twice_the_stream_is_twice_the_work() {
        let chunk = |number: usize, choice: &str| format!("data: {{\"choices\":[{choice}],\"n\":{number}}}\n\n");
        let delta = |number: usize, delta: &str| chunk(number, &format!("{{\"index\":0,\"delta\":{{{delta}}}}}"));
        let kinds: [&dyn Fn(usize) -> String; 12] = [
            &|_| "data: {}\n\n".to_owned(),
            &|_| "\n".to_owned(),
            &|_| ":\n".to_owned(),
            &|_| "data: {\"choices\":[{}],\"a\":[[],{},\"\\n\"]}\n\n".to_owned(),
            &|number| delta(number, "\"content\":\"x\""),
            &|_| delta(0, "\"content\":\"x\""),
            &|number| delta(0, &format!("\"content\":\"{}\"", "\\n".repeat(number % 50))),
            &|number| delta(0, &format!("\"{}\":\"x\"", ["a", "b", "c", "d"][number % 4])),
            &|number| chunk(0, &format!("{{\"delta\":{{\"content\":\"x\"}},\"index\":{}}}", number * 7 % 4096)),
            &|number| delta(0, &format!("\"tool_calls\":[{{\"id\":\"x\",\"index\":{}}}]", number * 7 % 4095)),
            &|number| chunk(0, &format!("{{\"index\":0,\"text\":\"{number}\",\"logprobs\":{{\"a\":[{number}]}}}}")),
            &|number| delta(number, &format!("\"x{}\":[{number}]", number % 60)),
        ];
        for (kind, event) in kinds.iter().enumerate() {
            let stream = |count: usize| (0..count).map(event).collect::<String>();
            let (few, many) = (stream(5_000), stream(20_000));
            assert!(assembled(&many).is_some(), "{kind}");
            assert!(steps_of(&few) > 0 && steps_of(&many) < 5 * steps_of(&few), "{kind}");
        }
    }

    #[test]
    fn a_million_events_or_parts_are_no_more_work_than_their_bytes() {
        let stream = "data: {}\n\n".repeat(1_000_000);
        assert!(steps_of(&stream) <= 2 * stream.len() as u64);
        let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(1_000_000));
        let parts = event.as_bytes().chunks(1).collect::<Vec<_>>();
        let steps = steps::of(|| assert!(glance().stream(&parts, true).is_some()));
        assert!(steps <= 2 * event.len() as u64);
    }

    #[test]
    fn more_choices_than_anybody_asks_for_are_refused() {
        let stream = |count: u32| {
            let choices = (0..=count).map(|n| format!("{{\"index\":{n}}}")).collect::<Vec<_>>();
            format!("data: {{\"choices\":[{}]}}\n\n", choices.join(","))
        };
        assert!(assembled(&stream(4_095)).is_some());
        assert_eq!(assembled(&stream(4_096)), None);
    }
}
