//! What the parts of a lookup cost with a preset, in nanoseconds.
//!
//! They are those that a world charges ([ADR 0006](../../../docs/adr/0006-latency-model.md)): the wire by rate and
//! distance, a device by doorbell, frame and READ response, a core by request and access, a DPU's DMA engine by its latency
//! and bandwidth. A NIC moves bytes over PCIe while the wire carries others and is not slower than it, so these cost
//! nothing more.

use bareverbs_prm::time::Duration;
use bareverbs_sim::net::link::Rate;
use bareverbs_sim::run::{KernelCost, Preset};

/// Payload of a frame. IBTA allows 256, 512, 1024, 2048 and 4096 bytes; a path over Ethernet frames of 1500 has 1024.
const MTU: u32 = 1024;
/// Bytes of a RoCEv2 frame without payload: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4.
const FRAME: u32 = 58;
/// Bytes of a RETH, with the immediate data of a WRITE after it, and of an AETH.
const RETH: u32 = 16;
const IMMEDIATE: u32 = 4;
const AETH: u32 = 4;
/// Bytes of a request with its parameters, sent to a core or to a kernel in the NIC.
const SENT: u32 = 128;
const PARAMETERS: u32 = 64;
/// Bytes after an answer.
const TRAILER: u32 = 32;

/// A preset's costs.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    /// Where they come from.
    pub preset: Preset,
    /// The core of a DPU.
    pub dpu: CoreWork,
    /// The engine of kernels in a NIC.
    pub nic: CoreWork,
    /// A core of the server.
    pub cpu: CoreWork,
}

/// What a lookup keeps a core busy with, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreWork {
    /// At the start.
    pub start: f64,
    /// For each access.
    pub access: f64,
}

impl CoreWork {
    const fn of(cost: KernelCost) -> Self {
        Self { start: nanos(cost.dispatch), access: nanos(cost.per_dma) }
    }

    /// A short lookup: an element and its value.
    pub const fn short(&self) -> f64 {
        self.start + 2.0 * self.access
    }

    /// How long a step waits if short lookups of others keep the core busy for this share of the time.
    pub fn wait(&self, load: f64) -> f64 {
        let square = self.start * self.start + 2.0 * self.access * self.access;
        load * square / (2.0 * self.short() * (1.0 - load))
    }

    /// How long a lookup with this many accesses takes if nothing is in flight between them.
    pub fn shared(&self, accesses: f64, load: f64) -> f64 {
        self.wait(load) + (self.start + accesses * self.access) / (1.0 - load)
    }
}

const fn nanos(time: Duration) -> f64 {
    time.as_picos() as f64 / 1e3
}

impl Costs {
    /// Those of a preset.
    pub const fn of(preset: Preset) -> Self {
        let busy = [preset.dpu_kernel, preset.nic_kernel, preset.cpu_kernel];
        let [dpu, nic, cpu] = [CoreWork::of(busy[0]), CoreWork::of(busy[1]), CoreWork::of(busy[2])];
        Self { preset, dpu, nic, cpu }
    }

    /// From the first bit of a message of `payload` bytes until it is in the memory at the other end. `first` is the length
    /// of the first frame's extension headers.
    fn one_way(&self, payload: u32, first: u32) -> f64 {
        let rate = Rate::new(self.preset.link.bits_per_second);
        let frame = |payload: u32, first: u32| nanos(rate.serialisation((FRAME + first + payload) as usize));
        let head = payload.min(MTU);
        let (full, rest) = ((payload - head) / MTU, (payload - head) % MTU);
        let tail = if rest > 0 { frame(rest, 0) } else { 0.0 };
        frame(head, first)
            + f64::from(full) * frame(MTU, 0)
            + tail
            + nanos(self.preset.link.propagation)
            + nanos(self.preset.node.wire_to_host)
    }

    fn doorbell(&self) -> f64 {
        nanos(self.preset.node.doorbell_to_wire)
    }

    /// An RDMA READ of `bytes`, from post to completion.
    pub fn read(&self, bytes: u32) -> f64 {
        self.doorbell() + self.one_way(0, RETH) + nanos(self.preset.node.read_dma) + self.one_way(bytes, AETH)
    }

    /// A SEND to a core, and its answer by WRITE with immediate, which takes a doorbell of its own.
    fn call_of_a_core(&self, answer: u32) -> f64 {
        2.0 * self.doorbell() + self.one_way(SENT, 0) + self.one_way(answer + TRAILER, RETH + IMMEDIATE)
    }

    /// A call of a kernel on a DPU, without its accesses and the wait for the core.
    pub fn dpu_call(&self, answer: u32) -> f64 {
        self.call_of_a_core(answer) + self.dpu.start
    }

    /// An access of a kernel on a DPU to `bytes` of host memory.
    pub fn dpu_access(&self, bytes: u32) -> f64 {
        self.dpu.access + nanos(self.preset.dpu_dma.alone(bytes.into()))
    }

    /// A call of a core of the server, without what the core does.
    pub fn cpu_call(&self, answer: u32) -> f64 {
        self.call_of_a_core(answer)
    }

    /// A call of a kernel in the NIC, without what its engine does.
    pub fn nic_call(&self, answer: u32) -> f64 {
        self.doorbell() + self.one_way(PARAMETERS, RETH) + self.one_way(answer + TRAILER, RETH)
    }
}
