//! What the agent of an InfiniBand port remembers: tables of lanes.

/// Service levels, and entries of a table of VL arbitration.
const SERVICE_LEVELS: usize = 16;
pub(in crate::nic) const ARBITRATION_ENTRIES: u8 = 8;

/// Tables of a port that nothing here acts on, since there is one lane for data: they are kept for who set them.
#[derive(Debug)]
pub(in crate::nic) struct LaneTables {
    /// SLtoVLMappingTable: a lane of 4 bits for each service level.
    pub(in crate::nic) sl_to_vl: [u8; SERVICE_LEVELS / 2],
    /// VLArbitrationTable, of low and of high priority: lane and weight.
    arbitration: [[u8; 2 * ARBITRATION_ENTRIES as usize]; 2],
}

impl LaneTables {
    /// All levels on lane 0.
    pub(super) const fn new() -> Self {
        Self { sl_to_vl: [0; SERVICE_LEVELS / 2], arbitration: [[0; 2 * ARBITRATION_ENTRIES as usize]; 2] }
    }

    /// The table of a block: 1 is the lower half of low priority, 3 that of high priority; there are no upper halves.
    pub(in crate::nic) fn arbitration(&mut self, modifier: u32) -> Option<&mut [u8]> {
        match (modifier >> 16, modifier & 0xff) {
            (1, 0 | 1) => Some(&mut self.arbitration[0]),
            (3, 0 | 1) => Some(&mut self.arbitration[1]),
            _ => None,
        }
    }
}
