//! The virtual lane tables of an InfiniBand port, which its agent stores.

/// Service levels, and entries of a VL arbitration table.
const SERVICE_LEVELS: usize = 16;
pub(in crate::nic) const ARBITRATION_ENTRIES: u8 = 8;

/// Tables that have no effect here, since there is only one data lane. They are stored so that software can
/// read back what it set.
#[derive(Debug)]
pub(in crate::nic) struct LaneTables {
    /// SLtoVLMappingTable: a 4-bit lane for each service level.
    pub(in crate::nic) sl_to_vl: [u8; SERVICE_LEVELS / 2],
    /// VLArbitrationTable, low and high priority: lane and weight.
    arbitration: [[u8; 2 * ARBITRATION_ENTRIES as usize]; 2],
}

impl LaneTables {
    /// All service levels on lane 0.
    pub(super) const fn new() -> Self {
        Self { sl_to_vl: [0; SERVICE_LEVELS / 2], arbitration: [[0; 2 * ARBITRATION_ENTRIES as usize]; 2] }
    }

    /// The table with this block number: 1 is the lower half of low priority, 3 that of high priority; there
    /// are no upper halves.
    pub(in crate::nic) fn arbitration(&mut self, modifier: u32) -> Option<&mut [u8]> {
        match (modifier >> 16, modifier & 0xff) {
            (1, 0 | 1) => Some(&mut self.arbitration[0]),
            (3, 0 | 1) => Some(&mut self.arbitration[1]),
            _ => None,
        }
    }
}
