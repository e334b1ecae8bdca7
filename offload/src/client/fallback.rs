//! Kernels first, and a core of the server when the kernel is missing or has no slot for the request.
//!
//! Only a request that was refused before it began is redirected, so nothing is ever done twice. A request whose answer
//! was lost may have been carried out; it ends as it does without a fallback.

use super::config::{Ended, LookupResult, StartError};
use super::kernel_client::{Call, CallResult, KernelClient, MAX_CALL};
use super::slots::NoSlot;
use crate::endpoint::{Endpoint, PostError};
use crate::kernel::Opcode;
use crate::status::Status;
use crate::wire::RegionHandle;
use bareverbs_prm::time::{Duration, Time};

/// Why a request was redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FallbackCause {
    /// The kernel does not exist, or its place is shutting down.
    Missing,
    /// The kernel had no slot for the request.
    Busy,
    /// The connection to the kernel's place is broken.
    Unreachable,
}

/// Numbers of redirected requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FallbackCounters {
    /// Because the kernel was missing.
    pub missing: u64,
    /// Because it was busy.
    pub busy: u64,
    /// Because its place was unreachable.
    pub unreachable: u64,
    /// Without asking the kernel, because it was missing a moment ago.
    pub not_asked: u64,
}

/// What answers instead of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FallbackTarget {
    /// The equivalent kernel there.
    pub opcode: Opcode,
    /// The same memory, as granted there.
    pub region: RegionHandle,
}

/// The endpoints of the kernels and of their fallback.
pub struct Places<'e, K, I> {
    /// Endpoint of the kernels.
    pub kernels: &'e mut K,
    /// Endpoint of the fallback.
    pub instead: &'e mut I,
}

/// A call that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FallbackResult {
    /// The answer, under the id that [`FallbackClient::start`] returned.
    pub result: CallResult,
    /// Why the fallback gave it; `None` if the kernel did.
    pub fell_back: Option<FallbackCause>,
}

impl From<FallbackResult> for LookupResult {
    fn from(ended: FallbackResult) -> Self {
        let asked_twice = matches!(ended.fell_back, Some(FallbackCause::Busy | FallbackCause::Missing));
        let lookup = Self::from(ended.result);
        Self { round_trips: lookup.round_trips + u16::from(asked_twice), ..lookup }
    }
}

/// The stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallStage {
    /// With the kernel, under this id.
    Kernel(u64),
    /// Not yet sent to the fallback.
    Waiting(FallbackCause),
    /// With the fallback, under this id.
    FallenBack(u64, FallbackCause),
}

/// A request, kept until it is answered.
#[derive(Debug, Clone)]
struct KeptCall {
    id: u64,
    stage: CallStage,
    until: Time,
    opcode: Opcode,
    instead: FallbackTarget,
    bytes: [u8; MAX_CALL],
    parameters: u16,
    payload: u16,
}

impl KeptCall {
    fn call(&self) -> Call<'_> {
        let (parameters, rest) = self.bytes.split_at(self.parameters.into());
        let FallbackTarget { opcode, region } = self.instead;
        Call { opcode, region, parameters, payload: &rest[..self.payload.into()] }
    }
}

/// A client with two places to ask, and at most `N` calls at a time.
///
/// Both clients have their own connections and slots. Lookups are calls of the lookup kernel: `table.lookup(key)` gives
/// its parameters, and a [`FallbackResult`] converts to a [`LookupResult`].
///
/// ```
/// use bareverbs_offload::client::fallback::{FallbackClient, FallbackTarget, Places};
/// use bareverbs_offload::client::{Call, KernelClient, StartError};
/// use bareverbs_offload::endpoint::Endpoint;
/// use bareverbs_prm::time::{Duration, Time};
///
/// /// Calls a kernel of a DPU; `instead` says which kernel of the server's own core answers if that one cannot.
/// fn ask(
///     [dpu, core]: [KernelClient<4>; 2],
///     places: Places<'_, impl Endpoint, impl Endpoint>,
///     call: &Call<'_>,
///     instead: FallbackTarget,
/// ) -> Result<FallbackClient<4>, StartError> {
///     let (timeout, rest) = (Duration::from_millis(20), Duration::from_millis(100));
///     let mut client = FallbackClient::new(dpu, core, timeout, rest);
///     client.start(Time::ZERO, places, call, instead)?;
///     Ok(client) // `FallbackClient::poll` gives the answer, and says if it was not the kernel's.
/// }
/// ```
#[derive(Debug)]
pub struct FallbackClient<const N: usize> {
    kernels: KernelClient<N>,
    instead: KernelClient<N>,
    pending: [Option<KeptCall>; N],
    next_id: u64,
    timeout: Duration,
    /// For how long a missing kernel is left alone.
    rest: Duration,
    missing: Option<(Opcode, Time)>,
    counters: FallbackCounters,
}

impl<const N: usize> FallbackClient<N> {
    /// A client that has started nothing. A request ends after `timeout`, wherever it is then; a missing kernel is
    /// asked again after `rest`.
    pub const fn new(
        kernels: KernelClient<N>,
        instead: KernelClient<N>,
        timeout: Duration,
        rest: Duration,
    ) -> Self {
        Self {
            kernels,
            instead,
            pending: [const { None }; N],
            next_id: 1,
            timeout,
            rest,
            missing: None,
            counters: FallbackCounters { missing: 0, busy: 0, unreachable: 0, not_asked: 0 },
        }
    }

    /// The counters so far.
    pub const fn counters(&self) -> FallbackCounters {
        self.counters
    }

    /// Bytes that the buffer given to [`FallbackClient::poll`] must have.
    pub fn buffer_size(&self) -> usize {
        self.kernels.buffer_size().max(self.instead.buffer_size())
    }

    /// Starts a call and returns its id.
    ///
    /// # Errors
    /// There is no slot or no credit, or parameters and payload are too long.
    pub fn start(
        &mut self,
        now: Time,
        places: Places<'_, impl Endpoint, impl Endpoint>,
        call: &Call<'_>,
        instead: FallbackTarget,
    ) -> Result<u64, StartError> {
        let full = StartError::NoSlot(NoSlot::AllLent { slots: N, kept_back: 0 });
        let index = self.pending.iter().position(Option::is_none).ok_or(full)?;
        let stage = self.first_stage(now, places.kernels, call)?;
        let mut pending = KeptCall {
            id: self.next_id,
            stage,
            until: now + self.timeout,
            opcode: call.opcode,
            instead,
            bytes: [0; MAX_CALL],
            parameters: call.parameters.len() as u16,
            payload: call.payload.len() as u16,
        };
        let end = call.parameters.len() + call.payload.len();
        let bytes = pending.bytes.get_mut(..end).ok_or(StartError::Refused(Status::BadParameters))?;
        bytes[..call.parameters.len()].copy_from_slice(call.parameters);
        bytes[call.parameters.len()..].copy_from_slice(call.payload);
        self.next_id += 1;
        let id = pending.id;
        self.pending[index] = Some(pending);
        if let Some(refused) = self.ask_instead(now, index, places.instead) {
            self.pending[index] = None;
            return Err(refused);
        }
        Ok(id)
    }

    /// Sends the request to the kernel, unless the kernel is known to be missing.
    fn first_stage(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        call: &Call<'_>,
    ) -> Result<CallStage, StartError> {
        if call.parameters.len() + call.payload.len() > MAX_CALL {
            return Err(StartError::Refused(Status::BadParameters));
        }
        if self.missing.is_some_and(|(opcode, until)| opcode == call.opcode && now < until) {
            self.counters.not_asked += 1;
            return Ok(CallStage::Waiting(FallbackCause::Missing));
        }
        match self.kernels.start(now, endpoint, call) {
            Ok(id) => Ok(CallStage::Kernel(id)),
            Err(StartError::Post(PostError::Broken)) => {
                self.counters.unreachable += 1;
                Ok(CallStage::Waiting(FallbackCause::Unreachable))
            }
            Err(error) => Err(error),
        }
    }

    /// The next call that has ended, if any. Its answer is copied to `buffer`, which has
    /// [`FallbackClient::buffer_size`] bytes.
    pub fn poll(
        &mut self,
        now: Time,
        places: Places<'_, impl Endpoint, impl Endpoint>,
        buffer: &mut [u8],
    ) -> Option<FallbackResult> {
        while let Some(result) = self.kernels.poll(now, places.kernels, buffer) {
            let Some(index) = self.at(CallStage::Kernel(result.request_id)) else { continue };
            match cause_of(&result) {
                Some(cause) => self.fall_back(now, index, cause),
                None => return self.ended(index, result, None),
            }
        }
        if let Some(ended) = self.ask_all_instead(now, places.instead) {
            return Some(ended);
        }
        while let Some(result) = self.instead.poll(now, places.instead, buffer) {
            let asked = |pending: &KeptCall| match pending.stage {
                CallStage::FallenBack(id, cause) if id == result.request_id => Some(cause),
                _ => None,
            };
            let found = self
                .pending
                .iter()
                .enumerate()
                .find_map(|(index, pending)| Some((index, asked(pending.as_ref()?)?)));
            if let Some((index, cause)) = found {
                return self.ended(index, result, Some(cause));
            }
        }
        None
    }

    /// When to poll again if nothing arrives before.
    pub fn poll_timeout(&self) -> Option<Time> {
        let waiting =
            self.pending.iter().flatten().filter(|pending| matches!(pending.stage, CallStage::Waiting(_)));
        let waiting = waiting.map(|pending| pending.until).min();
        [self.kernels.poll_timeout(), self.instead.poll_timeout(), waiting].into_iter().flatten().min()
    }

    fn at(&self, stage: CallStage) -> Option<usize> {
        self.pending.iter().position(|pending| pending.as_ref().is_some_and(|pending| pending.stage == stage))
    }

    fn waits(&self, index: usize) -> bool {
        matches!(self.pending[index], Some(KeptCall { stage: CallStage::Waiting(_), .. }))
    }

    fn fall_back(&mut self, now: Time, index: usize, cause: FallbackCause) {
        let Some(pending) = &mut self.pending[index] else { return };
        pending.stage = CallStage::Waiting(cause);
        match cause {
            FallbackCause::Missing => {
                self.counters.missing += 1;
                self.missing = Some((pending.opcode, now + self.rest));
            }
            FallbackCause::Busy => self.counters.busy += 1,
            FallbackCause::Unreachable => self.counters.unreachable += 1,
        }
    }

    /// Sends waiting requests to the fallback. A request that the fallback refuses has ended.
    fn ask_all_instead(&mut self, now: Time, endpoint: &mut impl Endpoint) -> Option<FallbackResult> {
        for index in 0..N {
            let Some(KeptCall { stage: CallStage::Waiting(cause), until, .. }) = self.pending[index] else {
                continue;
            };
            let refused = self.ask_instead(now, index, endpoint);
            let unanswered = match refused {
                Some(StartError::Refused(status)) => Ended::Status(status),
                Some(_) => Ended::Disconnected,
                None if until <= now && self.waits(index) => Ended::TimedOut,
                None => continue,
            };
            return self.ended(index, CallResult::without_response(0, unanswered), Some(cause));
        }
        None
    }

    /// Sends a request to the fallback if it has a slot now; returns why the fallback refuses it for good.
    fn ask_instead(&mut self, now: Time, index: usize, endpoint: &mut impl Endpoint) -> Option<StartError> {
        let pending = self.pending[index].as_mut()?;
        let CallStage::Waiting(cause) = pending.stage else { return None };
        match self.instead.start(now, endpoint, &pending.call()) {
            Ok(id) => {
                pending.stage = CallStage::FallenBack(id, cause);
                None
            }
            // A slot, a credit or room in the queue will come back.
            Err(StartError::NoSlot(_) | StartError::Post(PostError::Full)) => None,
            Err(error) => Some(error),
        }
    }

    fn ended(
        &mut self,
        index: usize,
        result: CallResult,
        fell_back: Option<FallbackCause>,
    ) -> Option<FallbackResult> {
        let request_id = self.pending[index].take()?.id;
        Some(FallbackResult { result: CallResult { request_id, ..result }, fell_back })
    }
}

/// Why a result counts as no answer: the kernel did not begin.
fn cause_of(result: &CallResult) -> Option<FallbackCause> {
    match result.ended {
        Ended::Status(Status::NoKernel | Status::ShuttingDown) => Some(FallbackCause::Missing),
        // A kernel that gave up because of what it read would read the same elsewhere.
        Ended::Status(Status::Busy) if result.hops == 0 => Some(FallbackCause::Busy),
        _ => None,
    }
}
