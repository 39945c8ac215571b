//! The names that members may have on the wire: compared as they stand, or looked up.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::blocks::{self, BLOCK, Block, block_at};
use crate::error::PlanError;
use crate::taps::Tap;

/// A name that a member may have on the wire, with what has to be at hand where it is read. As large as a line of the
/// cache, and on it.
#[derive(Clone)]
#[repr(align(64))]
pub(crate) struct Wire {
    /// The first bytes of the name in its quotes, zeros where escapes must stand in it, and which of them count.
    head: Block,
    mask: u32,
    /// How long the name is with its quotes.
    length: u32,
    /// The wire name that came next the last time.
    pub(crate) next: u16,
    /// The one column it goes to, if it is the only name of that; else `NONE`.
    pub(crate) only: u16,
    /// What remembers where its value stands.
    pub(crate) tap: Option<Tap>,
}

/// The same name with the rest that belongs to it.
pub(crate) struct Name {
    pub(crate) text: Box<[u8]>,
    /// The columns it goes to, with its place among their names.
    pub(crate) targets: Vec<(u16, u16)>,
    /// Whether it has a column (that is declared, wanted or not).
    pub(crate) is_known: bool,
}

/// Stands for no column and for no name.
pub(crate) const NONE: u16 = u16::MAX;

impl Wire {
    pub(crate) fn new(name: &str, number: u16) -> Result<Self, PlanError> {
        let name = name.as_bytes();
        let is_plain = name.iter().all(|&byte| byte >= b' ' && byte != b'"' && byte != b'\\');
        let literal = [b"\"", name, b"\""].concat();
        let mut head = [0; BLOCK];
        let count = literal.len().min(BLOCK);
        if is_plain {
            head[..count].copy_from_slice(&literal[..count]);
        }
        // What is compared begins with a quote, and never with a zero.
        let mask = u32::MAX >> (BLOCK - count);
        let length = u32::try_from(literal.len()).map_err(|_| PlanError("a field has too long a name".into()))?;
        Ok(Self { head, mask, length, next: number + 1, only: NONE, tap: None })
    }

    /// If the name in its quotes stands at a place just so: how long that is.
    #[inline(always)]
    pub(crate) fn stands_at(&self, text: &[u8], at: usize) -> Option<usize> {
        let length = self.length as usize;
        match block_at(text, at) {
            Some(block) if length <= BLOCK => {
                (blocks::agree(block, &self.head) & self.mask == self.mask).then_some(length)
            }
            _ => None,
        }
    }
}

/// Hashes names: quickly, and with a secret, so that names can't be made that all hash to the same.
#[derive(Clone)]
pub(crate) struct NameHash {
    state: u64,
}

impl NameHash {
    fn mix(&mut self, word: u64) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let product = u128::from(self.state ^ word) * u128::from(ODD ^ self.state.rotate_left(32));
        #[expect(clippy::cast_possible_truncation, reason = "both halves are meant")]
        let (low, high) = (product as u64, (product >> 64) as u64);
        self.state = low ^ high;
    }
}

impl Hasher for NameHash {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.mix(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn finish(&self) -> u64 {
        self.state
    }
}

impl BuildHasher for NameHash {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        self.clone()
    }
}

impl Default for NameHash {
    fn default() -> Self {
        Self { state: RandomState::new().hash_one(0) }
    }
}
