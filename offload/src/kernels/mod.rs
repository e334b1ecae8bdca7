//! The kernels. They know [`crate::kernel`] and [`crate::grant`], and nothing else of this crate.

pub mod checksum;
pub mod kv_layout;
pub mod kv_lookup;
