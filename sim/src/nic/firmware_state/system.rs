//! The state of the firmware, and everything that outlives a command.

use super::capabilities::Capabilities;
use super::pages::PageSupply;
use super::pending_command::PendingCommand;
use super::port_agents::LaneTables;
use crate::nic::NicConfig;
use bareverbs_prm::init_segment::HealthBuffer;
use std::collections::BTreeMap;

/// How far the device has been brought up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SystemState {
    /// Before ENABLE_HCA and after DISABLE_HCA.
    Disabled,
    /// After ENABLE_HCA and after TEARDOWN_HCA.
    Enabled,
    /// After INIT_HCA.
    Initialized,
}

/// The state of the firmware besides the objects.
#[derive(Debug)]
pub(crate) struct Firmware {
    pub(crate) state: SystemState,
    pub(crate) issi: u16,
    pub(crate) capabilities: Capabilities,
    pub(crate) pages: PageSupply,
    /// Address of the command queue; `None` until the driver wrote it.
    pub(crate) queue: Option<u64>,
    /// Slots whose doorbell was rung and that wait for a turn.
    pub(crate) rung: u32,
    /// The command whose blocks are being read.
    pub(in crate::nic) pending: Option<Box<PendingCommand>>,
    /// The contents of the health buffer.
    pub(crate) health: HealthBuffer,
    pub(crate) node_description: [u8; 64],
    /// Virtual lane tables of an InfiniBand port.
    pub(in crate::nic) lanes: LaneTables,
    pub(crate) driver_version: [u8; 64],
    pub(crate) admin_mtu: u16,
    /// Unknown commands that were issued, counted by opcode.
    pub(crate) unknown: BTreeMap<u16, u64>,
}

impl Firmware {
    pub(crate) fn new(config: &NicConfig) -> Self {
        let [major, minor, subminor] = config.firmware_revision.map(u32::from);
        let mut health = HealthBuffer::new();
        health.set_fw_version(major << 24 | (minor & 0xff) << 16 | subminor & 0xffff);
        health.set_hw_id(config.device_id.into());
        Self {
            state: SystemState::Disabled,
            issi: 0,
            capabilities: Capabilities::new(config),
            pages: PageSupply::new(config.boot_pages, config.init_pages),
            queue: None,
            rung: 0,
            pending: None,
            health,
            node_description: [0; 64],
            lanes: LaneTables::new(),
            driver_version: [0; 64],
            admin_mtu: config.first_mtu(),
            unknown: BTreeMap::new(),
        }
    }

    /// Whether a command waits for a turn.
    pub(in crate::nic) const fn has_commands(&self) -> bool {
        self.rung != 0 || self.pending.is_some()
    }

    /// Drops the waiting commands: their queue has been replaced.
    pub(in crate::nic) fn forget_commands(&mut self) {
        self.rung = 0;
        self.pending = None;
    }
}
