//! Requests to the offload runtime over host memory with arbitrary bytes. It must always come to rest, must
//! read and write nothing outside its grant, and must write nothing where the grant is read-only.
#![no_main]

use bareverbs_fuzz::Bytes;
use bareverbs_offload::budget::Limits;
use bareverbs_offload::cost::KernelCost;
use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::{CompiledIn, Kernel, Opcode};
use bareverbs_offload::kernels::BuiltInKernels;
use bareverbs_offload::kernels::aggregate::Aggregate;
use bareverbs_offload::kernels::consistency::Consistency;
use bareverbs_offload::kernels::first::First;
use bareverbs_offload::kernels::kv_lookup::KvLookup;
use bareverbs_offload::kernels::publish::Publish;
use bareverbs_offload::kernels::top::Top;
use bareverbs_offload::kernels::traversal::Traversal;
use bareverbs_offload::runtime::{DmaAction, DmaFault, DmaRequest, ResponseWindow, Runtime};
use bareverbs_offload::wire::{ReplyTo, Request};
use bareverbs_prm::time::{Duration, Time};
use libfuzzer_sys::fuzz_target;

const HOST: u64 = 0x7000_0000;
const WINDOW: ResponseWindow = ResponseWindow { address: 0x9000, length: 0x4000, rkey: 7 };
/// Every kernel, and one that does not exist.
const OPCODES: [Opcode; 8] = [
    KvLookup::OPCODE,
    Traversal::OPCODE,
    Aggregate::OPCODE,
    Top::OPCODE,
    Consistency::OPCODE,
    First::OPCODE,
    Publish::OPCODE,
    Opcode(0),
];

/// Carries out a request of the runtime, and returns what was read.
fn carry_out(dma: &DmaRequest, memory: &mut [u8], written: &[u8]) -> Vec<u8> {
    let at = dma.address.checked_sub(HOST).expect("inside the grant") as usize;
    let part = &mut memory[at..at + dma.length as usize];
    let read = part.to_vec();
    match dma.action {
        DmaAction::Read => {}
        DmaAction::Write { .. } => {
            part.copy_from_slice(written);
            return Vec::new();
        }
        DmaAction::CompareAndSwap { expected, desired } if read == expected.to_be_bytes() => {
            part.copy_from_slice(&desired.to_be_bytes());
        }
        DmaAction::CompareAndSwap { .. } => {}
    }
    read
}

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let mut memory = vec![0; 4096];
    let given = input.u16() as usize % 1024;
    let bytes = input.take(given);
    memory[..bytes.len()].copy_from_slice(bytes);
    let mut runtime: Runtime<CompiledIn<BuiltInKernels>, 4, 1> =
        Runtime::new(Limits::default(), KernelCost::FREE);
    let connection = runtime.connect(WINDOW, 4).expect("room");
    let may_write = input.u8() & 1 == 1;
    let grant = Grant::new(HOST, 4096).expect("no wrap");
    let grant = if may_write { grant.writable() } else { grant };
    let region = runtime.grant(connection, grant).expect("room");
    let mut now = Time::ZERO;
    for id in 0..8 {
        if input.is_empty() {
            break;
        }
        let (kind, length) = (input.u8(), input.u8());
        let opcode = OPCODES[usize::from(kind >> 2) % OPCODES.len()];
        let parameters = input.take(length.into());
        let _ = match kind & 3 {
            0 => runtime.handle_message(now, connection, parameters),
            1 => runtime.handle_strom(now, connection, opcode, 0, parameters),
            _ => {
                let reply =
                    ReplyTo { address: WINDOW.address, rkey: WINDOW.rkey, max_response: 256, slot: 0 };
                let payload = if kind & 3 == 3 { input.take(64) } else { &[] };
                let (hop_limit, deadline) = (0, Duration::ZERO);
                let request = Request {
                    opcode,
                    request_id: id,
                    reply,
                    deadline,
                    hop_limit,
                    region,
                    parameters,
                    payload,
                };
                let mut buffer = [0; 512];
                match request.encode_message(&mut buffer) {
                    Some(bytes) => runtime.handle_message(now, connection, bytes),
                    None => continue,
                }
            }
        };
    }
    for _ in 0..1_000_000 {
        if let Some(dma) = runtime.poll_dma(now) {
            assert!(may_write || dma.action == DmaAction::Read, "the grant is read-only");
            let written = runtime.to_be_written(&dma).unwrap_or_default();
            let bytes = carry_out(&dma, &mut memory, written);
            runtime.handle_dma_done(now, dma.tag, if input.u8() == 0xff { Err(DmaFault::Memory) } else { Ok(&bytes) });
        } else if let Some(reply) = runtime.poll_reply(now) {
            runtime.reply_done(reply.ticket.expect("it was polled"));
        } else {
            match runtime.poll_timeout() {
                Some(next) => now = now.max(next),
                None => break,
            }
        }
    }
    assert_eq!(runtime.running(), 0, "requests are still running");
});
