//! What the targets share: an input that is consumed from the front, and the test doubles of the crates.
//!
//! The doubles are the files of the crates' own tests, compiled here a second time: a device driven by hand,
//! a program without an operating system, a place made of plain memory. So a case that was found here becomes
//! a test there without changes.
#![allow(dead_code, unused_imports, missing_docs, reason = "every target uses a part of the doubles")]

pub use bareverbs_sim::{nic, wire};

#[path = "../../sim/src/nic/tests/host.rs"]
pub mod host;
#[path = "../../sim/src/nic/tests/pair.rs"]
pub mod pair;
#[path = "../../sim/src/nic/tests/verbs.rs"]
pub mod verbs;

#[path = "../../driver/tests/integration/support/mod.rs"]
pub mod driver_place;
#[path = "../../sim/uverbs/tests/integration/support/mod.rs"]
pub mod program;

/// The input of a case, consumed from its front. Beyond its end it is zero.
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most `count` bytes.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        head
    }

    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let head = self.take(N);
        bytes[..head.len()].copy_from_slice(head);
        bytes
    }

    pub fn u8(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }
}
