//! The one choice that a response of `/v1/responses` is in the chat form, put together of pieces of its text.
//!
//! The rules are those of `dspark_json/capture/responses.py`. Texts stay as they were written.

/// Texts that are one text together.
#[derive(Debug, Default)]
pub(crate) struct Joined<'a> {
    /// Those that are not empty, each with nothing or a separator between it and the next.
    pieces: Vec<&'a str>,
    is_given: bool,
}

/// What the parts of an item say.
#[derive(Debug, Default)]
pub(crate) struct Said<'a> {
    pub(crate) text: Joined<'a>,
    pub(crate) refusal: Joined<'a>,
    /// Of each list that is not empty, what stands between its brackets.
    pub(crate) logprobs: Vec<&'a str>,
}

/// A call of a function: its id, name and arguments, each a string as it is written or `null`.
pub(crate) type Call<'a> = [&'a str; 3];

/// What the items of the output say so far.
#[derive(Debug, Default)]
pub(crate) struct Choice<'a> {
    pub(crate) calls: Vec<Call<'a>>,
    answer: Option<Said<'a>>,
    commentary: Option<Said<'a>>,
    reasoning: Joined<'a>,
}

impl<'a> Joined<'a> {
    /// `None` where two halves of a character would become one, which they are not to everybody.
    pub(crate) fn add(&mut self, text: &'a str) -> Option<()> {
        self.is_given = true;
        if text.is_empty() {
            return Some(());
        }
        if self.pieces.last().is_some_and(|last| may_end_in_half(last) && may_begin_with_half(text)) {
            return None;
        }
        self.pieces.push(text);
        Some(())
    }

    fn add_all(&mut self, other: Self) -> Option<()> {
        self.is_given |= other.is_given;
        other.pieces.into_iter().try_for_each(|text| self.add(text))
    }

    fn write(self, name: &'static str, pieces: &mut Vec<&'a str>) {
        pieces.extend([name, "\""]);
        pieces.extend(self.pieces);
        pieces.push("\"");
    }
}

impl Said<'_> {
    fn add(&mut self, other: Self) -> Option<()> {
        self.logprobs.extend(other.logprobs);
        self.text.add_all(other.text)?;
        self.refusal.add_all(other.refusal)
    }
}

impl<'a> Choice<'a> {
    /// A message: one in the phase `commentary` counts only where there is no other.
    pub(crate) fn message(&mut self, said: Said<'a>, is_commentary: bool) -> Option<()> {
        let place = if is_commentary { &mut self.commentary } else { &mut self.answer };
        place.get_or_insert_default().add(said)
    }

    /// A reasoning item: its text, else its summary, on lines of their own.
    pub(crate) fn reasoning(&mut self, text: Joined<'a>, summary: Joined<'a>) {
        let text = if text.is_given { text } else { summary };
        if text.is_given {
            if self.reasoning.is_given {
                self.reasoning.pieces.push("\\n");
            }
            self.reasoning.is_given = true;
            self.reasoning.pieces.extend(text.pieces);
        }
    }

    /// The pieces of the member `choices`.
    pub(crate) fn member(self, finish_reason: Option<&'a str>) -> Vec<&'a str> {
        let Said { text, refusal, logprobs } = self.answer.or(self.commentary).unwrap_or_default();
        let mut pieces = Vec::with_capacity(32 + text.pieces.len() + 8 * self.calls.len() + 2 * logprobs.len());
        pieces.push(r#""choices":[{"index":0,"message":{"role":"assistant""#);
        if text.is_given {
            text.write(r#","content":"#, &mut pieces);
        } else {
            pieces.push(r#","content":null"#);
        }
        if refusal.is_given {
            refusal.write(r#","refusal":"#, &mut pieces);
        }
        for (number, [id, name, arguments]) in self.calls.iter().enumerate() {
            let before = if number == 0 { r#","tool_calls":[{"id":"# } else { r#"}},{"id":"# };
            pieces.extend([
                before,
                id,
                r#","type":"function","function":{"name":"#,
                name,
                r#","arguments":"#,
                arguments,
            ]);
        }
        if !self.calls.is_empty() {
            pieces.push("}}]");
        }
        if self.reasoning.is_given {
            self.reasoning.write(r#","reasoning":"#, &mut pieces);
        }
        for (number, list) in logprobs.iter().enumerate() {
            pieces.extend([if number == 0 { r#"},"logprobs":{"content":["# } else { "," }, list]);
        }
        pieces.push(if logprobs.is_empty() { r#"},"logprobs":null"# } else { "]}" });
        match finish_reason {
            Some(reason) => pieces.extend([r#","finish_reason":""#, reason, r#""}]"#]),
            None => pieces.push(r#","finish_reason":null}]"#),
        }
        pieces
    }
}

/// Whether a text may end in the first half of a character (U+D800 to U+DBFF), told by its last bytes alone.
fn may_end_in_half(text: &str) -> bool {
    matches!(text.as_bytes(), [.., b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', _, _])
}

/// Whether a text begins with the second half of a character (U+DC00 to U+DFFF).
fn may_begin_with_half(text: &str) -> bool {
    matches!(text.as_bytes(), [b'\\', b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F', ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(texts: &[&'static str]) -> Option<Joined<'static>> {
        let mut joined = Joined::default();
        texts.iter().try_for_each(|text| joined.add(text))?;
        Some(joined)
    }

    fn said(text: &'static str) -> Said<'static> {
        Said { text: joined(&[text]).unwrap(), ..Said::default() }
    }

    #[test]
    fn commentary_counts_only_where_there_is_nothing_else() {
        let mut choice = Choice::default();
        choice.message(said("b"), true).unwrap();
        assert!(choice.member(None).concat().contains(r#""content":"b""#));
        let mut choice = Choice::default();
        choice.message(said("b"), true).unwrap();
        choice.message(Said::default(), false).unwrap();
        assert!(choice.member(None).concat().contains(r#""content":null"#));
    }

    #[test]
    fn halves_of_a_character_are_not_joined() {
        assert!(joined(&["a\\ud83d", "", "\\ude00"]).is_none());
        assert!(joined(&["a\\uDBff", "\\uDC00"]).is_none());
        for texts in [&["\\ud83d\\ude00", "\\ud83d"], &["\\ude00", "\\ud83d"], &["\\u00e9", "\\udead"]] {
            assert!(joined(texts).is_some());
        }
        let (mut choice, half) = (Choice::default(), || said("\\ude00"));
        choice.message(said("\\ud83d"), false).unwrap();
        choice.message(half(), true).unwrap();
        assert!(choice.message(half(), false).is_none());
    }

    #[test]
    fn reasoning_stands_on_lines_and_is_none_where_nothing_is_given() {
        let mut choice = Choice::default();
        choice.reasoning(joined(&[]).unwrap(), joined(&[]).unwrap());
        choice.reasoning(joined(&["a", "b"]).unwrap(), joined(&["not this"]).unwrap());
        choice.reasoning(joined(&[]).unwrap(), joined(&[""]).unwrap());
        choice.reasoning(joined(&[]).unwrap(), joined(&["c"]).unwrap());
        assert!(choice.member(None).concat().contains(r#""reasoning":"ab\n\nc"}"#));
    }
}
