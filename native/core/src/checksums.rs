//! The CRC-32 of lines, as the index of a spool has them.

/// The position of the first line that does not match its CRC-32 (the one of zlib and gzip); `None` where all do.
///
/// Line `i` is `buffer[ends[i - 1]..ends[i]]`. One that ends where it begins, or beyond the buffer, does not match, nor
/// does one without a checksum.
#[must_use]
pub fn first_damaged(buffer: &[u8], ends: &[u64], crcs: &[u32]) -> Option<usize> {
    let mut begin = 0;
    for (position, &end) in ends.iter().enumerate() {
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        let line = buffer.get(begin..end).filter(|line| !line.is_empty());
        if line.map(crc32fast::hash).as_ref() != crcs.get(position) || line.is_none() {
            return Some(position);
        }
        begin = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::first_damaged;

    // "123456789" is what CRC-32/ISO-HDLC is defined to give cbf43926 for.
    const LINES: &[u8] = b"123456789a";
    const CRCS: [u32; 2] = [0xcbf4_3926, 0xe8b7_be43];

    #[test]
    fn lines_that_match_are_fine() {
        assert_eq!(first_damaged(LINES, &[9, 10], &CRCS), None);
        assert_eq!(first_damaged(LINES, &[], &[]), None);
    }

    #[test]
    fn the_first_line_that_does_not_match_is_named() {
        assert_eq!(first_damaged(b"123456780b", &[9, 10], &CRCS), Some(0));
        assert_eq!(first_damaged(b"123456789b", &[9, 10], &CRCS), Some(1));
    }

    #[test]
    fn a_line_without_bytes_or_beyond_the_buffer_is_damaged_whatever_its_checksum_says() {
        assert_eq!(first_damaged(LINES, &[9, 9], &[CRCS[0], 0]), Some(1));
        assert_eq!(first_damaged(LINES, &[9, 8], &[CRCS[0], 0]), Some(1));
        assert_eq!(first_damaged(LINES, &[9, 11], &CRCS), Some(1));
        assert_eq!(first_damaged(LINES, &[u64::MAX], &[0]), Some(0));
        assert_eq!(first_damaged(LINES, &[9, 10], &CRCS[..1]), Some(1));
    }
}
