//! An endpoint built of the driver's objects: queue pairs, one completion queue, one memory region.

use crate::endpoint::{Completion, Endpoint, MAX_SEND, Outcome, Part, PostError, Remote, Work};
use crate::table::{MemoryFault, TableMemory};
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::device::DeviceRef;
use bareverbs_core::hal::{Barrier, Hal};
use bareverbs_core::memory_region::{MemoryRegion, MemorySlice, RemoteSlice};
use bareverbs_core::queue_pair::{self, ModifyError, QueuePair};
use bareverbs_core::work_completion::{WorkCompletion, WorkCompletionOpcode};
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::ids::Mkey;
use core::ops::Deref;

/// Inline capacity in bytes that the queue pairs of a [`VerbsEndpoint`] need.
pub const INLINE: u32 = MAX_SEND as u32;

/// Queue pairs of one device that share a completion queue and a memory region. Connections exist from the beginning,
/// or come and go.
///
/// ```
/// use bareverbs_core::{CompletionQueue, DeviceRef, MemoryRegion, QueuePair};
/// use bareverbs_offload::endpoint::PostError;
/// use bareverbs_offload::verbs::VerbsEndpoint;
///
/// /// A server's endpoint: clients come and go, up to four at a time. Queue pairs are built for 64 sends.
/// fn endpoint<D: DeviceRef>(
///     completions: CompletionQueue<D>,
///     region: MemoryRegion<D>,
///     first: QueuePair<D>,
/// ) -> Result<VerbsEndpoint<D, 4>, PostError> {
///     let mut endpoint = VerbsEndpoint::vacant(completions, region, 64);
///     let connection = endpoint.vacancy().ok_or(PostError::Full)?;
///     endpoint.attach(connection, first)?;
///     Ok(endpoint)
/// }
/// ```
pub struct VerbsEndpoint<D: DeviceRef, const CONNECTIONS: usize> {
    queue_pairs: [Option<QueuePair<D>>; CONNECTIONS],
    completions: CompletionQueue<D>,
    region: MemoryRegion<D>,
    /// Posted sends that have not completed, by connection.
    outstanding: [u32; CONNECTIONS],
    /// Depth of a send queue.
    depth: u32,
    /// The device wrote an impossible completion.
    faulty: bool,
}

impl<D: DeviceRef, const CONNECTIONS: usize> VerbsEndpoint<D, CONNECTIONS> {
    /// An endpoint of connected queue pairs. All complete in `completions`, have a send queue of `depth`, and take
    /// [`INLINE`] bytes inline.
    pub fn new(
        queue_pairs: [QueuePair<D>; CONNECTIONS],
        completions: CompletionQueue<D>,
        region: MemoryRegion<D>,
        depth: u32,
    ) -> Self {
        Self { queue_pairs: queue_pairs.map(Some), ..Self::vacant(completions, region, depth) }
    }

    /// An endpoint without connections, for queue pairs such as [`VerbsEndpoint::new`] takes.
    pub fn vacant(completions: CompletionQueue<D>, region: MemoryRegion<D>, depth: u32) -> Self {
        let queue_pairs = core::array::from_fn(|_| None);
        Self { queue_pairs, completions, region, outstanding: [0; CONNECTIONS], depth, faulty: false }
    }

    /// The first connection without a queue pair.
    pub fn vacancy(&self) -> Option<usize> {
        self.queue_pairs.iter().position(Option::is_none)
    }

    /// Gives a vacant connection a queue pair.
    ///
    /// # Errors
    /// [`PostError::BadRequest`]: the connection has a queue pair, or does not exist. The new queue pair is destroyed.
    pub fn attach(&mut self, connection: usize, queue_pair: QueuePair<D>) -> Result<(), PostError> {
        match self.queue_pairs.get_mut(connection) {
            Some(place @ None) => {
                *place = Some(queue_pair);
                self.outstanding[connection] = 0;
                Ok(())
            }
            _ => Err(PostError::BadRequest),
        }
    }

    /// Moves the queue pair of a connection to ERROR: everything outstanding completes as failed.
    ///
    /// # Errors
    /// The device refuses.
    pub fn break_off(&mut self, connection: usize) -> Result<(), ModifyError> {
        self.queue_pairs
            .get_mut(connection)
            .and_then(Option::as_mut)
            .map_or(Ok(()), QueuePair::modify_to_error)
    }

    /// Whether all sends of a connection have completed.
    pub fn is_sent(&self, connection: usize) -> bool {
        self.outstanding.get(connection).is_none_or(|outstanding| *outstanding == 0)
    }

    /// Whether nothing is outstanding on a connection, neither send nor receive.
    pub fn is_flushed(&self, connection: usize) -> bool {
        let queue_pair = self.queue_pairs.get(connection).and_then(Option::as_ref);
        queue_pair.is_none_or(|pair| pair.sends_outstanding() == 0 && pair.receives_outstanding() == 0)
    }

    /// Takes the queue pair out of a connection, which becomes vacant. Its later completions are lost: wait until it
    /// [is flushed](VerbsEndpoint::is_flushed).
    pub fn detach(&mut self, connection: usize) -> Option<QueuePair<D>> {
        self.queue_pairs.get_mut(connection)?.take()
    }

    fn queue_pair(&mut self, connection: usize) -> Result<&mut QueuePair<D>, PostError> {
        self.queue_pairs.get_mut(connection).and_then(Option::as_mut).ok_or(PostError::Broken)
    }

    /// The memory region.
    pub const fn region(&self) -> &MemoryRegion<D> {
        &self.region
    }

    /// The completion queue, for creating a queue pair to attach.
    pub const fn completions(&self) -> &CompletionQueue<D> {
        &self.completions
    }

    fn slice(&self, part: Part) -> Result<MemorySlice, PostError> {
        self.region.slice(part.offset, part.length as usize).map_err(|_| PostError::BadRequest)
    }

    fn post_request(&mut self, connection: usize, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.queue_pair(connection)?.post_send(request).map_err(post_error)?;
        self.outstanding[connection] += 1;
        Ok(())
    }

    fn completed(&mut self, completion: &WorkCompletion) -> Option<Completion> {
        let is_of =
            |pair: &Option<QueuePair<D>>| pair.as_ref().is_some_and(|pair| pair.qpn() == completion.qpn);
        let connection = self.queue_pairs.iter().position(is_of)?;
        let received = matches!(
            completion.opcode,
            WorkCompletionOpcode::Receive | WorkCompletionOpcode::ReceiveRdmaWithImmediate
        );
        if !received {
            self.outstanding[connection] = self.outstanding[connection].saturating_sub(1);
        }
        let outcome = match completion.immediate {
            _ if !completion.is_success() => Outcome::Failed,
            immediate if received => Outcome::Received { length: completion.byte_count, immediate },
            _ => Outcome::Done,
        };
        Some(Completion { connection, id: completion.wr_id, outcome })
    }
}

const fn post_error(error: queue_pair::PostError) -> PostError {
    match error {
        queue_pair::PostError::QueueFull { .. } => PostError::Full,
        _ => PostError::BadRequest,
    }
}

const fn remote(remote: Remote) -> RemoteSlice {
    RemoteSlice::from_raw(remote.address, u32::MAX, Mkey::new(remote.rkey))
}

impl<D: DeviceRef, const CONNECTIONS: usize> Endpoint for VerbsEndpoint<D, CONNECTIONS> {
    fn post(&mut self, connection: usize, id: u64, work: Work<'_>) -> Result<(), PostError> {
        if self.faulty {
            return Err(PostError::Broken);
        }
        match work {
            Work::Send(bytes) => self.post_request(connection, &WorkRequest::send_inline(id, bytes)),
            Work::RpcParameters { opcode, region, bytes } => {
                self.post_request(connection, &WorkRequest::rpc_params(id, opcode, Mkey::new(region), bytes))
            }
            Work::RpcWrite { opcode, region, from } => {
                let slices = [self.slice(from)?];
                self.post_request(connection, &WorkRequest::rpc_write(id, opcode, Mkey::new(region), &slices))
            }
            Work::Read { into, from } => {
                let slices = [self.slice(into)?];
                self.post_request(connection, &WorkRequest::read(id, &slices, remote(from)))
            }
            Work::WriteImmediate { from, to, immediate } => {
                let slices = [self.slice(from)?];
                let request = WorkRequest::write(id, &slices, remote(to)).immediate(immediate);
                self.post_request(connection, &request)
            }
            Work::WriteBytesImmediate { bytes, to, immediate } => {
                let request = WorkRequest::write_inline(id, bytes, remote(to)).immediate(immediate);
                self.post_request(connection, &request)
            }
        }
    }

    fn has_room(&self, connection: usize) -> bool {
        self.outstanding.get(connection).is_some_and(|outstanding| *outstanding < self.depth)
    }

    fn post_receive(&mut self, connection: usize, id: u64, into: Part) -> Result<(), PostError> {
        let slice = if into.length == 0 { None } else { Some(self.slice(into)?) };
        let request = ReceiveRequest::new(id, slice.as_slice());
        self.queue_pair(connection)?.post_receive(&request).map_err(post_error)
    }

    fn poll(&mut self) -> Option<Completion> {
        while !self.faulty {
            match self.completions.poll_one() {
                Ok(Some(completion)) => {
                    if let Some(completion) = self.completed(&completion) {
                        return Some(completion);
                    }
                }
                Ok(None) => return None,
                Err(_) => {
                    self.faulty = true;
                    return Some(Completion { connection: 0, id: 0, outcome: Outcome::Failed });
                }
            }
        }
        None
    }

    fn refresh(&self) {
        self.completions.device().device().hal().barrier(Barrier::FromDevice);
    }

    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PostError> {
        self.region.copy_in(offset, bytes).map_err(|_| PostError::BadRequest)
    }

    fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), PostError> {
        self.region.copy_out(offset, buffer).map_err(|_| PostError::BadRequest)
    }
}

/// A memory region that holds a table. `R` is any kind of reference to the region.
///
/// ```
/// use bareverbs_core::{DeviceRef, MemoryRegion};
/// use bareverbs_offload::table::{TableConfig, TableDescriptor, TablePolicy, TableWriter};
/// use bareverbs_offload::verbs::RegionTable;
/// use std::error::Error;
/// use std::rc::Rc;
///
/// /// Makes an empty table in memory that peers can read.
/// fn table<D: DeviceRef>(region: Rc<MemoryRegion<D>>) -> Result<TableDescriptor, Box<dyn Error>> {
///     let policy = TablePolicy::default();
///     let config = TableConfig { buckets: 1024, overflow_lines: 256, seed: [3; 16], policy };
///     let device = region.device().clone();
///     Ok(*TableWriter::create(RegionTable::new(region, device), &config)?.descriptor())
/// }
/// ```
pub struct RegionTable<R, D> {
    region: R,
    device: D,
}

impl<R: Deref<Target = MemoryRegion<D>>, D: DeviceRef> RegionTable<R, D> {
    /// The memory of `region`, which belongs to `device`.
    pub const fn new(region: R, device: D) -> Self {
        Self { region, device }
    }
}

impl<R: Deref<Target = MemoryRegion<D>>, D: DeviceRef> TableMemory for RegionTable<R, D> {
    fn length(&self) -> u64 {
        self.region.len() as u64
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
        let fault = MemoryFault { offset, length: buffer.len() };
        let at = usize::try_from(offset).map_err(|_| fault)?;
        self.region.copy_out(at, buffer).map_err(|_| fault)
    }
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let fault = MemoryFault { offset, length: bytes.len() };
        let at = usize::try_from(offset).map_err(|_| fault)?;
        self.region.copy_in(at, bytes).map_err(|_| fault)
    }
    fn order(&mut self) {
        self.device.device().hal().barrier(Barrier::ToDevice);
    }
}
