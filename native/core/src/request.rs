//! What the request wanted, by the settings that the record object keeps.

use crate::document::{Document, Kind, text_of};
use crate::taps::{Tap, Taps};

/// Whether the request wanted JSON: the hook noted its schema, or its settings say so.
pub(crate) fn asked_for_json(taps: &Taps, line: &[u8]) -> bool {
    let token = |tap| taps.get(tap).map(|span| span.of(line));
    if token(Tap::Schema).is_some_and(|schema| schema[0] == b'{') || token(Tap::GuidedJson).is_some() {
        return true;
    }
    let names_json = |format| matches!(member(format, b"type"), Some((Kind::String, name)) if matches!(&*name, b"json_object" | b"json_schema"));
    if token(Tap::ResponseFormat).is_some_and(names_json) {
        return true;
    }
    token(Tap::StructuredOutputs).is_some_and(|settings| {
        member(settings, b"json").is_some_and(|(kind, _)| kind != Kind::Null)
            || member(settings, b"json_object").is_some_and(|(kind, _)| kind == Kind::True)
    })
}

/// Kind and text of a member of the object that a setting is, or that its text holds.
fn member(setting: &[u8], name: &[u8]) -> Option<(Kind, Vec<u8>)> {
    let text = text_of(setting);
    let document = Document::whole(&text).ok()?;
    let root = document.root();
    if root.kind() != Kind::Object {
        return None;
    }
    let value = root.last(name)?;
    Some((value.kind(), value.as_text().into_owned()))
}
