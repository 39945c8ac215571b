//! Blocks of 32 bytes looked at together: bit `i` of what comes out is for byte `i`.
//!
//! x86-64 has SSE2 wherever it runs; elsewhere the compiler makes what vector code it can of a plain loop.

/// Bytes of a block.
pub(crate) const BLOCK: usize = 32;
pub(crate) type Block = [u8; BLOCK];

#[cfg(target_arch = "x86_64")]
mod sse2 {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
        _mm_xor_si128,
    };

    use super::{BLOCK, Block};

    const HALF: usize = BLOCK / 2;

    /// Both halves through `look`, which sets all bits of the bytes it finds.
    #[inline(always)]
    fn both(block: &Block, look: impl Fn(__m128i, usize) -> __m128i) -> u32 {
        // SAFETY: SSE2 is part of x86-64; the loads take any address, and their 16 bytes lie in the block.
        #[expect(unsafe_code, reason = "the loads go through pointers, and the function does not name SSE2 itself")]
        unsafe {
            let low = _mm_loadu_si128(block.as_ptr().cast());
            let high = _mm_loadu_si128(block.as_ptr().add(HALF).cast());
            let (low, high) = (_mm_movemask_epi8(look(low, 0)), _mm_movemask_epi8(look(high, HALF)));
            low.cast_unsigned() | high.cast_unsigned() << HALF
        }
    }

    #[inline(always)]
    pub(super) fn specials(block: &Block) -> u32 {
        // SAFETY: SSE2 is part of x86-64, and nothing here touches memory.
        #[expect(unsafe_code, reason = "the function does not name SSE2 itself")]
        both(block, |bytes, _| unsafe {
            let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"'.cast_signed()));
            let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\'.cast_signed()));
            let control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
            _mm_or_si128(_mm_or_si128(quote, backslash), control)
        })
    }

    #[inline(always)]
    pub(super) fn digits(block: &Block) -> u32 {
        // SAFETY: SSE2 is part of x86-64, and nothing here touches memory.
        #[expect(unsafe_code, reason = "the function does not name SSE2 itself")]
        both(block, |bytes, _| unsafe {
            let values = _mm_xor_si128(bytes, _mm_set1_epi8(b'0'.cast_signed()));
            _mm_cmpeq_epi8(_mm_min_epu8(values, _mm_set1_epi8(9)), values)
        })
    }

    #[inline(always)]
    pub(super) fn agree(block: &Block, other: &Block) -> u32 {
        // SAFETY: SSE2 is part of x86-64; the loads take any address, and their 16 bytes lie in the block.
        #[expect(unsafe_code, reason = "the loads go through pointers, and the function does not name SSE2 itself")]
        both(block, |bytes, at| unsafe { _mm_cmpeq_epi8(bytes, _mm_loadu_si128(other.as_ptr().add(at).cast())) })
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
mod anywhere {
    use super::{BLOCK, Block};

    #[inline(always)]
    fn each(block: &Block, is_found: impl Fn(usize, u8) -> bool) -> u32 {
        (0..BLOCK).fold(0, |found, i| found | u32::from(is_found(i, block[i])) << i)
    }

    #[inline(always)]
    pub(super) fn specials(block: &Block) -> u32 {
        each(block, |_, byte| byte == b'"' || byte == b'\\' || byte < b' ')
    }

    #[inline(always)]
    pub(super) fn digits(block: &Block) -> u32 {
        each(block, |_, byte| byte.is_ascii_digit())
    }

    #[inline(always)]
    pub(super) fn agree(block: &Block, other: &Block) -> u32 {
        each(block, |i, byte| byte == other[i])
    }
}

#[cfg(not(target_arch = "x86_64"))]
use anywhere as fastest;
#[cfg(target_arch = "x86_64")]
use sse2 as fastest;

/// The block at a place, if there are as many bytes.
#[inline(always)]
pub(crate) fn block_at(text: &[u8], at: usize) -> Option<&Block> {
    text.get(at..)?.first_chunk()
}

/// What ends a run of plain characters in a string: quotes, backslashes and control characters.
#[inline(always)]
pub(crate) fn specials(block: &Block) -> u32 {
    fastest::specials(block)
}

/// The digits.
#[inline(always)]
pub(crate) fn digits(block: &Block) -> u32 {
    fastest::digits(block)
}

/// The bytes that are the same in two blocks.
#[inline(always)]
pub(crate) fn agree(block: &Block, other: &Block) -> u32 {
    fastest::agree(block, other)
}

/// Says that what lies this far behind a place of a buffer will be written soon.
///
/// Rows are written to a hundred buffers in turn, more than the processor foresees by itself.
#[inline(always)]
pub(crate) fn foresee<T>(buffer: &[T], place: usize) {
    const AHEAD: usize = 128;
    let address = buffer.as_ptr().wrapping_add(place).cast::<i8>().wrapping_add(AHEAD);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint, which takes any address.
    #[expect(unsafe_code, reason = "it goes through a pointer")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The number that `count` (1 to 16) digits are, which begin in the first half of a block.
#[inline(always)]
pub(crate) fn decimal(block: &Block, begin: usize, count: usize) -> Option<u64> {
    const ZEROS: u128 = u128::MAX / 0xff * 0x30;
    // As if zeros stood in front of them.
    let values = (u128::from_le_bytes(*block.get(begin..)?.first_chunk()?) ^ ZEROS) << ((16 - count) * 8);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves are meant")]
    let (front, back) = (values as u64, (values >> 64) as u64);
    Some(eight(front) * 100_000_000 + eight(back))
}

/// Eight values of digits, the first one lowest, as a number: pairs are joined, then pairs of those, then both halves.
#[inline(always)]
fn eight(values: u64) -> u64 {
    const PAIRS: u64 = 0x0000_00ff_0000_00ff;
    let pairs = values.wrapping_mul(10).wrapping_add(values >> 8);
    let front = (pairs & PAIRS).wrapping_mul(100 + (1_000_000 << 32));
    let back = (pairs >> 16 & PAIRS).wrapping_mul(1 + (10_000 << 32));
    front.wrapping_add(back) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_same_bytes() {
        let mut state = 1u64;
        let mut before = [0; BLOCK];
        for round in 0..200_000 {
            let block: Block = std::array::from_fn(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let byte = state.to_be_bytes()[0];
                // Mostly bytes near those that are looked for.
                if round % 3 == 0 { byte } else { b"! #[]\\\"/0195:.\x1f\x80\xff\x10"[usize::from(byte % 18)] }
            });
            assert_eq!(specials(&block), anywhere::specials(&block), "{block:?}");
            assert_eq!(digits(&block), anywhere::digits(&block), "{block:?}");
            assert_eq!(agree(&block, &before), anywhere::agree(&block, &before), "{block:?} {before:?}");
            before = block;
        }
    }

    #[test]
    fn digits_are_the_number_that_they_say() {
        for number in [0, 7, 10, 12_345_678, 123_456_789, 9_999_999_999_999_999, 1_000_000_000_000_000] {
            let text = format!("{number}");
            for begin in [0, 3, 16] {
                let mut block = [b'x'; BLOCK];
                block[begin..begin + text.len()].copy_from_slice(text.as_bytes());
                assert_eq!(decimal(&block, begin, text.len()), Some(number));
            }
        }
    }
}
