//! Lookups by plain RDMA READs: the client walks the table itself.

use super::config::{ClientConfig, Ended, LookupResult, StartError};
use super::slots::{Loan, Slots};
use super::walk::{Walk, WalkStep};
use crate::budget::Limits;
use crate::endpoint::{Completion, Endpoint, Outcome, Part, PostError, Remote, Work};
use crate::grant::{Checked, Grant};
use crate::status::Status;
use bareverbs_prm::time::Time;

/// At most `N` lookups at a time, each with one READ in flight.
#[derive(Debug)]
pub(super) struct ReadClient<const N: usize> {
    config: ClientConfig,
    rkey: u32,
    region: Grant,
    slots: Slots<N>,
    /// The walks, by slot.
    walks: [Option<Walk>; N],
    broken: bool,
}

impl<const N: usize> ReadClient<N> {
    pub(super) fn new(config: &ClientConfig, rkey: u32, region: Grant) -> Self {
        let slots = Slots::new(config.layout, config.credits);
        let walks = core::array::from_fn(|_| None);
        Self { config: *config, rkey, region, slots, walks, broken: false }
    }

    pub(super) fn start(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        key: &[u8],
    ) -> Result<u64, StartError> {
        if self.broken {
            return Err(StartError::Post(PostError::Broken));
        }
        let loan = self.slots.lend(now + self.config.timeout).map_err(StartError::NoSlot)?;
        match self.walk(now, endpoint, &loan, key) {
            Ok(()) => Ok(loan.request_id),
            Err(error) => {
                self.slots.cancel(&loan);
                Err(error)
            }
        }
    }

    fn walk(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        loan: &Loan,
        key: &[u8],
    ) -> Result<(), StartError> {
        let limits = Limits { time: self.config.timeout, ..self.config.limits };
        let (walk, step) =
            Walk::start(now, &self.config.table, self.region, key, limits).map_err(StartError::Refused)?;
        let WalkStep::Read(range) = step else { return Err(StartError::Refused(Status::BadParameters)) };
        let index = usize::from(loan.reply.slot);
        self.post_read(endpoint, index, loan.request_id, range).map_err(StartError::Post)?;
        self.walks[index] = Some(walk);
        Ok(())
    }

    fn post_read(
        &self,
        endpoint: &mut impl Endpoint,
        index: usize,
        request_id: u64,
        range: Checked,
    ) -> Result<(), PostError> {
        if u64::from(range.length()) > self.config.layout.stride {
            return Err(PostError::BadRequest);
        }
        let into = Part { offset: self.slot_offset(index), length: range.length() };
        let from = Remote { address: range.address(), rkey: self.rkey };
        endpoint.post(0, request_id, Work::Read { into, from })
    }

    const fn slot_offset(&self, index: usize) -> usize {
        index * self.config.layout.stride as usize
    }

    pub(super) fn poll(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        buffer: &mut [u8],
    ) -> Option<LookupResult> {
        while let Some(completion) = endpoint.poll() {
            if let Some(result) = self.take(now, endpoint, &completion, buffer) {
                return Some(result);
            }
        }
        match self.broken {
            true => self.give_up(Time::MAX, Ended::Disconnected),
            false => self.give_up(now, Ended::TimedOut),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.slots.poll_timeout()
    }

    pub(super) const fn stale(&self) -> u64 {
        self.slots.stale()
    }

    fn give_up(&mut self, now: Time, ended: Ended) -> Option<LookupResult> {
        self.slots.expire(now).map(|(_, request_id)| LookupResult {
            request_id,
            ended,
            length: 0,
            version: 0,
            hops: 0,
            round_trips: 0,
            retries: 0,
        })
    }

    fn take(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        completion: &Completion,
        buffer: &mut [u8],
    ) -> Option<LookupResult> {
        match completion.outcome {
            Outcome::Failed => {
                self.broken = true;
                None
            }
            // Nobody sends to this client.
            Outcome::Received { .. } => None,
            Outcome::Done => self.read_done(now, endpoint, completion.id, buffer),
        }
    }

    /// A READ has completed: walk on.
    fn read_done(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        request_id: u64,
        buffer: &mut [u8],
    ) -> Option<LookupResult> {
        let index = (0..N).find(|index| self.slots.request_of(*index) == Some(request_id))?;
        let mut walk = self.walks[index].take()?;
        let found = match self.walk_on(now, endpoint, index, &mut walk, buffer) {
            WalkStep::Read(range) => match self.post_read(endpoint, index, request_id, range) {
                Ok(()) => {
                    self.walks[index] = Some(walk);
                    return None;
                }
                Err(error) => Err(self.read_refused(error)),
            },
            WalkStep::Found(emission) => {
                let begin = emission.offset as usize;
                buffer.copy_within(begin..begin + emission.length as usize, 0);
                Ok((emission.length, emission.version))
            }
            WalkStep::End(status) => Err(status),
        };
        self.walk_ended(index, request_id, &walk, found)
    }

    fn walk_on(
        &self,
        now: Time,
        endpoint: &impl Endpoint,
        index: usize,
        walk: &mut Walk,
        buffer: &mut [u8],
    ) -> WalkStep {
        let Some(bytes) = buffer.get_mut(..walk.last_read() as usize) else {
            return WalkStep::End(Status::Truncated);
        };
        match endpoint.copy_out(self.slot_offset(index), bytes) {
            Ok(()) => walk.read_done(now, bytes),
            Err(_) => WalkStep::End(Status::OutOfBounds),
        }
    }

    /// Ends the lookup if its READ cannot be posted. A READ larger than a slot has a status of its own. Any
    /// other refusal means that the connection has ended, since the READ before it has just freed its place
    /// in the queue.
    const fn read_refused(&mut self, error: PostError) -> Status {
        match error {
            PostError::BadRequest => Status::Truncated,
            PostError::Full | PostError::Broken => {
                self.broken = true;
                Status::DmaFault
            }
        }
    }

    fn walk_ended(
        &mut self,
        index: usize,
        request_id: u64,
        walk: &Walk,
        found: Result<(u32, u64), Status>,
    ) -> Option<LookupResult> {
        self.slots.add_credits(1);
        if !self.slots.settle_request(index, request_id) {
            return None;
        }
        let (length, version) = found.unwrap_or_default();
        Some(LookupResult {
            request_id,
            ended: found.map_or_else(Ended::Status, |_| Ended::Found),
            length,
            version,
            hops: walk.budget().hops(),
            round_trips: walk.budget().hops(),
            retries: walk.budget().retries(),
        })
    }
}
