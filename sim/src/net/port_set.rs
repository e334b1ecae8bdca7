//! A set of ports of an InfiniBand switch: an entry of its multicast forwarding table (IBTA v1.4 §14.2.5.12).

/// Port numbers in a set. An InfiniBand switch has 254 external ports and port 0.
const PORTS: usize = 256;

/// A set of port numbers below 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortSet([u64; PORTS / 64]);

impl PortSet {
    /// The set with `port` added. A number of 256 or more is ignored.
    #[must_use]
    pub const fn with(mut self, port: usize) -> Self {
        if port < PORTS {
            self.0[port / 64] |= 1 << (port % 64);
        }
        self
    }

    /// The set without `port`.
    #[must_use]
    pub const fn without(mut self, port: usize) -> Self {
        if port < PORTS {
            self.0[port / 64] &= !(1 << (port % 64));
        }
        self
    }

    /// Whether the set contains `port`.
    pub const fn has(&self, port: usize) -> bool {
        port < PORTS && self.0[port / 64] >> (port % 64) & 1 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; PORTS / 64]
    }

    /// Removes and returns the lowest port.
    pub fn take_first(&mut self) -> Option<usize> {
        let (index, word) = self.0.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros() as usize;
        *word &= *word - 1;
        Some(index * 64 + bit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_come_out_in_order() {
        let mut set = PortSet::default().with(200).with(3).with(63).with(64).with(256).without(63);
        let ports: Vec<_> = core::iter::from_fn(|| set.take_first()).collect();
        assert_eq!(ports, [3, 64, 200]);
        assert!(set.is_empty());
    }
}
