//! A kernel run to its end over memory, by the real runtime in virtual time.

use super::components::Components;
use crate::Failure;
use anyhow::{Context as _, anyhow};
use bareverbs_offload::budget::Limits;
use bareverbs_offload::cost::KernelCost;
use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::{CompiledIn, Opcode};
use bareverbs_offload::kernels::BuiltInKernels;
use bareverbs_offload::runtime::{Admission, DmaAction, DmaRequest, ResponseWindow, Runtime};
use bareverbs_offload::status::Status;
use bareverbs_offload::wire::{ReplyTo, Request};
use bareverbs_prm::time::{Duration, Time};

/// Base address of the granted memory.
const BASE: u64 = 0x10_0000;
/// Largest answer.
const RESPONSE: u32 = 65_536;

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// Nanoseconds from the arrival of the request to its reply.
    pub nanos: f64,
    /// Elements read, including repeated reads.
    pub hops: u16,
    /// Bytes of the answer.
    pub answer: u32,
}

/// Calls a kernel once. `bytes_of` returns the memory as the n-th read finds it.
pub fn call<'m>(
    components: &Components,
    opcode: Opcode,
    parameters: &[u8],
    bytes_of: impl Fn(u64) -> &'m [u8],
) -> Result<Served, Failure> {
    serve(components, opcode, parameters, bytes_of).map_err(Failure::Run)
}

fn serve<'m>(
    components: &Components,
    opcode: Opcode,
    parameters: &[u8],
    bytes_of: impl Fn(u64) -> &'m [u8],
) -> anyhow::Result<Served> {
    let charged = components.kernel();
    let cost = KernelCost { dispatch: charged.dispatch, per_dma: charged.per_dma, ..KernelCost::FREE };
    let limits = Limits { hops: 256, ..Limits::default() };
    let mut runtime: Runtime<CompiledIn<BuiltInKernels>, 1, 1> = Runtime::new(limits, cost);
    let window = ResponseWindow { address: 0, length: 1 << 20, rkey: 1 };
    let client = runtime.connect(window, 1)?;
    let region = runtime.grant(client, Grant::new(BASE, bytes_of(0).len() as u64)?)?;
    let request = Request {
        opcode,
        request_id: 1,
        reply: ReplyTo { address: 0, rkey: 1, max_response: RESPONSE, slot: 0 },
        deadline: Duration::ZERO,
        hop_limit: 0,
        region,
        parameters,
        payload: &[],
    };
    let mut buffer = [0; 512];
    let message = request.encode_message(&mut buffer).context("a request of more than 512 bytes")?;
    let mut now = Time::ZERO;
    match runtime.handle_message(now, client, message) {
        Admission::Accepted => {}
        other => return Err(anyhow!("the request was not accepted: {other:?}")),
    }
    let mut reads = 0;
    loop {
        if let Some(dma) = runtime.poll_dma(now) {
            let bytes = read(&dma, bytes_of(reads))?;
            reads += 1;
            // The runtime's charge includes a read of one element; the bytes beyond that take their own time.
            now += Duration::from_picos((components.pcie_beyond_element(dma.length) * 1e3) as u64);
            runtime.handle_dma_done(now, dma.tag, Ok(bytes));
        } else if let Some(reply) = runtime.poll_reply(now) {
            let trailer = reply.trailer;
            if trailer.status != Status::Ok {
                return Err(anyhow!("the kernel ended with: {}", trailer.status));
            }
            let nanos = now.since(Time::ZERO).as_picos() as f64 / 1e3;
            return Ok(Served { nanos, hops: trailer.hops, answer: trailer.length });
        } else {
            now = runtime.poll_timeout().context("a kernel that waits for nothing")?;
        }
    }
}

fn read<'m>(dma: &DmaRequest, memory: &'m [u8]) -> anyhow::Result<&'m [u8]> {
    let begin = (dma.address - BASE) as usize;
    let range = memory.get(begin..begin + dma.length as usize).filter(|_| dma.action == DmaAction::Read);
    range.with_context(|| format!("{dma:?} is no read of the memory"))
}
