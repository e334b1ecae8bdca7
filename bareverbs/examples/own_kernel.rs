//! A custom kernel: it walks a linked list in another host's memory and returns the sum, in one round trip instead of
//! one per element.
//!
//! `cargo run -p bareverbs --features offload --example own_kernel`
//!
//! Here it runs in the DPU's runtime over plain memory, which is how to try and test a kernel. `docs/extending.md` says
//! how to deploy it to a DPU or a simulated NIC.

use bareverbs::offload::budget::Limits;
use bareverbs::offload::cost::KernelCost;
use bareverbs::offload::grant::Grant;
use bareverbs::offload::kernel::{CompiledIn, Emission, Kernel, Opcode, Status, Step};
use bareverbs::offload::runtime::{Admission, ConnectionId, Reply, ResponseWindow, Runtime};
use bareverbs::offload::wire::{RegionHandle, ReplyTo, Request};
use bareverbs::prelude::*;
use bareverbs::prm::time::Duration;
use std::error::Error;

/// Size of an element in bytes: the offset of the next element (zero at the end), then a number; both little-endian, 8
/// bytes each.
const ELEMENT: u32 = 16;

// ANCHOR: kernel
/// Adds up the numbers of a list. Its parameter is the offset of the first element, 8 bytes.
struct SumOfList {
    answer: [u8; 16],
}

impl SumOfList {
    /// Requests one element. The offset comes from a peer or from a stored pointer, so the grant checks it.
    fn fetch(offset: u64, grant: &Grant) -> Result<Step, Status> {
        Ok(Step::Fetch(grant.check(offset, ELEMENT)?))
    }
}

impl Kernel for SumOfList {
    const OPCODE: Opcode = Opcode(u64::from_be_bytes(*b"LISTSUM1"));

    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let first = parameters.try_into().map_err(|_| Status::BadParameters)?;
        Ok((Self { answer: [0; 16] }, Self::fetch(u64::from_le_bytes(first), grant)?))
    }

    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        let word =
            |at: usize| bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_le_bytes);
        let (Some(next), Some(number)) = (word(0), word(8)) else { return Step::Done(Status::DmaFault) };
        // The runtime's limit on elements ends the walk long before a sum of 64-bit numbers overflows 128 bits.
        self.answer = (u128::from_le_bytes(self.answer) + u128::from(number)).to_le_bytes();
        match next {
            0 => Step::Reply(Emission { offset: 0, length: 16, version: 0 }),
            next => Self::fetch(next, grant).unwrap_or_else(Step::Done),
        }
    }

    fn computed(&self) -> &[u8] {
        &self.answer
    }
}
// ANCHOR_END: kernel

/// Address of the list's region in the server's memory.
const BASE: u64 = 0x7000_0000;
/// The client's response window.
const WINDOW: ResponseWindow = ResponseWindow { address: 0x9000, length: 256, rkey: 0xabcd };

/// A server with one client, which was granted the region `memory`.
struct Server<'a> {
    runtime: Runtime<CompiledIn<SumOfList>, 4, 1>,
    client: ConnectionId,
    region: RegionHandle,
    memory: &'a [u8],
    reads: u32,
}

impl<'a> Server<'a> {
    fn new(memory: &'a [u8]) -> Result<Self, Box<dyn Error>> {
        let mut runtime = Runtime::new(Limits::default(), KernelCost::FREE);
        let client = runtime.connect(WINDOW, 4)?;
        let region = runtime.grant(client, Grant::new(BASE, memory.len() as u64)?)?;
        Ok(Self { runtime, client, region, memory, reads: 0 })
    }

    /// Builds the client's request to add up the list that starts at `first`.
    fn request<'b>(&self, first: &[u8], buffer: &'b mut [u8]) -> Option<&'b [u8]> {
        let reply = ReplyTo { address: WINDOW.address, rkey: WINDOW.rkey, max_response: 16, slot: 0 };
        let request = Request {
            opcode: SumOfList::OPCODE,
            request_id: 1,
            reply,
            // Zero selects the server's limits.
            deadline: Duration::ZERO,
            hop_limit: 0,
            region: self.region,
            parameters: first,
            payload: &[],
        };
        request.encode_message(buffer)
    }

    /// Adds up the list whose first element is at offset `first`. Returns the sum, or the status of the failure.
    fn sum_of_list(&mut self, first: u64) -> Result<Result<u128, Status>, Box<dyn Error>> {
        let (now, mut buffer) = (Time::ZERO, [0; 256]);
        let message = self.request(&first.to_le_bytes(), &mut buffer).ok_or("a request that does not fit")?;
        let reply = match self.runtime.handle_message(now, self.client, message) {
            Admission::Refused(reply) => reply,
            Admission::Dropped(reason) => return Err(format!("the request was dropped: {reason:?}").into()),
            Admission::Accepted => self.walk(now)?,
        };
        let sum = self.runtime.computed(&reply).map(|bytes| bytes.try_into().map(u128::from_le_bytes));
        reply.ticket.into_iter().for_each(|ticket| self.runtime.reply_done(ticket));
        Ok(match reply.trailer.status {
            Status::Ok => Ok(sum.ok_or("a reply without a body")??),
            status => Err(status),
        })
    }

    /// Serves the kernel's reads until it answers. On a DPU each read is a DMA over PCIe.
    fn walk(&mut self, now: Time) -> Result<Reply, Box<dyn Error>> {
        while let Some(read) = self.runtime.poll_dma(now) {
            let at = usize::try_from(read.address - BASE)?;
            self.runtime.handle_dma_done(now, read.tag, Ok(&self.memory[at..at + read.length as usize]));
            self.reads += 1;
        }
        Ok(self.runtime.poll_reply(now).ok_or("the kernel does not answer")?)
    }
}

/// Lays out a list of `numbers` from offset 16, element after element. Offset 0 stays unused because it ends a list.
fn list(numbers: &[u64]) -> Vec<u8> {
    let size = u64::from(ELEMENT);
    let next = |index: usize| if index + 1 < numbers.len() { (index as u64 + 2) * size } else { 0 };
    let elements = numbers.iter().enumerate().flat_map(|(index, number)| [next(index), *number]);
    [0, 0].into_iter().chain(elements).flat_map(u64::to_le_bytes).collect()
}

/// Adds up a valid list, then one whose second element lies outside the client's grant.
pub fn sums() -> Result<Vec<String>, Box<dyn Error>> {
    let numbers: Vec<u64> = (1..=20).map(|number| number * 1_000_000_007).collect();
    let mut memory = list(&numbers);
    let mut server = Server::new(&memory)?;
    let good = server.sum_of_list(16)?.map_err(|status| status.to_string())?;
    let mut said = vec![format!(
        "{good} is the sum of {} elements, {} reads, 1 round trip",
        numbers.len(),
        server.reads
    )];

    memory[16..24].copy_from_slice(&0xdead_beef_u64.to_le_bytes());
    let mut server = Server::new(&memory)?;
    let Err(status) = server.sum_of_list(16)? else { return Err("a wild pointer was followed".into()) };
    said.push(format!("a pointer to nowhere: {status}, after {} read", server.reads));
    Ok(said)
}

#[allow(dead_code, reason = "the test that includes this file calls `sums`")]
fn main() -> Result<(), Box<dyn Error>> {
    sums()?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
