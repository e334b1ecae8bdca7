//! The kernels. They know [`crate::kernel`], [`crate::grant`] and [`crate::status`], and nothing else of this crate.

pub mod aggregate;
pub mod checksum;
#[cfg(test)]
mod computing;
pub mod consistency;
pub mod field;
pub mod first;
pub mod kv_layout;
pub mod kv_lookup;
pub mod publish;
pub mod scan;
pub mod top;
pub mod traversal;

crate::kernel_set! {
    /// Every kernel of this crate: what the demo's DPU and NIC run.
    #[derive(Debug)]
    pub enum BuiltInKernels {
        /// Looks a key up in the remote hash table.
        KvLookup(kv_lookup::KvLookup),
        /// Walks a structure that the client describes.
        Traversal(traversal::Traversal),
        /// Adds records up.
        Aggregate(aggregate::Aggregate),
        /// Finds the records with the greatest values.
        Top(top::Top),
        /// Finds the first record that satisfies a predicate.
        First(first::First),
        /// Reads an object until it is whole.
        Consistency(consistency::Consistency),
        /// Writes a value and makes it the current one.
        Publish(publish::Publish),
    }
}
