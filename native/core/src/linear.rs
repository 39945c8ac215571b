//! Work grows with the input and no faster, whatever is in it: asserted on counted steps.

use arrow_schema::DataType;

use crate::steps;
use crate::testing::{choice, content_choice, field, line, list, map, parse_lines, plan, structure};

/// A small input, and a large one that is this many times its size.
const FACTOR: usize = 8;
const SMALL: usize = 2_000;
/// More than the factor by what logarithms and rounded buffers may add.
const ALLOWED: f64 = 1.3;

fn content_type() -> DataType {
    structure(vec![
        field("a", DataType::Int64),
        field("b", DataType::Utf8),
        field("c", list(structure(vec![field("x", DataType::Float64), field("y", DataType::Utf8)]))),
        field("m", map(structure(vec![field("x", DataType::Int64)]))),
    ])
}

/// Fails if the steps for a record of `n` parts grow faster than `n`.
#[expect(clippy::cast_precision_loss, reason = "the counts are small")]
fn assert_linear(name: &str, make: impl Fn(usize) -> String) {
    let plan = plan(content_type());
    let count = |n: usize| {
        let lines = [make(n)];
        let steps = steps::of(|| drop(parse_lines(&lines, &plan).expect("a row is made")));
        (steps as f64, lines[0].len() as f64)
    };
    let ((few, short), (many, long)) = (count(SMALL), count(SMALL * FACTOR));
    assert!(many / few <= long / short * ALLOWED, "{name}: {few} steps for {short} bytes, {many} for {long}");
    assert!(many <= long * 30.0, "{name}: {many} steps for {long} bytes");
}

fn joined(n: usize, part: impl Fn(usize) -> String) -> String {
    (0..n).map(part).collect::<Vec<_>>().join(",")
}

#[test]
fn strings() {
    assert_linear("long", |n| line(&format!(r#""id":"{}""#, "x".repeat(n))));
    assert_linear("escapes", |n| line(&format!(r#""id":"{}""#, "\\n".repeat(n))));
    assert_linear("unicode escapes", |n| line(&format!(r#""id":"{}""#, "\\ud83d\\ude00".repeat(n))));
    assert_linear("escapes of a content", |n| choice(&format!(r#"{{"b":"{}"}}"#, "\\\"".repeat(n))));
    assert_linear("control characters", |n| choice(&format!(r#"{{"b":"{}"}}"#, "\n".repeat(n))));
    assert_linear("not closed", |n| choice(&format!(r#"{{"b":"{}"#, "\\n".repeat(n))));
    assert_linear("white space", |n| line(&format!(r#""id":{}1"#, " ".repeat(n))));
    assert_linear("a long name", |n| line(&format!(r#""{}":1"#, "\\u0061".repeat(n))));
}

#[test]
fn names() {
    let numbered = |i: usize| format!(r#""k{i}":{i}"#);
    assert_linear("unknown", |n| line(&joined(n, numbered)));
    assert_linear("unknown in a content", |n| choice(&format!("{{{}}}", joined(n, numbered))));
    assert_linear("unknown and null", |n| line(&joined(n, |i| format!(r#""k{i}":null"#))));
    assert_linear("duplicate unknown", |n| line(&joined(n, |i| format!(r#""k{}":{i}"#, i / 2))));
    assert_linear("one name", |n| line(&joined(n, |i| format!(r#""k":{i}"#))));
    assert_linear("one known name", |n| line(&joined(n, |i| format!(r#""id":{i}"#))));
    assert_linear("one known name of a content", |n| {
        choice(&format!("{{{}}}", joined(n, |i| format!(r#""a":"{i}""#))))
    });
    assert_linear("spelled with escapes", |n| line(&joined(n, |i| format!(r#""\u006b{i}":{i}"#))));
    assert_linear("a map", |n| line(&format!(r#""metadata":{{{}}}"#, joined(n, numbered))));
    assert_linear("a map with duplicates", |n| {
        line(&format!(r#""metadata":{{{}}}"#, joined(n, |i| format!(r#""k{}":{i}"#, i % 7))))
    });
    assert_linear("maps", |n| {
        line(&format!(r#""choices":[{{"top_logprobs":[{}]}}]"#, joined(n, |i| format!(r#"{{"a":-1.5,"b":{i}}}"#))))
    });
    assert_linear("record objects", |n| line(&joined(n, |i| format!(r#""_dspark":{{"seq":{i}}}"#))));
    assert_linear("choices of a responses record", |n| {
        let twice = joined(n, |_| r#""choices":[{"index":1}]"#.to_owned());
        format!(r#"{{"_dspark":{{"path":"/v1/responses"}},{twice}}}"#)
    });
}

#[test]
fn containers() {
    assert_linear("arrays in arrays", |n| {
        line(&format!(r#""x":[{}]"#, joined(n / 100, |_| format!("{}{}", "[".repeat(100), "]".repeat(100)))))
    });
    assert_linear("too deep", |n| line(&format!(r#""x":{}"#, "[".repeat(n))));
    assert_linear("objects in objects", |n| {
        let deep = format!("{}1{}", "{\"k\":".repeat(100), "}".repeat(100));
        choice(&format!(r#"{{"z":[{}]}}"#, joined(n / 100, |_| deep.clone())))
    });
    assert_linear("items", |n| line(&format!(r#""token_ids":[{}]"#, joined(n, |i| i.to_string()))));
    assert_linear("items that are mismatches", |n| {
        line(&format!(r#""token_ids":[{}]"#, joined(n, |i| format!("\"{i}\""))))
    });
    assert_linear("structs that are mismatches", |n| {
        choice(&format!(r#"{{"c":[{}]}}"#, joined(n, |i| format!(r#"{{"x":"{i}","z":1}}"#))))
    });
}

#[test]
fn what_is_rescued_below_a_long_name() {
    assert_linear("entries", |n| {
        choice(&format!(r#"{{"m":{{"{}":{{{}}}}}}}"#, "k".repeat(n), joined(n, |i| format!(r#""k{i}":{i}"#))))
    });
}

#[test]
fn numbers() {
    assert_linear("digits", |n| line(&format!(r#""token_ids":[{}]"#, "1".repeat(n))));
    assert_linear("zeros", |n| line(&format!(r#""token_ids":[1{}e-{n}]"#, "0".repeat(n))));
    assert_linear("fractions", |n| line(&format!(r#""choices":[{{"top_logprobs":[{{"a":0.{}1}}]}}]"#, "0".repeat(n))));
}

#[test]
fn contents() {
    let choices = |n: usize, content: &str| line(&format!(r#""choices":[{}]"#, joined(n, |_| content_choice(content))));
    assert_linear("contents", |n| choices(n, r#"{"a":1,"b":"x"}"#));
    assert_linear("broken contents", |n| choices(n, r#"{"a":1,"b":"x"#));
    assert_linear("repaired contents", |n| choices(n, "```json\n{\"a\":1}\n```"));
    assert_linear("contents with duplicates", |n| choices(n, r#"{"a":1,"a":2}"#));
    assert_linear("broken contents of a record read twice", |n| {
        choices(n, r#"{"a":1,"b":"x"#).replace(r#""completed":true"#, r#""completed":null"#)
    });
    assert_linear("ends of thinking", |n| choice(&"</think>".repeat(n)));
    assert_linear("beginnings of thinking", |n| choice(&"<think>".repeat(n)));
    assert_linear("fences", |n| choice(&"```".repeat(n)));
    assert_linear("fences around a value", |n| choice(&format!("```\n{{\"a\":1}}\n{}", "```\n".repeat(n))));
    assert_linear("quotes before the end of thinking", |n| choice(&format!("x{}</think>{{}}", "\"".repeat(n))));
    assert_linear("text behind", |n| choice(&format!("{{}}{}", " x".repeat(n))));
    assert_linear("calls", |n| {
        let call = r#"{"function":{"name":"f","arguments":"{\"a\":1"}}"#;
        let calls = joined(n, |_| call.to_owned());
        line(&format!(r#""choices":[{{"message":{{"tool_calls":[{calls}]}},"finish_reason":"length"}}]"#))
    });
}
