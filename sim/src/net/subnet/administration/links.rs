//! LinkRecord: which ports a link connects (IBTA v1.4 §15.2.5.13). Every link is reported from both ends.

use super::record_list::RecordList;
use crate::net::subnet::directory::Directory;
use crate::net::subnet::end_port::EndPort;
use crate::net::subnet::switch_port::SwitchPort;
use crate::wire::management::administration::LinkRecord;

/// Bits of the component mask.
mod component {
    pub(super) const FROM_LID: u64 = 1;
    pub(super) const FROM_PORT: u64 = 1 << 1;
    pub(super) const TO_PORT: u64 = 1 << 2;
    pub(super) const TO_LID: u64 = 1 << 3;
}

/// One end of a link: a port of a node that has a LID.
#[derive(Clone, Copy)]
struct LinkEnd<'a> {
    node: EndPort<'a>,
    port: u8,
}

/// A query for links.
pub(super) struct LinkRequest<'a> {
    pub(super) record: &'a LinkRecord,
    pub(super) mask: u64,
    pub(super) requester: EndPort<'a>,
}

impl LinkRequest<'_> {
    /// Adds all matching links.
    pub(super) fn find(&self, directory: &Directory<'_>, found: &mut RecordList) -> Result<(), u16> {
        let adapters =
            directory.ends.iter().filter(|end| end.at.port != 0 && end.is_visible_to(&self.requester));
        let adapters = adapters.filter_map(|end| {
            let near = LinkEnd { node: directory.switch(end.at.switch)?, port: end.at.port };
            Some((near, LinkEnd { node: *end, port: end.number() }))
        });
        let between = directory.cables.iter().filter_map(|[one, other]| {
            let end = |at: &SwitchPort| Some(LinkEnd { node: directory.switch(at.switch)?, port: at.port });
            Some((end(one)?, end(other)?))
        });
        for (near, far) in adapters.chain(between) {
            for (from, to) in [(near, far), (far, near)] {
                if self.chooses(&from, &to) {
                    let mut record = LinkRecord::new();
                    record.set_from_lid(from.node.lid).set_from_port(from.port);
                    found.push(record.set_to_lid(to.node.lid).set_to_port(to.port))?;
                }
            }
        }
        Ok(())
    }

    fn chooses(&self, from: &LinkEnd<'_>, to: &LinkEnd<'_>) -> bool {
        let (query, asks) = (self.record, |component: u64| self.mask & component != 0);
        (!asks(component::FROM_LID) || from.node.owns_lid(query.from_lid()))
            && (!asks(component::FROM_PORT) || from.port == query.from_port())
            && (!asks(component::TO_PORT) || to.port == query.to_port())
            && (!asks(component::TO_LID) || to.node.owns_lid(query.to_lid()))
    }
}
