//! Where time goes between a doorbell and a completion. All figures are simulated.
//!
//! An RDMA READ from post to completion costs, with `s` the serialisation of a frame and `p` the propagation:
//!
//! ```text
//! R = doorbell_to_wire + s(request) + p + wire_to_host          client to server
//!   + read_dma + s(response) + p + wire_to_host                 server to client
//! ```

use crate::run::device::TransmitClass;
use bareverbs_prm::time::{Duration, Time};

/// The delays of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Latency {
    /// From a doorbell until the first bit of a request leaves: fetch of the work request and of its payload. A request
    /// that the device makes by itself (a retransmission, the answer of a kernel in the NIC) was not waited for.
    pub doorbell_to_wire: Duration,
    /// From the last bit of a frame until its effects are in host memory.
    pub wire_to_host: Duration,
    /// Fetch of the payload of a READ response from host memory.
    pub read_dma: Duration,
}

impl Latency {
    /// The longest time from asking the device for a frame until its first bit can leave.
    pub fn longest(&self) -> Duration {
        self.doorbell_to_wire.max(self.read_dma)
    }

    /// The earliest time when the first bit of a frame of `class` leaves, polled at `now` after a doorbell at `doorbell`.
    #[inline]
    pub fn ready(&self, class: TransmitClass, now: Time, doorbell: Time) -> Time {
        match class {
            TransmitClass::Request => now.max(doorbell + self.doorbell_to_wire),
            TransmitClass::Response => now,
            TransmitClass::ReadResponse => now + self.read_dma,
        }
    }
}

/// What a kernel costs where it runs: `latency = B + D * (elements + 1)`, of which this is the part inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelCost {
    /// From the arrival of an invocation until the kernel starts, and from its end until the answer is posted.
    pub dispatch: Duration,
    /// Work per element apart from the DMA itself; for a kernel in the NIC it holds the DMA too.
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
