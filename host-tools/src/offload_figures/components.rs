//! The costs of a preset's parts.

use bareverbs_sim::run::Preset;
use serde_json::{Value, json};
use std::fmt;

/// Bytes of a RoCEv2 frame without its payload: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4; and on the wire
/// preamble 8, FCS 4, gap 12.
const FRAME: u32 = 58 + 24;
/// Bytes of a RETH.
const RETH: u32 = 16;
/// Bytes of an AETH.
const AETH: u32 = 4;
/// Payload of a frame: StRoM's path MTU.
const MTU: u32 = 1408;
/// Bytes of the element that the preset is fitted for.
const ELEMENT: u32 = 64;

/// Costs in nanoseconds. Latencies and rates are those of the preset (`strom-10g` is fitted to the slopes of
/// figure 7); the others name their own source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Components {
    /// Latencies and the rate of the wire.
    pub preset: Preset,
    /// PCIe, nanoseconds per byte; the preset's figures include the first 64 bytes.
    pub pcie_per_byte: f64,
    /// CRC-64 on the client with a lookup table, nanoseconds per byte: figure 9 implies this (0.52 GB/s).
    pub crc_on_client_per_byte: f64,
    /// Partitioning on the client, nanoseconds per byte, when the client has to make a pass over the data
    /// before it sends them. Chosen: figure 11 implies 3 to 5 GB/s.
    pub partition_on_client_per_byte: f64,
    /// A write over PCIe, nanoseconds on top of its bytes: a TLP header of 24 bytes for every 128.
    pub pcie_per_write: f64,
}

impl Components {
    /// StRoM on its 10 Gb/s board.
    pub const STROM_10G: Self = Self::of(Preset::STROM_10G);

    /// The costs of a preset. Computations on its client cost what they cost on StRoM's.
    pub const fn of(preset: Preset) -> Self {
        let bytes_per_nano = preset.dpu_dma.bytes_per_second as f64 / 1e9;
        Self {
            preset,
            pcie_per_byte: 1.0 / bytes_per_nano,
            crc_on_client_per_byte: 1.0 / 0.52,
            partition_on_client_per_byte: 1.0 / 4.0,
            pcie_per_write: 24.0 / bytes_per_nano,
        }
    }

    /// Bytes on the wire of a message with `payload` bytes; `first` is the length of the first frame's
    /// extension headers.
    fn wire_bytes(payload: u32, first: u32) -> u32 {
        payload + payload.div_ceil(MTU).max(1) * FRAME + first
    }

    /// Time on the wire for this many bytes.
    pub fn wire(&self, bytes: f64) -> f64 {
        bytes * 8e9 / self.preset.link.bits_per_second as f64
    }

    fn nanos(time: bareverbs_prm::time::Duration) -> f64 {
        time.as_picos() as f64 / 1e3
    }

    /// PCIe time of the bytes beyond an element.
    pub fn pcie_beyond_element(&self, bytes: u32) -> f64 {
        f64::from(bytes.saturating_sub(ELEMENT)) * self.pcie_per_byte
    }

    /// From a doorbell until a message of `payload` bytes is in the memory or the kernel at the other end.
    fn one_way(&self, payload: u32, first: u32) -> f64 {
        let bytes = f64::from(Self::wire_bytes(payload, first));
        let node = &self.preset.node;
        self.wire(bytes) + Self::nanos(self.preset.link.propagation) + Self::nanos(node.wire_to_host)
    }

    /// An RDMA READ of `bytes` from post to completion: PCIe at both ends, the wire in between.
    pub fn read(&self, bytes: u32) -> f64 {
        let node = &self.preset.node;
        let both_ends = 2.0 * self.pcie_beyond_element(bytes);
        Self::nanos(node.doorbell_to_wire)
            + self.one_way(0, RETH)
            + Self::nanos(node.read_dma)
            + self.one_way(bytes, AETH)
            + both_ends
    }

    /// A call of a kernel in the NIC with a parameter block of 64 bytes. The kernel runs for `kernel`
    /// nanoseconds, which includes the runtime's charges, and answers with `answer` bytes.
    pub fn call(&self, kernel: f64, answer: u32) -> f64 {
        Self::nanos(self.preset.node.doorbell_to_wire)
            + self.one_way(64, RETH)
            + kernel
            + self.one_way(answer + 32, RETH)
            + self.pcie_beyond_element(answer)
    }

    /// A call of a kernel in the NIC whose accesses take `accesses` nanoseconds.
    pub fn nic_call(&self, accesses: f64, answer: u32) -> f64 {
        self.call(Self::nanos(self.preset.nic_kernel.dispatch) + accesses, answer)
    }

    /// An access of a kernel in the NIC to `bytes` of host memory.
    pub fn nic_access(&self, bytes: u32) -> f64 {
        Self::nanos(self.preset.nic_kernel.per_dma) + self.pcie_beyond_element(bytes)
    }

    /// A call of a kernel on a DPU with a SEND of 128 bytes; its answer takes a doorbell of its own.
    pub fn dpu_call(&self, accesses: f64, answer: u32) -> f64 {
        2.0 * Self::nanos(self.preset.node.doorbell_to_wire)
            + self.one_way(128, 0)
            + Self::nanos(self.preset.dpu_kernel.dispatch)
            + accesses
            // The immediate data is part of the first frame.
            + self.one_way(answer + 32, RETH + 4)
            + self.pcie_beyond_element(answer)
    }

    /// An access of a kernel on a DPU to `bytes` of host memory.
    pub fn dpu_access(&self, bytes: u32) -> f64 {
        let (kernel, dma) = (self.preset.dpu_kernel.per_dma, self.preset.dpu_dma.alone(bytes.into()));
        Self::nanos(kernel) + Self::nanos(dma)
    }

    /// The additional time of an answer of `bytes` compared with one of an element: over the wire, and over
    /// PCIe at both ends.
    pub fn answer_beyond_element(&self, bytes: u32) -> f64 {
        let frames = f64::from(Self::wire_bytes(bytes, 0)) - f64::from(Self::wire_bytes(ELEMENT, 0));
        self.wire(frames.max(0.0)) + 2.0 * self.pcie_beyond_element(bytes)
    }

    /// What the runtime charges for a call and for each DMA.
    pub const fn kernel(&self) -> bareverbs_sim::run::KernelCost {
        self.preset.nic_kernel
    }

    /// Time on the wire of a long message, nanoseconds per byte.
    pub fn stream_per_byte(&self) -> f64 {
        self.wire(f64::from(FRAME + MTU) / f64::from(MTU))
    }

    /// The components for the JSON output.
    pub fn object(&self) -> Value {
        let (node, kernel) = (&self.preset.node, &self.preset.nic_kernel);
        json!({
            "preset": self.preset.name,
            "doorbell_to_wire_ns": Self::nanos(node.doorbell_to_wire),
            "wire_to_host_ns": Self::nanos(node.wire_to_host),
            "read_dma_ns": Self::nanos(node.read_dma),
            "dispatch_ns": Self::nanos(kernel.dispatch),
            "dma_ns": Self::nanos(kernel.per_dma),
            "wire_bits_per_second": self.preset.link.bits_per_second,
            "pcie_ns_per_byte": self.pcie_per_byte,
            "pcie_ns_per_write": self.pcie_per_write,
            "crc_on_client_ns_per_byte": self.crc_on_client_per_byte,
            "partition_on_client_ns_per_byte": self.partition_on_client_per_byte,
        })
    }
}

impl fmt::Display for Components {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.object())
    }
}
