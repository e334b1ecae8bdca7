//! Headers, checksums, segmentation, hashes and steering against frames made by hand, and arbitrary bytes at all of them.

mod frames;
mod parts;
mod steering;
