//! What the chunks of a stream add up to: the object that the same call gives without streaming.
//!
//! Which of several values counts is said by `dspark_json/capture/assembly.py`, as is where new members go.

use std::collections::BTreeMap;

use crate::glance::{Names, is_one};

/// More members of one object than this are for others: they are looked up one by one.
const MOST_MEMBERS: usize = 64;
/// Choices and tool calls of one answer together.
const MOST_PARTS: usize = 4096;

const CHUNK: &str = ".chunk";
/// Bytes of an answer beside its texts.
const USUAL_REST: usize = 1024;

/// The texts of an answer that grow, as they are written between their quotes.
#[derive(Default)]
pub(crate) struct Texts(Vec<String>);

/// One of the texts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Text(usize);

impl Texts {
    pub(crate) fn begin(&mut self) -> Text {
        self.0.push(String::new());
        Text(self.0.len() - 1)
    }

    pub(crate) fn add(&mut self, text: Text, written: &str) {
        self.0[text.0].push_str(written);
    }

    fn write(&self, text: Text, out: &mut String) {
        out.push('"');
        out.push_str(&self.0[text.0]);
        out.push('"');
    }
}

/// A member's value so far, as it is written.
enum Value<'a> {
    Null,
    Plain(&'a str),
    Text(Text),
    /// What stands between the brackets.
    List(String),
}

/// Members in the order in which they came first. A value of another kind than the one before it gives `None`.
#[derive(Default)]
pub(crate) struct Fields<'a> {
    members: Vec<(&'a str, Value<'a>)>,
    /// Where the member is that probably comes next.
    next: usize,
}

impl<'a> Fields<'a> {
    fn of_nulls(names: &[&'static str]) -> Self {
        Self { members: names.iter().map(|&name| (name, Value::Null)).collect(), next: 0 }
    }

    /// The value of a member that came, null where it is new.
    fn value(&mut self, name: &'a str) -> Option<&mut Value<'a>> {
        let place = match self.members.get(self.next) {
            Some((next, _)) if *next == name => self.next,
            _ => match self.members.iter().position(|(known, _)| *known == name) {
                Some(place) => place,
                None if self.members.len() < MOST_MEMBERS => {
                    self.members.push((name, Value::Null));
                    self.members.len() - 1
                }
                None => return None,
            },
        };
        self.next = place + 1;
        Some(&mut self.members[place].1)
    }

    pub(crate) fn null(&mut self, name: &'a str) -> Option<()> {
        self.value(name).map(drop)
    }

    /// Of several values the first one counts.
    pub(crate) fn first(&mut self, name: &'a str, written: &'a str) -> Option<()> {
        let value = self.value(name)?;
        if matches!(value, Value::Null) {
            *value = Value::Plain(written);
        }
        Some(())
    }

    /// Of several values the last one counts.
    pub(crate) fn last(&mut self, name: &'a str, written: &'a str) -> Option<()> {
        let value = self.value(name)?;
        if !matches!(value, Value::Null | Value::Plain(_)) {
            return None;
        }
        *value = Value::Plain(written);
        Some(())
    }

    /// A list goes on; `written` has its brackets.
    pub(crate) fn list(&mut self, name: &'a str, written: &'a str) -> Option<()> {
        let items = written.strip_prefix('[')?.strip_suffix(']')?.trim_ascii();
        let value = self.value(name)?;
        match value {
            Value::Null => *value = Value::List(items.to_owned()),
            Value::List(known) => {
                if !known.is_empty() && !items.is_empty() {
                    known.push(',');
                }
                known.push_str(items);
            }
            _ => return None,
        }
        Some(())
    }

    /// The text that goes on with the next string.
    pub(crate) fn text(&mut self, name: &'a str, texts: &mut Texts) -> Option<Text> {
        let value = self.value(name)?;
        match *value {
            Value::Null => {
                let text = texts.begin();
                *value = Value::Text(text);
                Some(text)
            }
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What stands between the quotes of a member that is a string.
    pub(crate) fn quoted(&self, name: &str) -> Option<&'a str> {
        match self.members.iter().find(|(known, _)| *known == name)?.1 {
            Value::Plain(written) => written.strip_prefix('"')?.strip_suffix('"'),
            _ => None,
        }
    }

    fn has_others(&self, known: &[String]) -> bool {
        self.members.iter().any(|(name, value)| !matches!(value, Value::Null) && !is_one(name, known))
    }

    /// Writes those members that are in `order` in its order, then all others; `other` may write a value itself.
    fn write(
        &self,
        order: &[String],
        texts: &Texts,
        out: &mut String,
        mut other: impl FnMut(&str, &mut String) -> bool,
    ) {
        let ordered = order.iter().filter_map(|name| self.members.iter().find(|(known, _)| known == name));
        let rest = self.members.iter().filter(|(name, _)| !is_one(name, order));
        for (name, value) in ordered.chain(rest) {
            key(name, out);
            if other(name, out) {
                continue;
            }
            match value {
                Value::Null => out.push_str("null"),
                Value::Plain(written) => out.push_str(written),
                Value::Text(text) => texts.write(*text, out),
                Value::List(items) => {
                    out.push('[');
                    out.push_str(items);
                    out.push(']');
                }
            }
        }
    }
}

fn key(name: &str, out: &mut String) {
    // A value never ends with a brace that opens.
    if !out.is_empty() && !out.ends_with('{') {
        out.push(',');
    }
    out.push('"');
    out.push_str(name);
    out.push_str("\":");
}

/// The answer of a stream so far.
#[derive(Default)]
pub(crate) struct Assembly<'a> {
    pub(crate) top: Fields<'a>,
    pub(crate) texts: Texts,
    choices: BTreeMap<u32, Choice<'a>>,
    parts: usize,
}

/// A choice of a chat completion, or of a text completion, which has no message.
pub(crate) struct Choice<'a> {
    pub(crate) fields: Fields<'a>,
    pub(crate) logprobs: Fields<'a>,
    pub(crate) message: Option<Fields<'a>>,
    tools: BTreeMap<u32, Tool<'a>>,
}

/// A tool call.
pub(crate) struct Tool<'a> {
    pub(crate) fields: Fields<'a>,
    pub(crate) function: Fields<'a>,
}

impl<'a> Assembly<'a> {
    /// A choice that came before.
    pub(crate) fn choice(&mut self, index: u32) -> Option<(&mut Choice<'a>, &mut Texts)> {
        Some((self.choices.get_mut(&index)?, &mut self.texts))
    }

    pub(crate) fn new_choice(&mut self, index: u32, is_chat: bool) -> Option<()> {
        self.one_more()?;
        let mut fields = Fields::of_nulls(&["logprobs", "finish_reason", "stop_reason"]);
        if !is_chat {
            fields.text("text", &mut self.texts)?;
        }
        let message = is_chat.then(|| Fields::of_nulls(&["role", "content"]));
        let choice = Choice { fields, logprobs: Fields::default(), message, tools: BTreeMap::new() };
        self.choices.insert(index, choice);
        Some(())
    }

    /// A tool call of a choice that came before.
    pub(crate) fn tool(&mut self, choice: u32, index: u32) -> Option<(&mut Tool<'a>, &mut Texts)> {
        if !self.choices.get(&choice)?.tools.contains_key(&index) {
            self.one_more()?;
        }
        let tool = self.choices.get_mut(&choice)?.tools.entry(index).or_insert_with(|| {
            let mut function = Fields::of_nulls(&["name"]);
            let _ = function.text("arguments", &mut self.texts);
            Tool { fields: Fields::of_nulls(&["id", "type"]), function }
        });
        Some((tool, &mut self.texts))
    }

    fn one_more(&mut self) -> Option<()> {
        self.parts += 1;
        (self.parts <= MOST_PARTS).then_some(())
    }

    /// Whether there is no choice, but something that no answer has beside its choices.
    pub(crate) fn may_be_an_error(&self, names: &Names) -> bool {
        self.choices.is_empty() && self.top.has_others(&names.top_order)
    }

    /// Whether there are choices, and each of them ended by itself.
    pub(crate) fn is_completed(&self) -> bool {
        let has_ended = |choice: &Choice| {
            choice.fields.quoted("finish_reason").is_some_and(|reason| reason != "abort" && reason != "error")
        };
        !self.choices.is_empty() && self.choices.values().all(has_ended)
    }

    /// What the answer is: what its chunks are, without the word.
    pub(crate) fn kind(&self) -> Option<&'a str> {
        self.top.quoted("object").map(|kind| kind.strip_suffix(CHUNK).unwrap_or(kind))
    }

    /// What stands between the outer braces, with members in the order that they are named in.
    pub(crate) fn members(mut self, names: &Names) -> Option<String> {
        self.top.null("usage")?;
        self.top.null("choices")?;
        let kind = self.kind();
        let mut out = String::with_capacity(self.texts.0.iter().map(String::len).sum::<usize>() + USUAL_REST);
        self.top.write(&names.top_order, &self.texts, &mut out, |name, out| {
            match (name, kind) {
                ("choices", _) => self.write_choices(names, out),
                ("object", Some(kind)) => {
                    out.push('"');
                    out.push_str(kind);
                    out.push('"');
                }
                _ => return false,
            }
            true
        });
        Some(out)
    }

    fn write_choices(&self, names: &Names, out: &mut String) {
        out.push('[');
        for (number, (index, choice)) in self.choices.iter().enumerate() {
            out.push_str(if number > 0 { ",{" } else { "{" });
            key("index", out);
            out.push_str(&index.to_string());
            if let Some(message) = &choice.message {
                key("message", out);
                out.push('{');
                message.write(&names.message_order, &self.texts, out, |name, out| {
                    name == "tool_calls" && !choice.tools.is_empty() && {
                        self.write_tools(&choice.tools, out);
                        true
                    }
                });
                out.push('}');
            }
            let order: &[String] = if choice.message.is_some() { &[] } else { &names.text_choice_order };
            choice.fields.write(order, &self.texts, out, |name, out| {
                name == "logprobs" && !choice.logprobs.members.is_empty() && {
                    out.push('{');
                    choice.logprobs.write(&[], &self.texts, out, |_, _| false);
                    out.push('}');
                    true
                }
            });
            out.push('}');
        }
        out.push(']');
    }

    fn write_tools(&self, tools: &BTreeMap<u32, Tool>, out: &mut String) {
        out.push('[');
        for (number, tool) in tools.values().enumerate() {
            out.push_str(if number > 0 { ",{" } else { "{" });
            tool.fields.write(&[], &self.texts, out, |_, _| false);
            key("function", out);
            out.push('{');
            tool.function.write(&[], &self.texts, out, |_, _| false);
            out.push('}');
            out.push('}');
        }
        out.push(']');
    }
}
