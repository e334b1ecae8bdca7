//! Limits that the capability pages name and that commands keep.

/// User memory objects that there can be, logarithm (`log_max_umem`).
pub(in crate::nic) const LOG_MAX_UMEM: u8 = 20;
/// UDP source ports that RoCEv2 packets may carry (the dynamic range; RoCEv2 A17.9.4).
pub(in crate::nic) const SOURCE_PORTS: core::ops::RangeInclusive<u16> = 0xc000..=0xffff;
/// Addresses and VLANs that the virtual port filters by, logarithms.
pub(in crate::nic) const LOG_UNICAST: u8 = 7;
pub(in crate::nic) const LOG_MULTICAST: u8 = 10;
pub(in crate::nic) const LOG_VLANS: u8 = 12;
/// Flow tables of a device and entries of one, logarithms; levels of tables.
pub(in crate::nic) const LOG_FLOW_TABLES: u8 = 16;
pub(in crate::nic) const LOG_FLOW_TABLE_SIZE: u8 = 24;
pub(in crate::nic) const FLOW_TABLE_LEVELS: u8 = 128;
/// Destinations of a flow, logarithm.
pub(in crate::nic) const LOG_FLOW_DESTINATIONS: u8 = 5;
/// Flow counters of a device, logarithm.
pub(in crate::nic) const LOG_FLOW_COUNTERS: u8 = 16;
