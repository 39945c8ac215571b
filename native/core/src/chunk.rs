//! The chunks of a stream, one by one, into what they add up to.

use crate::assembly::{Assembly, Fields, Text};
use crate::glance::{Glance, is_one};
use crate::strict::Walk;
use crate::values::{Keys, index, object, string, value};

/// A string that a chunk added to a text: where it stands, with its quotes.
pub(crate) struct Added {
    pub(crate) text: Text,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What a chunk did.
#[derive(Default)]
pub(crate) struct Effects {
    /// The first string that it added.
    pub(crate) added: Option<Added>,
    /// Whether it did anything else that is not the same when it is done again, at once or later.
    pub(crate) has_others: bool,
}

pub(crate) struct Chunks<'a, 'g> {
    glance: &'g Glance,
    keys: Keys<'a>,
    effects: Effects,
    pub(crate) assembly: Assembly<'a>,
}

impl<'a, 'g> Chunks<'a, 'g> {
    pub(crate) fn new(glance: &'g Glance) -> Self {
        Self { glance, keys: Keys::default(), effects: Effects::default(), assembly: Assembly::default() }
    }

    /// Takes the chunk that is next.
    pub(crate) fn take(&mut self, walk: &mut Walk<'a>) -> Option<Effects> {
        let mut keys = std::mem::take(&mut self.keys);
        object(walk, &mut keys, 0, |walk, keys, key| self.member(key.plain()?, walk, keys))?;
        self.keys = keys;
        Some(std::mem::take(&mut self.effects))
    }

    fn member(&mut self, key: &'a str, walk: &mut Walk<'a>, keys: &mut Keys<'a>) -> Option<()> {
        let start = walk.at;
        match key {
            "choices" => return self.choices(walk, keys),
            "error" => return walk.literal("null"),
            "text" | "output" | "message" => walk.literal("null")?,
            "id" | "model" | "object" => walk.text_or_null().map(drop)?,
            _ if self.glance.names.tell_an_error(key) => walk.literal("null")?,
            _ => value(walk, keys, 1).map(drop)?,
        }
        let (top, written) = (&mut self.assembly.top, walk.since(start));
        if written == "null" || is_one(key, &self.glance.names.echoed) {
            return top.null(key);
        }
        if matches!(key, "usage" | "metrics") {
            self.effects.has_others = true;
            return top.last(key, written);
        }
        top.first(key, written)
    }

    fn choices(&mut self, walk: &mut Walk<'a>, keys: &mut Keys<'a>) -> Option<()> {
        if walk.peek()? == b'n' {
            return walk.literal("null");
        }
        walk.array(1, |walk| {
            let index = match place_of("index", walk, 2) {
                Some(place) => index_at(place, walk)?,
                None => 0,
            };
            if self.assembly.choice(index).is_none() {
                let is_chat = place_of("delta", walk, 2).is_some() || place_of("text", walk, 2).is_none();
                self.assembly.new_choice(index, is_chat)?;
            }
            object(walk, keys, 2, |walk, keys, key| self.choice(index, key.plain()?, walk, keys))
        })
    }

    /// A member of a choice.
    fn choice(&mut self, index: u32, key: &'a str, walk: &mut Walk<'a>, keys: &mut Keys<'a>) -> Option<()> {
        let (choice, texts) = self.assembly.choice(index)?;
        let is_chat = choice.message.is_some();
        match (key, walk.peek()?) {
            ("index", _) => value(walk, keys, 3).map(drop),
            ("delta", b'{') if is_chat => {
                object(walk, keys, 3, |walk, keys, key| self.delta(index, key.plain()?, walk, keys))
            }
            ("text", b'"') if !is_chat => {
                let text = choice.fields.text(key, texts)?;
                self.add(text, walk)
            }
            ("text", b'n') if !is_chat => walk.literal("null"),
            ("logprobs", b'{') => {
                self.effects.has_others = true;
                let logprobs = &mut choice.logprobs;
                object(walk, keys, 3, |walk, keys, key| grow(logprobs, key.plain()?, 4, walk, keys))
            }
            (_, b'n') if key != "delta" && key != "message" => {
                walk.literal("null")?;
                choice.fields.null(key)
            }
            ("finish_reason", b'"') => {
                let start = walk.at;
                walk.text_or_null()?;
                self.effects.has_others = true;
                choice.fields.last(key, walk.since(start))
            }
            ("delta" | "message" | "text" | "logprobs" | "finish_reason", _) => None,
            // As texts they would grow.
            (_, b'"') if !is_chat && key != "stop_reason" => None,
            _ if self.glance.names.tell_an_error(key) => None,
            _ if is_one(key, &self.glance.names.echoed_inside) => withheld(&mut choice.fields, key, 3, walk, keys),
            _ => {
                self.effects.has_others = true;
                grow(&mut choice.fields, key, 3, walk, keys)
            }
        }
    }

    /// A member of a choice's delta.
    fn delta(&mut self, index: u32, key: &'a str, walk: &mut Walk<'a>, keys: &mut Keys<'a>) -> Option<()> {
        let (choice, texts) = self.assembly.choice(index)?;
        let message = choice.message.as_mut()?;
        match (key, walk.peek()?) {
            (_, b'n') => {
                walk.literal("null")?;
                message.null(key)
            }
            ("tool_calls", b'[') => {
                message.null(key)?;
                walk.array(4, |walk| self.tool(index, walk, keys))
            }
            ("tool_calls" | "function_call", _) => None,
            ("role", _) => message.first(key, value(walk, keys, 4)?),
            ("content", b'"') => {
                let text = message.text(key, texts)?;
                self.add(text, walk)
            }
            _ if self.glance.names.tell_an_error(key) => None,
            _ if is_one(key, &self.glance.names.echoed_inside) => withheld(message, key, 4, walk, keys),
            (_, b'"') => {
                let text = message.text(key, texts)?;
                self.add(text, walk)
            }
            _ => {
                self.effects.has_others = true;
                grow(message, key, 4, walk, keys)
            }
        }
    }

    fn tool(&mut self, choice: u32, walk: &mut Walk<'a>, keys: &mut Keys<'a>) -> Option<()> {
        let place = place_of("index", walk, 5)?;
        let index = index_at(place, walk)?;
        self.assembly.tool(choice, index)?;
        object(walk, keys, 5, |walk, keys, key| {
            let (tool, _) = self.assembly.tool(choice, index)?;
            match (key.plain()?, walk.peek()?) {
                ("index", _) => value(walk, keys, 6).map(drop),
                ("function", b'{') => object(walk, keys, 6, |walk, keys, key| {
                    let (tool, texts) = self.assembly.tool(choice, index)?;
                    match (key.plain()?, walk.peek()?) {
                        ("arguments", b'"') => {
                            let text = tool.function.text("arguments", texts)?;
                            self.add(text, walk)
                        }
                        ("arguments", _) => walk.literal("null"),
                        (key, _) => first_of_any(&mut tool.function, key, 7, walk, keys),
                    }
                }),
                ("function", _) => walk.literal("null"),
                (key, _) => first_of_any(&mut tool.fields, key, 6, walk, keys),
            }
        })
    }

    /// The string that is next goes behind a text.
    fn add(&mut self, text: Text, walk: &mut Walk<'a>) -> Option<()> {
        let start = walk.at;
        self.assembly.texts.add(text, string(walk)?.text);
        self.effects.has_others |= self.effects.added.is_some();
        self.effects.added = Some(Added { text, start, end: walk.at });
        Some(())
    }
}

/// The place of the value of a member of the object that is next; none where none is found.
fn place_of(name: &str, walk: &mut Walk, depth: usize) -> Option<usize> {
    let start = walk.at;
    let mut place = None;
    let _ = walk.object(depth, |walk, key| {
        if key.text == name {
            place = Some(walk.at);
            return None;
        }
        walk.value(depth + 1).map(drop)
    });
    walk.at = start;
    place
}

/// The index that stands somewhere ahead.
fn index_at(place: usize, walk: &mut Walk) -> Option<u32> {
    let start = std::mem::replace(&mut walk.at, place);
    let index = index(walk)?;
    walk.at = start;
    Some(index)
}

/// Lists grow; of other values the last one counts.
fn grow<'a>(
    fields: &mut Fields<'a>,
    key: &'a str,
    depth: usize,
    walk: &mut Walk<'a>,
    keys: &mut Keys<'a>,
) -> Option<()> {
    let kind = walk.peek()?;
    let written = value(walk, keys, depth)?;
    match kind {
        b'n' => fields.null(key),
        b'[' => fields.list(key, written),
        _ => fields.last(key, written),
    }
}

/// The first value counts.
fn first_of_any<'a>(
    fields: &mut Fields<'a>,
    key: &'a str,
    depth: usize,
    walk: &mut Walk<'a>,
    keys: &mut Keys<'a>,
) -> Option<()> {
    let written = value(walk, keys, depth)?;
    if written == "null" { fields.null(key) } else { fields.first(key, written) }
}

/// Whatever the value is, it is not kept.
fn withheld<'a>(
    fields: &mut Fields<'a>,
    key: &'a str,
    depth: usize,
    walk: &mut Walk<'a>,
    keys: &mut Keys<'a>,
) -> Option<()> {
    value(walk, keys, depth)?;
    fields.null(key)
}
