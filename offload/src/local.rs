//! Kernels, programs and streams called on this machine, over its own memory: no network, no DPU, no waiting.
//!
//! A call takes the same steps as a remote one, within a grant and a budget, so that a program can be tried and a
//! server can answer itself. Only [`Limits::time`](crate::budget::Limits::time) does not apply: there is no clock here,
//! and the number of steps is bounded by the others. Addresses of the grant count from the start of the memory.

use crate::budget::{Budget, Limits, Next};
use crate::grant::{Checked, Grant};
use crate::kernel::{Caller, Deployment, Emission, Event, KernelCall, MAX_PARTS, Opcode, Step};
use crate::status::Status;
use crate::streams::open_stream::OpenStream;
use crate::table::TableMemory;
use bareverbs_prm::time::Time;
use heapless::Deque;

/// A call of a kernel or program on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalCall<'a> {
    /// The op-code.
    pub opcode: Opcode,
    /// Parameters of the kernel.
    pub parameters: &'a [u8],
    /// Payload, for kernels that take one.
    pub payload: &'a [u8],
    /// The memory that it may use.
    pub grant: Grant,
    /// What it may spend.
    pub limits: Limits,
}

/// How a call ended that has an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalResponse {
    /// Bytes of the answer, at the start of the buffer.
    pub length: usize,
    /// The version that the kernel stated.
    pub version: u64,
    /// Elements that it read or wrote.
    pub hops: u16,
    /// Times that it restarted reading.
    pub retries: u16,
}

/// Calls what answers to an op-code. `buffer` gets what is read and then the answer; it has
/// [`MAX_READ`](crate::budget::MAX_READ) bytes, or fewer if kernel and answer need no more.
///
/// # Errors
/// The status with which the call ended; [`Status::Truncated`] if the buffer is too short.
///
/// ```
/// use bareverbs_offload::budget::Limits;
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::kernel::{CompiledIn, Kernel};
/// use bareverbs_offload::kernels::{BuiltInKernels, kv_lookup::{KvLookup, MAX_PARAMETERS}};
/// use bareverbs_offload::local::{LocalCall, call};
/// use bareverbs_offload::table::{TableConfig, TablePolicy, TableWriter};
/// use bareverbs_prm::time::Time;
/// use std::error::Error;
///
/// # fn main() -> Result<(), Box<dyn Error>> {
/// let mut memory = vec![0; 1 << 16];
/// let config = TableConfig { buckets: 16, overflow_lines: 8, seed: [1; 16], policy: TablePolicy::default() };
/// let mut table = TableWriter::create(memory.as_mut_slice(), &config)?;
/// table.insert(Time::ZERO, b"user:4711", b"Ada")?;
/// let (mut parameters, descriptor) = ([0; MAX_PARAMETERS], *table.descriptor());
/// let parameters = descriptor.lookup(b"user:4711").encode(&mut parameters).ok_or("too long")?;
/// let (opcode, grant) = (KvLookup::OPCODE, Grant::new(0, 1 << 16)?);
/// let lookup = LocalCall { opcode, parameters, payload: &[], grant, limits: Limits::default() };
/// let mut deployment = CompiledIn::<BuiltInKernels>::default();
/// let mut buffer = vec![0; 4096];
/// let found = call(&mut deployment, &mut memory.as_mut_slice(), &lookup, &mut buffer)?;
/// assert_eq!(&buffer[..found.length], b"Ada");
/// # Ok(())
/// # }
/// ```
pub fn call<D: Deployment>(
    deployment: &mut D,
    memory: &mut impl TableMemory,
    call: &LocalCall<'_>,
    buffer: &mut [u8],
) -> Result<LocalResponse, Status> {
    let caller = Caller { connection: 0, may_deploy: false };
    let mut invocation = None;
    let started = KernelCall { caller, parameters: call.parameters, grant: &call.grant };
    let step = deployment.start(&mut invocation, call.opcode, &started)?;
    let mut invocation = invocation.ok_or(Status::NoKernel)?;
    let step = match step {
        Step::AwaitPayload => Ok(deployment.payload(&mut invocation, call.payload, &call.grant)),
        _ if !call.payload.is_empty() => Err(Status::BadParameters),
        step => Ok(step),
    };
    let mut running = LocalRun {
        deployment: &*deployment,
        invocation: &mut invocation,
        grant: &call.grant,
        memory,
        buffer,
        window: 0,
        parts: Deque::new(),
    };
    let ended = step.and_then(|step| running.run(step, Budget::new(call.limits, Time::ZERO)));
    deployment.ended(&invocation);
    ended
}

/// Passes the next bytes of a stream, which [`OpenStream::open`] began, into memory.
///
/// # Errors
/// As [`OpenStream::take`].
///
/// ```
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::local::pass;
/// use bareverbs_offload::status::Status;
/// use bareverbs_offload::streams::open_stream::{COUNT, OpenStream};
///
/// let mut memory = [0; 64];
/// let mut stream = OpenStream::open(COUNT, &16_u64.to_be_bytes(), Grant::new(8, 24)?.writable())?;
/// pass(&mut stream, &[7; 16], &mut memory.as_mut_slice())?;
/// assert!(stream.is_whole() && memory[8..24] == [7; 16]);
/// # Ok::<(), Status>(())
/// ```
pub fn pass(stream: &mut OpenStream, bytes: &[u8], memory: &mut impl TableMemory) -> Result<(), Status> {
    stream.take(bytes, |write| memory.write(write.to.range().address(), write.bytes).is_ok())
}

/// A call that runs.
struct LocalRun<'a, D: Deployment, M> {
    deployment: &'a D,
    invocation: &'a mut D::Invocation,
    grant: &'a Grant,
    memory: &'a mut M,
    buffer: &'a mut [u8],
    /// Bytes of the buffer that were read last.
    window: usize,
    /// Ranges that are still to be handed over, with their numbers.
    parts: Deque<(usize, Checked), MAX_PARTS>,
}

impl<D: Deployment, M: TableMemory> LocalRun<'_, D, M> {
    fn run(&mut self, mut step: Step, mut budget: Budget) -> Result<LocalResponse, Status> {
        loop {
            let next = budget.charge(step, Time::ZERO);
            if next != Next::AwaitPart {
                self.parts.clear();
            }
            let answered = |length, version| {
                Ok(LocalResponse { length, version, hops: budget.hops(), retries: budget.retries() })
            };
            step = match next {
                Next::Read(range) => {
                    self.read(range)?;
                    let bytes = self.buffer.get(..self.window).unwrap_or_default();
                    self.deployment.dma_done(self.invocation, bytes, self.grant)
                }
                Next::ReadEach(ranges) => {
                    for part in ranges.iter().enumerate() {
                        // A step names at most as many ranges as fit.
                        let _ = self.parts.push_back(part);
                    }
                    self.next_part()?
                }
                Next::AwaitPart => self.next_part()?,
                Next::Write { to, from } => {
                    let computed = self.deployment.computed(self.invocation);
                    let bytes = computed.get(from as usize..).unwrap_or_default();
                    let bytes = bytes.get(..to.range().length() as usize).ok_or(Status::OutOfBounds)?;
                    let written = self.memory.write(to.range().address(), bytes);
                    written.map_err(|_| Status::DmaFault)?;
                    self.resume(Event::Written)
                }
                Next::CompareAndSwap { word, expected, desired } => {
                    self.compare_and_swap(word.range(), [expected, desired])?
                }
                Next::Emit(emission) => {
                    let (begin, length) = place(&emission, self.window)?;
                    self.buffer.copy_within(begin..begin + length, 0);
                    return answered(length, emission.version);
                }
                Next::Reply(emission) => {
                    let computed = self.deployment.computed(self.invocation);
                    let (begin, length) = place(&emission, computed.len())?;
                    let answer = self.buffer.get_mut(..length).ok_or(Status::Truncated)?;
                    answer.copy_from_slice(&computed[begin..begin + length]);
                    return answered(length, emission.version);
                }
                Next::End(Status::Ok) => return answered(0, 0),
                Next::End(status) => return Err(status),
                Next::Payload => return Err(Status::BadParameters),
            };
        }
    }

    /// Reads a range to the start of the buffer.
    fn read(&mut self, range: Checked) -> Result<(), Status> {
        self.window = range.length() as usize;
        let bytes = self.buffer.get_mut(..self.window).ok_or(Status::Truncated)?;
        self.memory.read(range.address(), bytes).map_err(|_| Status::DmaFault)
    }

    fn next_part(&mut self) -> Result<Step, Status> {
        // There is nothing more to wait for, as for a kernel that is called from afar.
        let (part, range) = self.parts.pop_front().ok_or(Status::BadParameters)?;
        self.read(range)?;
        let bytes = self.buffer.get(..self.window).unwrap_or_default();
        let event = Event::Part { part, bytes };
        Ok(self.deployment.resumed(self.invocation, event, self.grant))
    }

    fn resume(&mut self, event: Event<'_>) -> Step {
        self.window = 0;
        self.deployment.resumed(self.invocation, event, self.grant)
    }

    fn compare_and_swap(&mut self, word: Checked, [expected, desired]: [u64; 2]) -> Result<Step, Status> {
        let mut bytes = [0; 8];
        self.memory.read(word.address(), &mut bytes).map_err(|_| Status::DmaFault)?;
        let found = u64::from_be_bytes(bytes);
        if found == expected {
            let swapped = self.memory.write(word.address(), &desired.to_be_bytes());
            swapped.map_err(|_| Status::DmaFault)?;
        }
        Ok(self.resume(Event::Compared { found }))
    }
}

/// Begin and length of an answer within `available` bytes.
fn place(emission: &Emission, available: usize) -> Result<(usize, usize), Status> {
    let (begin, length) = (emission.offset as usize, emission.length as usize);
    match begin.checked_add(length) {
        Some(end) if end <= available => Ok((begin, length)),
        _ => Err(Status::OutOfBounds),
    }
}

#[cfg(test)]
mod tests;
