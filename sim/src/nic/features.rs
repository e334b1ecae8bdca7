//! Features that software switches with SET_HCA_CAP and that queue pairs depend on.

/// The features that are currently on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Features {
    /// Software chooses UDP source ports (`sw_r_roce_src_udp_port`).
    pub(crate) software_source_port: bool,
    /// Atomics compute in the byte order of a little-endian host (`atomic_req_8B_endianness_mode`).
    pub(crate) host_order_atomics: bool,
    /// UMR may not change the page size of a key (`umr_modify_entity_size_disabled`).
    pub(crate) fixed_page_size: bool,
    /// UMR may not change the atomic right of a key (`umr_modify_atomic_disabled`).
    pub(crate) fixed_atomic: bool,
    /// UMR may not change indirect keys (`umr_indirect_mkey_disabled`).
    pub(crate) fixed_indirect: bool,
}
