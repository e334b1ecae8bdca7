//! The named steps of opening a device. Errors and trace events say which step they are about.

/// The steps of opening a device, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BootStep {
    /// Wait for the `initializing` bit of the initialization segment to clear.
    WaitForFirmware,
    /// Check the revision of the command interface and the size of the BAR0 window.
    CheckInterface,
    /// Allocate the command queue and tell the device its address.
    CommandQueue,
    /// Wait for the `initializing` bit again.
    WaitForCommandQueue,
    /// ENABLE_HCA. Closing undoes it with DISABLE_HCA.
    EnableHca,
    /// QUERY_ISSI and SET_ISSI.
    SetIssi,
    /// Give the device its boot pages. Closing reclaims all pages.
    BootPages,
    /// Write the HOST_ENDIANNESS register.
    HostEndianness,
    /// QUERY_HCA_CAP and SET_HCA_CAP of the general, atomic and RoCE pages.
    SetCapabilities,
    /// Give the device its init pages.
    InitPages,
    /// INIT_HCA. Closing undoes it with TEARDOWN_HCA.
    InitHca,
    /// QUERY_HCA_CAP of the capabilities in force.
    QueryCapabilities,
    /// ALLOC_UAR. Closing undoes it with DEALLOC_UAR.
    AllocateUar,
    /// CREATE_EQ. Closing undoes it with DESTROY_EQ.
    CreateEventQueue,
    /// Enable RoCE with MODIFY_NIC_VPORT_CONTEXT. Closing disables it.
    EnableRoce,
    /// Allocate the ledgers, which remember posted work.
    AllocateLedgers,
}
