//! Records as the lines and the index entries that a writer appends (the formats of a spool).

use std::fmt::Write;

/// One answer before it has a number: the members of `_dspark` after `seq` and `lane`, and those of the answer.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Members of `_dspark`, without braces; may be empty.
    pub meta: &'a [u8],
    /// What stands between the outer braces of the answer; may be empty or blank.
    pub body: &'a [u8],
}

/// Where the next line goes.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The number of the next record.
    pub seq: u64,
    /// The lane's name.
    pub lane: &'a str,
    /// Bytes that the open segment has.
    pub end: u64,
    /// Bytes from which on a segment is full.
    pub full: u64,
    /// What the index says of the time, in µs.
    pub appended_at: u64,
}

/// What goes into one segment.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    /// The number of its first record.
    pub first_seq: u64,
    /// Whole lines.
    pub data: Vec<u8>,
    /// Their index entries, 24 bytes each: where the line ends in the segment, the time, the line's CRC-32, zero.
    pub entries: Vec<u8>,
}

const HEAD: &str = r#"{"_dspark":{"seq":"#;
const MOST_OF_FRAME: usize = 64;
const ENTRY: usize = 24;

/// The records' lines, one part a segment; the first part is for the open segment, and may be empty.
#[must_use]
pub fn frame(records: &[Record], place: Place) -> Vec<Part> {
    let size = records.iter().map(|record| record.meta.len() + record.body.len() + MOST_OF_FRAME).sum();
    let Place { mut seq, mut end, .. } = place;
    let mut part =
        Part { first_seq: seq, data: Vec::with_capacity(size), entries: Vec::with_capacity(records.len() * ENTRY) };
    let mut parts = Vec::new();
    let mut head = String::with_capacity(MOST_OF_FRAME);
    for record in records {
        head.clear();
        let _ = write!(head, r#"{HEAD}{seq},"lane":"{}""#, place.lane);
        let begin = part.data.len();
        put_line(&mut part.data, &head, record);
        let mut size = (part.data.len() - begin) as u64;
        if end > 0 && end + size > place.full {
            let data = part.data.split_off(begin);
            let entries = Vec::new();
            parts.push(std::mem::replace(&mut part, Part { first_seq: seq, data, entries }));
            (end, size) = (0, part.data.len() as u64);
        }
        end += size;
        let start = part.data.len() - usize::try_from(size).unwrap_or(usize::MAX);
        let crc = crc32fast::hash(&part.data[start..]);
        part.entries.extend_from_slice(&end.to_le_bytes());
        part.entries.extend_from_slice(&place.appended_at.to_le_bytes());
        part.entries.extend_from_slice(&crc.to_le_bytes());
        part.entries.extend_from_slice(&[0; 4]);
        seq += 1;
    }
    parts.push(part);
    parts
}

/// `_dspark` comes first, so that a body with a member of that name can't forge it.
fn put_line(line: &mut Vec<u8>, head: &str, record: &Record) {
    line.extend_from_slice(head.as_bytes());
    if !record.meta.is_empty() {
        line.push(b',');
        put_on_one_line(line, record.meta);
    }
    line.push(b'}');
    if !record.body.iter().all(|byte| matches!(byte, b' ' | b'\t'..=b'\r')) {
        line.push(b',');
        put_on_one_line(line, record.body);
    }
    line.extend_from_slice(b"}\n");
}

/// Line breaks, which JSON has only between tokens, become blanks.
fn put_on_one_line(line: &mut Vec<u8>, text: &[u8]) {
    let begin = line.len();
    line.extend_from_slice(text);
    if let Some(first) = memchr::memchr2(b'\n', b'\r', text) {
        for byte in line[begin + first..].iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { seq: 7, lane: "0003", end: 100, full: 1_000, appended_at: 9 };

    fn lines(records: &[(&str, &str)], place: Place) -> Vec<(u64, String, Vec<u64>)> {
        let records: Vec<_> = records.iter().map(|(a, b)| Record { meta: a.as_bytes(), body: b.as_bytes() }).collect();
        let ends = |entries: &[u8]| {
            let words = entries.chunks_exact(ENTRY).map(|entry| entry[..8].try_into().unwrap());
            words.map(u64::from_le_bytes).collect()
        };
        let parts = frame(&records, place).into_iter();
        parts.map(|part| (part.first_seq, String::from_utf8(part.data).unwrap(), ends(&part.entries))).collect()
    }

    #[test]
    fn a_line_is_the_answer_with_one_object_in_front() {
        let line = |meta, body| lines(&[(meta, body)], PLACE).remove(0).1;
        assert_eq!(line(r#""a":1"#, r#""b":2"#), "{\"_dspark\":{\"seq\":7,\"lane\":\"0003\",\"a\":1},\"b\":2}\n");
        assert_eq!(line("", " \r\n"), "{\"_dspark\":{\"seq\":7,\"lane\":\"0003\"}}\n");
        assert_eq!(line("\"a\":\n1", "\r\n\"b\""), "{\"_dspark\":{\"seq\":7,\"lane\":\"0003\",\"a\": 1},  \"b\"}\n");
    }

    #[test]
    fn an_entry_says_where_the_line_ends_when_it_came_and_its_checksum() {
        let records = [Record { meta: b"", body: b"\"a\":1" }];
        let part = frame(&records, PLACE).remove(0);
        let mut entry = (100 + part.data.len() as u64).to_le_bytes().to_vec();
        entry.extend_from_slice(&9_u64.to_le_bytes());
        entry.extend_from_slice(&crc32fast::hash(&part.data).to_le_bytes());
        entry.extend_from_slice(&[0; 4]);
        assert_eq!(part.entries, entry);
    }

    #[test]
    fn what_a_full_segment_has_no_room_for_begins_the_next() {
        let records = [("", "\"a\":1"); 3];
        let one = lines(&records[..1], PLACE).remove(0).1.len() as u64;
        let found = lines(&records, Place { full: 100 + 2 * one, ..PLACE });
        let shape: Vec<_> = found.iter().map(|(seq, _, ends)| (*seq, ends.clone())).collect();
        assert_eq!(shape, [(7, vec![100 + one, 100 + 2 * one]), (9, vec![one])]);
        let found = lines(&records, Place { full: 1, ..PLACE });
        assert_eq!(found.iter().map(|(seq, ..)| *seq).collect::<Vec<_>>(), [7, 7, 8, 9]);
        assert_eq!(found[0].1, "");
        assert_eq!(
            lines(&records[..1], Place { end: 0, full: 1, ..PLACE }).len(),
            1,
            "any record fits an empty segment"
        );
    }
}
