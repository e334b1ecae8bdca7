//! Delays between a doorbell and a completion. All figures are simulated.
//!
//! Latency of an RDMA READ from post to completion, with serialization `s` of a frame and propagation `p`:
//!
//! ```text
//! R = doorbell_to_wire + s(request) + p + wire_to_host          client to server
//!   + read_dma + s(response) + p + wire_to_host                 server to client
//! ```

use crate::run::device::TransmitClass;
use bareverbs_prm::time::{Duration, Time};

/// Latencies of a node.
///
/// ```
/// use bareverbs_prm::time::Duration;
/// use bareverbs_sim::run::{Latency, Preset};
///
/// // A NIC whose host answers reads slowly.
/// let fast = Preset::STROM_100G.node;
/// let slow = Latency { read_dma: fast.read_dma + Duration::from_micros(1), ..fast };
/// assert!(slow.longest() > fast.longest());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// From a doorbell to the first bit of a request: fetching the work request and its payload. Not charged for
    /// requests that originate in the device (a retransmission, the response of a kernel in the NIC).
    pub doorbell_to_wire: Duration,
    /// From the last bit of a frame to its effects in host memory.
    pub wire_to_host: Duration,
    /// Fetching the payload of a READ response from host memory.
    pub read_dma: Duration,
}

impl Latency {
    /// Longest time from polling the device for a frame to its first bit.
    pub fn longest(&self) -> Duration {
        self.doorbell_to_wire.max(self.read_dma)
    }

    /// Earliest time for the first bit of a frame of `class` polled at `now`, after a doorbell at `doorbell`.
    #[inline]
    pub fn ready(&self, class: TransmitClass, now: Time, doorbell: Time) -> Time {
        match class {
            TransmitClass::Request => now.max(doorbell + self.doorbell_to_wire),
            TransmitClass::Response => now,
            TransmitClass::ReadResponse => now + self.read_dma,
        }
    }
}

/// Cost of a kernel: `latency = B + D * (elements + 1)`. This is the part inside the NIC or DPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelCost {
    /// From the arrival of an invocation to the start of the kernel, plus from its end to the posted answer.
    pub dispatch: Duration,
    /// Time per element apart from the DMA; for a kernel in the NIC it includes the DMA.
    pub per_dma: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fresh_doorbell_delays_a_request() {
        let latency = Latency { doorbell_to_wire: Duration::from_nanos(500), ..Latency::default() };
        let at = |nanos| Time::ZERO + Duration::from_nanos(nanos);
        assert_eq!(latency.ready(TransmitClass::Request, at(100), at(100)), at(600));
        assert_eq!(latency.ready(TransmitClass::Request, at(300), at(100)), at(600));
        assert_eq!(latency.ready(TransmitClass::Request, at(900), at(100)), at(900));
        assert_eq!(latency.ready(TransmitClass::Response, at(100), at(100)), at(100));
    }
}
