//! Random walks: two drivers post what a seed decides, and an oracle knows what has to come out.

pub mod plan;
