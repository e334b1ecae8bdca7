//! What an entry of an event queue means to a program (`mlx5_ib_event`, `mlx5_ib_qp_event`, `enum ibv_event_type`).

use crate::events::EventFiles;
use crate::uapi::read_extended;
use bareverbs_prm::eqe::{EventEntry, PortEvent};
use bareverbs_prm::numbering::{EventType, PortChange};

/// `enum ibv_event_type`.
mod event {
    pub(super) const PORT_ACTIVE: u32 = 9;
    pub(super) const PORT_ERR: u32 = 10;
    pub(super) const LID_CHANGE: u32 = 11;
    pub(super) const PKEY_CHANGE: u32 = 12;
    pub(super) const CLIENT_REREGISTER: u32 = 17;
    pub(super) const GID_CHANGE: u32 = 18;
}

/// Tells programs of an entry.
pub(crate) fn handle(files: &mut EventFiles, entry: &EventEntry) {
    if entry.kind() == EventType::PortChange {
        let port: PortEvent = read_extended(&entry.data());
        if let Some(event_type) = port_event(PortChange::from_raw(entry.sub_type())) {
            files.tell_all(port.port().into(), event_type);
        }
    }
}

/// `Initialized` is on the way to active, and no event of its own.
const fn port_event(change: PortChange) -> Option<u32> {
    match change {
        PortChange::Active => Some(event::PORT_ACTIVE),
        PortChange::Down => Some(event::PORT_ERR),
        PortChange::Lid => Some(event::LID_CHANGE),
        PortChange::Pkey => Some(event::PKEY_CHANGE),
        PortChange::Guid => Some(event::GID_CHANGE),
        PortChange::ClientRereg => Some(event::CLIENT_REREGISTER),
        _ => None,
    }
}
