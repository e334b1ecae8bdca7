//! What passed through an Ethernet port, by kind of address.

use bareverbs_prm::ids::MacAddress;

/// Packets and their bytes, by kind of destination address.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Direction {
    pub(crate) unicast: Count,
    pub(crate) multicast: Count,
    pub(crate) broadcast: Count,
}

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Direction {
    pub(crate) fn count(&mut self, destination: MacAddress, length: usize) {
        let count = match destination.0 {
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff] => &mut self.broadcast,
            [first, ..] if first & 1 != 0 => &mut self.multicast,
            _ => &mut self.unicast,
        };
        count.packets += 1;
        count.bytes += length as u64;
    }

    /// All kinds together.
    pub(crate) const fn total(&self) -> Count {
        Count {
            packets: self.unicast.packets + self.multicast.packets + self.broadcast.packets,
            bytes: self.unicast.bytes + self.multicast.bytes + self.broadcast.bytes,
        }
    }
}

/// What passed through a port, RDMA left out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PortTraffic {
    pub(crate) received: Direction,
    pub(crate) sent: Direction,
    /// Packets that came back to the port that sent them.
    pub(crate) looped_back: Count,
    /// Packets that no flow took.
    pub(crate) not_steered: u64,
    /// Packets longer than the port takes.
    pub(crate) oversize: u64,
    /// Packets that found no receive posted.
    pub(crate) out_of_buffer: u64,
}
