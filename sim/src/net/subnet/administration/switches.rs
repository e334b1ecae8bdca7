//! SwitchInfoRecord and LinearForwardingTableRecord (IBTA v1.4 §15.2.5.5, §15.2.5.6).

use super::record_list::RecordList;
use crate::net::subnet::directory::Directory;
use crate::net::subnet::end_port::EndPort;
use crate::wire::management::administration::{LinearForwardingTableRecord, SwitchInfoRecord};

/// Bits of the component mask. Those of single SwitchInfo fields select nothing.
mod component {
    pub(super) const LID: u64 = 1;
    pub(super) const BLOCK: u64 = 1 << 1;
}

/// Adds a record for each matching switch.
pub(super) fn find_switches<'a>(
    query: &SwitchInfoRecord,
    mask: u64,
    directory: &Directory<'_>,
    visible: impl Iterator<Item = &'a EndPort<'a>>,
) -> Result<RecordList, u16> {
    let mut found = RecordList::new(SwitchInfoRecord::SIZE);
    for end in visible.filter(|end| mask & component::LID == 0 || end.owns_lid(query.lid())) {
        if let Some(info) = directory.switch_info(end.at.switch).filter(|_| end.at.port == 0) {
            let mut record = SwitchInfoRecord::new();
            *record.switch_info_mut() = *info;
            found.push(record.set_lid(end.lid))?;
        }
    }
    Ok(found)
}

/// Adds the matching non-empty blocks of linear tables.
pub(super) fn find_tables<'a>(
    query: &LinearForwardingTableRecord,
    mask: u64,
    directory: &Directory<'_>,
    visible: impl Iterator<Item = &'a EndPort<'a>>,
) -> Result<RecordList, u16> {
    let mut found = RecordList::new(LinearForwardingTableRecord::SIZE);
    let named = visible.filter(|end| mask & component::LID == 0 || end.owns_lid(query.lid()));
    for end in named.filter(|end| end.at.port == 0) {
        for (block, ports) in directory.linear_table(end.at.switch) {
            if mask & component::BLOCK == 0 || query.block() == block {
                let mut record = LinearForwardingTableRecord::new();
                found.push(record.set_lid(end.lid).set_block(block).set_ports(ports))?;
            }
        }
    }
    Ok(found)
}
