//! Values of attribute fields that several agents and the SM use.

/// `VendorID` of NodeInfo: the OUI of the devices' vendor.
pub(crate) const VENDOR_ID: u32 = 0x0002c9;
/// `CapabilityMask` of PortInfo: IsSM (IBTA v1.4 §14.2.5.6).
pub(crate) const IS_SM: u32 = 1 << 1;
/// `SubnetTimeOut` of PortInfo, the longest transit time of the subnet: 4.096 µs · 2^18.
pub(crate) const SUBNET_TIMEOUT: u8 = 18;
/// `RespTimeValue` of PortInfo, the response time of an agent: 4.096 µs · 2^8.
pub(crate) const RESPONSE_TIME: u8 = 8;
/// `MTUCap` and `NeighborMTU` of PortInfo: 4096 bytes.
pub(crate) const MTU_4096: u8 = 5;
/// `VLCap` and `OperationalVLs` of PortInfo: one data VL.
pub(crate) const ONE_LANE: u8 = 1;
/// `PortPhysicalState` of PortInfo (IBTA v1.4 §14.2.5.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PhysicalState {
    /// The port looks for a peer.
    Polling = 2,
    /// Software has disabled the port.
    Disabled = 3,
    /// Frames pass.
    LinkUp = 5,
}
pub(crate) const POLLING: u8 = PhysicalState::Polling as u8;
pub(crate) const LINK_UP: u8 = PhysicalState::LinkUp as u8;

/// `Type` of a Notice (IBTA v1.4 §13.4.8.2).
pub(crate) mod notice_type {
    pub(crate) const URGENT: u8 = 1;
    pub(crate) const SECURITY: u8 = 2;
    pub(crate) const SUBNET_MANAGEMENT: u8 = 3;
    pub(crate) const INFORMATIONAL: u8 = 4;
}

/// `ProducerType` of a Notice (IBTA v1.4 §13.4.8.2).
pub(crate) mod producer_type {
    pub(crate) const CHANNEL_ADAPTER: u32 = 1;
    pub(crate) const SWITCH: u32 = 2;
    pub(crate) const CLASS_MANAGER: u32 = 4;
}
