//! Tests headers, checksums, segmentation, hashes and steering with hand-made frames, and feeds arbitrary
//! bytes to each of them.

mod frames;
mod parts;
mod steering;
