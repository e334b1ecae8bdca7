//! The kernels. They know [`crate::kernel`], [`crate::grant`] and [`crate::status`], and nothing else of this crate.

pub mod checksum;
pub mod kv_layout;
pub mod kv_lookup;

crate::kernel_set! {
    /// Every kernel of this crate: what the demo's DPU and NIC run.
    pub enum BuiltInKernels {
        /// Looks a key up in the remote hash table.
        KvLookup(kv_lookup::KvLookup),
    }
}
