//! A learning switch. IEEE 802.1D §7.8: forward by destination, learn from the source, flood what is unknown.

use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::Duration;
use std::collections::BTreeMap;

/// How a switch is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchConfig {
    /// From the last bit in to the first bit out when nothing waits: it stores and forwards.
    pub latency: Duration,
    /// Bytes that may wait at one egress port; a frame that does not fit is dropped.
    pub buffer_per_port: u64,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        Self { latency: Duration::from_nanos(300), buffer_per_port: 1 << 20 }
    }
}

/// What a switch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SwitchCounters {
    /// Frames sent out of one port.
    pub forwarded: u64,
    /// Frames sent out of every other port, because the destination was unknown or a group.
    pub flooded: u64,
    /// Frames whose destination is behind the port they came from, or that are no Ethernet frames.
    pub filtered: u64,
    /// Frames dropped because the egress buffer was full.
    pub tail_dropped: u64,
}

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forwarding {
    /// Out of one port.
    Port(usize),
    /// Out of every port but the one it came from.
    Flood,
    /// Nowhere.
    Filter,
}

/// The forwarding part of a switch: addresses and ports. The queues belong to the links.
#[derive(Debug, Default)]
pub struct Switch {
    addresses: BTreeMap<[u8; 6], usize>,
    ports: usize,
    /// What it did so far.
    pub counters: SwitchCounters,
}

impl Switch {
    /// Adds a port and gives its number.
    pub fn add_port(&mut self) -> usize {
        self.ports += 1;
        self.ports - 1
    }

    /// Ports.
    pub fn ports(&self) -> usize {
        self.ports
    }

    /// Enters an address by hand.
    pub fn set_address(&mut self, address: MacAddress, port: usize) {
        self.addresses.insert(address.0, port);
    }

    /// Learns from a frame that came in at `ingress` and says where it goes.
    pub fn forward(&mut self, ingress: usize, frame: &[u8]) -> Forwarding {
        let Some((addresses, _)) = frame.split_first_chunk::<12>() else {
            return self.filter();
        };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *addresses;
        self.learn(ingress, [s0, s1, s2, s3, s4, s5]);
        match self.addresses.get(&[d0, d1, d2, d3, d4, d5]) {
            Some(&port) if port == ingress => self.filter(),
            Some(&port) => {
                self.counters.forwarded += 1;
                Forwarding::Port(port)
            }
            None => {
                self.counters.flooded += 1;
                Forwarding::Flood
            }
        }
    }

    fn filter(&mut self) -> Forwarding {
        self.counters.filtered += 1;
        Forwarding::Filter
    }

    fn learn(&mut self, ingress: usize, source: [u8; 6]) {
        let group = source[0] & 1 != 0;
        if !group && self.addresses.get(&source) != Some(&ingress) {
            self.addresses.insert(source, ingress);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(destination: u8, source: u8) -> Vec<u8> {
        let mut bytes = vec![0; 60];
        (bytes[5], bytes[11]) = (destination, source);
        bytes
    }

    #[test]
    fn learns_then_forwards() {
        let mut switch = Switch::default();
        let ports: Vec<_> = (0..3).map(|_| switch.add_port()).collect();
        assert_eq!(switch.forward(ports[0], &frame(2, 1)), Forwarding::Flood);
        assert_eq!(switch.forward(ports[1], &frame(1, 2)), Forwarding::Port(ports[0]));
        assert_eq!(switch.forward(ports[0], &frame(2, 1)), Forwarding::Port(ports[1]));
        assert_eq!(switch.forward(ports[1], &frame(2, 3)), Forwarding::Filter, "back where it came from");
        let SwitchCounters { forwarded, flooded, filtered, .. } = switch.counters;
        assert_eq!((forwarded, flooded, filtered), (2, 1, 1));
    }

    #[test]
    fn never_learns_a_group_address_and_filters_scraps() {
        let mut switch = Switch::default();
        let port = switch.add_port();
        let mut odd = frame(9, 1);
        odd[6] = 1;
        switch.forward(port, &odd);
        let mut to_group = frame(1, 7);
        to_group[0] = 1;
        assert_eq!(switch.forward(port, &to_group), Forwarding::Flood);
        assert_eq!(switch.forward(port, &[0; 11]), Forwarding::Filter);
    }
}
