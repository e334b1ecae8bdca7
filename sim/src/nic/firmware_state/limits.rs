//! Limits that the capability pages report and that commands enforce.

/// log2 of the maximum number of user memory objects (`log_max_umem`).
pub(in crate::nic) const LOG_MAX_UMEM: u8 = 20;
/// log2 of the maximum number of user contexts (`log_max_uctx`), on a device that has them.
pub(in crate::nic) const LOG_MAX_UCTX: u8 = 10;
/// UDP source ports that RoCEv2 packets may carry (the dynamic range; RoCEv2 A17.9.4).
pub(in crate::nic) const SOURCE_PORTS: core::ops::RangeInclusive<u16> = 0xc000..=0xffff;
/// log2 of the addresses and VLANs in the filter of the virtual port.
pub(in crate::nic) const LOG_UNICAST: u8 = 7;
pub(in crate::nic) const LOG_MULTICAST: u8 = 10;
pub(in crate::nic) const LOG_VLANS: u8 = 12;
/// log2 of the flow tables of a device and of the entries of one; levels of tables.
pub(in crate::nic) const LOG_FLOW_TABLES: u8 = 16;
pub(in crate::nic) const LOG_FLOW_TABLE_SIZE: u8 = 24;
pub(in crate::nic) const FLOW_TABLE_LEVELS: u8 = 128;
/// log2 of the destinations of a flow.
pub(in crate::nic) const LOG_FLOW_DESTINATIONS: u8 = 5;
/// log2 of the flow counters of a device.
pub(in crate::nic) const LOG_FLOW_COUNTERS: u8 = 16;
