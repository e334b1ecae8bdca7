//! The operator's side: deploys, lists and removes programs on a DPU while other clients use it.
//!
//! A [`Deployer`] has its own connection, which the owner of the DPU allows to deploy
//! ([`Runtime::allow_deployment`](crate::runtime::Runtime::allow_deployment)). It does one thing at a time and never
//! blocks: [`Deployer::deploy`], [`Deployer::remove`] or [`Deployer::list`] starts an operation and [`Deployer::poll`]
//! returns its result. [`control`] defines the wire format.

use super::slots::{NoSlot, SlotLayout, Slots};
use crate::endpoint::{Endpoint, MAX_SEND, Outcome, Part, PostError, Work};
use crate::kernel::Opcode;
use crate::program::Deployed;
use crate::program::control::{
    self, ControlOutcome, LISTED, MAX_BYTES, MAX_RESPONSE, PUT_HEADER, encode_put, encode_set, parse_list,
};
use crate::status::Status;
use crate::wire::{HEADER_SIZE, Immediate, RegionHandle, Request, TRAILER_SIZE, Trailer, slot_size};
use bareverbs_prm::time::{Duration, Time};
use core::fmt;
use sha2::{Digest, Sha256};

/// Bytes of a piece of a program.
const PIECE: usize = MAX_SEND - HEADER_SIZE - PUT_HEADER;
/// How often an operation starts again after another deployer or a busy server interfered.
const ATTEMPTS: u8 = 32;

/// Configuration of a deployer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeployerConfig {
    /// Address of the endpoint's memory, as the server knows it. The memory has at least [`DeployerConfig::MEMORY`]
    /// bytes.
    pub address: u64,
    /// The remote key of that memory.
    pub rkey: u32,
    /// Requests that the server accepts before its first reply.
    pub credits: u32,
    /// How long to wait for each answer. A deployment takes one answer per 444 bytes, and one more.
    pub timeout: Duration,
}

impl DeployerConfig {
    /// Bytes of memory that answers need.
    pub const MEMORY: usize = slot_size(MAX_RESPONSE as u32) as usize;
}

/// Results of a deployer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeployerEvent {
    /// The program is active. Requests that began earlier keep the version that they began with.
    Deployed {
        /// Its version.
        version: u64,
    },
    /// No new request starts it.
    Removed {
        /// The removed version.
        version: u64,
    },
    /// One listed version; more may follow.
    Listed(Deployed),
    /// The list is complete.
    ListEnd,
    /// The operation failed.
    Failed(DeployFailure),
}

/// Why an operation could not be started or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeployFailure {
    /// Another operation is under way.
    UnderWay,
    /// The program is empty or too long to be transferred.
    Length {
        /// Its length in bytes.
        bytes: usize,
    },
    /// An abandoned answer may still arrive, or the server granted no credit.
    NoSlot(NoSlot),
    /// A request could not be posted.
    Post(PostError),
    /// The server refused: because of the program, the store, or a concurrent deployer.
    Refused(ControlOutcome),
    /// The server did not process the request: [`Status::NotAllowed`] if the connection may not deploy.
    Status(Status),
    /// The answer cannot be decoded.
    Unintelligible,
    /// No answer came in time. The operation may have succeeded: list what is deployed.
    TimedOut,
    /// The connection broke. The operation may have succeeded: reconnect and list what is deployed.
    Disconnected,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Idle,
    /// Sends the piece after the first `brought` bytes.
    Put {
        brought: usize,
    },
    Set,
    Remove,
    /// Asks for versions from `first` on.
    List {
        first: u64,
    },
}

/// Deploys, lists and removes programs over connection 0 of its endpoint.
///
/// ```
/// use bareverbs_offload::client::deployer::{DeployFailure, Deployer, DeployerConfig};
/// use bareverbs_offload::endpoint::Endpoint;
/// use bareverbs_offload::kernel::Opcode;
/// use bareverbs_prm::time::{Duration, Time};
///
/// /// Begins to deploy a program; `Deployer::poll` tells how it went. The memory of the endpoint is at `address`.
/// fn deploy(
///     endpoint: &mut impl Endpoint,
///     address: u64,
///     rkey: u32,
///     program: &[u8],
/// ) -> Result<Deployer, DeployFailure> {
///     let config = DeployerConfig { address, rkey, credits: 1, timeout: Duration::from_millis(10) };
///     let mut deployer = Deployer::new(config);
///     deployer.deploy(Time::ZERO, endpoint, Opcode(0x11), program)?;
///     Ok(deployer)
/// }
/// ```
#[derive(Debug)]
pub struct Deployer {
    timeout: Duration,
    slots: Slots<1>,
    stage: Stage,
    attempts: u8,
    opcode: Opcode,
    program: [u8; MAX_BYTES],
    length: usize,
    digest: [u8; 32],
    /// Listed versions that were not yet reported.
    page: [Option<Deployed>; LISTED],
    /// Why the next page could not be requested.
    trouble: Option<DeployFailure>,
    receive_posted: bool,
    broken: bool,
}

impl Deployer {
    /// A deployer that has started nothing.
    pub const fn new(config: DeployerConfig) -> Self {
        let DeployerConfig { address, rkey, credits, timeout } = config;
        let layout = SlotLayout {
            address,
            rkey,
            stride: DeployerConfig::MEMORY as u64,
            max_response: MAX_RESPONSE as u32,
        };
        Self {
            timeout,
            slots: Slots::new(layout, credits),
            stage: Stage::Idle,
            attempts: 0,
            opcode: Opcode(0),
            program: [0; MAX_BYTES],
            length: 0,
            digest: [0; 32],
            page: [None; LISTED],
            trouble: None,
            receive_posted: false,
            broken: false,
        }
    }

    /// Starts deploying a program, given as the bytes of its instructions. It replaces the one that has this op-code
    /// now.
    pub fn deploy(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        opcode: Opcode,
        program: &[u8],
    ) -> Result<(), DeployFailure> {
        let length = DeployFailure::Length { bytes: program.len() };
        self.is_idle()?;
        if program.is_empty() {
            return Err(length);
        }
        self.program.get_mut(..program.len()).ok_or(length)?.copy_from_slice(program);
        (self.length, self.digest) = (program.len(), Sha256::digest(program).into());
        self.begin(now, endpoint, opcode, Stage::Put { brought: 0 })
    }

    /// Starts removing the program that has this op-code.
    pub fn remove(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        opcode: Opcode,
    ) -> Result<(), DeployFailure> {
        self.begin(now, endpoint, opcode, Stage::Remove)
    }

    /// Starts listing all versions that occupy a place.
    pub fn list(&mut self, now: Time, endpoint: &mut impl Endpoint) -> Result<(), DeployFailure> {
        self.begin(now, endpoint, Opcode(0), Stage::List { first: 0 })
    }

    fn is_idle(&self) -> Result<(), DeployFailure> {
        if self.stage == Stage::Idle { Ok(()) } else { Err(DeployFailure::UnderWay) }
    }

    fn begin(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        opcode: Opcode,
        stage: Stage,
    ) -> Result<(), DeployFailure> {
        self.is_idle()?;
        if self.broken {
            return Err(DeployFailure::Disconnected);
        }
        if !self.receive_posted {
            post_receive(endpoint).map_err(DeployFailure::Post)?;
            self.receive_posted = true;
        }
        (self.opcode, self.attempts) = (opcode, ATTEMPTS);
        self.ask(now, endpoint, stage)
    }

    /// Sends the request of a stage and enters that stage.
    fn ask(&mut self, now: Time, endpoint: &mut impl Endpoint, stage: Stage) -> Result<(), DeployFailure> {
        let mut buffer = [0; MAX_SEND - HEADER_SIZE];
        let too_long = DeployFailure::Post(PostError::BadRequest);
        let (opcode, parameters) = self.request(stage, &mut buffer).ok_or(too_long)?;
        let loan = self.slots.lend(now + self.timeout).map_err(DeployFailure::NoSlot)?;
        let request = Request {
            opcode,
            request_id: loan.request_id,
            reply: loan.reply,
            deadline: Duration::ZERO,
            hop_limit: 0,
            region: RegionHandle::default(),
            parameters,
            payload: &[],
        };
        let mut message = [0; MAX_SEND];
        let posted = match request.encode_message(&mut message) {
            Some(bytes) => endpoint.post(0, loan.request_id, Work::Send(bytes)),
            None => Err(PostError::BadRequest),
        };
        if let Err(error) = posted {
            self.slots.cancel(&loan);
            return Err(DeployFailure::Post(error));
        }
        self.stage = stage;
        Ok(())
    }

    /// Op-code and parameters of a stage.
    fn request<'b>(&self, stage: Stage, buffer: &'b mut [u8]) -> Option<(Opcode, &'b [u8])> {
        let (opcode, number) = match stage {
            Stage::Put { brought } => {
                let length = self.length.checked_sub(brought)?.min(PIECE);
                let program = self.program.get(..self.length)?;
                return Some((control::PUT, encode_put(program, brought, length, buffer)?));
            }
            Stage::Set => {
                let parameters = encode_set(self.opcode, self.digest);
                buffer.get_mut(..parameters.len())?.copy_from_slice(&parameters);
                return Some((control::SET, buffer.get(..parameters.len())?));
            }
            Stage::Remove => (control::REMOVE, self.opcode.0),
            Stage::List { first } => (control::LIST, first),
            Stage::Idle => return None,
        };
        let (place, _) = buffer.split_at_mut_checked(size_of::<u64>())?;
        place.copy_from_slice(&number.to_be_bytes());
        Some((opcode, place))
    }

    /// The next event, if any.
    pub fn poll(&mut self, now: Time, endpoint: &mut impl Endpoint) -> Option<DeployerEvent> {
        if let Some(event) = self.tell_listed(now, endpoint) {
            return Some(event);
        }
        if let Some(failure) = self.trouble.take() {
            return Some(self.failed(failure));
        }
        while let Some(completion) = endpoint.poll() {
            match completion.outcome {
                Outcome::Failed => self.broken = true,
                Outcome::Received { immediate: Some(immediate), .. } => {
                    if let Some(event) = self.answered(now, endpoint, immediate) {
                        return Some(event);
                    }
                }
                Outcome::Received { immediate: None, .. } | Outcome::Done => {}
            }
        }
        if self.broken && self.stage != Stage::Idle {
            return Some(self.failed(DeployFailure::Disconnected));
        }
        self.slots.expire(now).map(|_| self.failed(DeployFailure::TimedOut))
    }

    /// When to poll again if nothing arrives before.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.slots.poll_timeout()
    }

    const fn failed(&mut self, failure: DeployFailure) -> DeployerEvent {
        self.stage = Stage::Idle;
        DeployerEvent::Failed(failure)
    }

    const fn done(&mut self, event: DeployerEvent) -> DeployerEvent {
        self.stage = Stage::Idle;
        event
    }

    /// Reports one version of the page; after its last one, requests the next page.
    fn tell_listed(&mut self, now: Time, endpoint: &mut impl Endpoint) -> Option<DeployerEvent> {
        let deployed = self.page.iter_mut().find_map(Option::take)?;
        if self.page.iter().all(Option::is_none) {
            let first = deployed.version.saturating_add(1);
            // A failure is reported after the version, because no answer will come.
            self.trouble = self.ask(now, endpoint, Stage::List { first }).err();
        }
        Some(DeployerEvent::Listed(deployed))
    }

    fn answered(&mut self, now: Time, endpoint: &mut impl Endpoint, immediate: u32) -> Option<DeployerEvent> {
        self.slots.add_credits(Immediate::decode(immediate).credits.into());
        self.broken |= post_receive(endpoint).is_err();
        let mut bytes = [0; MAX_RESPONSE];
        let response = match self.answer(endpoint, &mut bytes)? {
            Ok(response) => response,
            Err(Status::Busy) => {
                return self.again(now, endpoint, self.stage, DeployFailure::Status(Status::Busy));
            }
            Err(status) => return Some(self.failed(DeployFailure::Status(status))),
        };
        match ControlOutcome::parse(response) {
            Some((ControlOutcome::Done, rest)) => self.go_on(now, endpoint, rest),
            Some((outcome @ (ControlOutcome::Gap { .. } | ControlOutcome::Digest { .. }), _))
                if matches!(self.stage, Stage::Put { .. } | Stage::Set) =>
            {
                // Another deployer sent something meanwhile.
                self.again(now, endpoint, Stage::Put { brought: 0 }, DeployFailure::Refused(outcome))
            }
            Some((outcome, _)) => Some(self.failed(DeployFailure::Refused(outcome))),
            None => Some(self.failed(DeployFailure::Unintelligible)),
        }
    }

    /// The bytes of the awaited answer, or the status in place of an answer; `None` if it answers something
    /// else.
    fn answer<'b>(
        &mut self,
        endpoint: &impl Endpoint,
        buffer: &'b mut [u8; MAX_RESPONSE],
    ) -> Option<Result<&'b [u8], Status>> {
        let at = DeployerConfig::MEMORY - TRAILER_SIZE;
        let mut bytes = [0; TRAILER_SIZE];
        endpoint.copy_out(at, &mut bytes).ok()?;
        let trailer = Trailer::parse(&bytes)?;
        if !self.slots.settle(0, &trailer) {
            return None;
        }
        if trailer.status != Status::Ok {
            return Some(Err(trailer.status));
        }
        // A trailer that claims more than fits is invalid.
        let length = trailer.length as usize;
        let Some(place) = buffer.get_mut(..length) else { return Some(Err(Status::Inconsistent)) };
        let copied = endpoint.copy_out(at - length, place);
        Some(copied.map(|()| &*place).map_err(|_| Status::OutOfBounds))
    }

    /// Restarts a stage, unless it was tried too often.
    fn again(
        &mut self,
        now: Time,
        endpoint: &mut impl Endpoint,
        stage: Stage,
        otherwise: DeployFailure,
    ) -> Option<DeployerEvent> {
        match self.attempts.checked_sub(1) {
            Some(left) => {
                self.attempts = left;
                self.next(now, endpoint, stage)
            }
            None => Some(self.failed(otherwise)),
        }
    }

    fn next(&mut self, now: Time, endpoint: &mut impl Endpoint, stage: Stage) -> Option<DeployerEvent> {
        self.ask(now, endpoint, stage).err().map(|failure| self.failed(failure))
    }

    /// Continues after a stage is done; `rest` is the rest of its answer.
    fn go_on(&mut self, now: Time, endpoint: &mut impl Endpoint, rest: &[u8]) -> Option<DeployerEvent> {
        let version = rest.first_chunk().copied().map(u64::from_be_bytes);
        let event = match (self.stage, version) {
            (Stage::Put { brought }, _) => {
                let brought = (brought + PIECE).min(self.length);
                let stage = if brought == self.length { Stage::Set } else { Stage::Put { brought } };
                return self.next(now, endpoint, stage);
            }
            (Stage::List { first }, _) => {
                // A list that goes backwards would never end.
                if parse_list(rest).any(|listed| listed.version < first) {
                    return Some(self.failed(DeployFailure::Unintelligible));
                }
                parse_list(rest).zip(&mut self.page).for_each(|(listed, place)| *place = Some(listed));
                return Some(match self.tell_listed(now, endpoint) {
                    Some(listed) => listed,
                    None => self.done(DeployerEvent::ListEnd),
                });
            }
            (Stage::Set, Some(version)) => DeployerEvent::Deployed { version },
            (Stage::Remove, Some(version)) => DeployerEvent::Removed { version },
            (Stage::Set | Stage::Remove | Stage::Idle, _) => {
                DeployerEvent::Failed(DeployFailure::Unintelligible)
            }
        };
        Some(self.done(event))
    }
}

/// An answer takes a receive.
fn post_receive(endpoint: &mut impl Endpoint) -> Result<(), PostError> {
    endpoint.post_receive(0, u64::MAX, Part { offset: 0, length: 0 })
}

impl fmt::Display for DeployFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnderWay => f.write_str("something else is under way: poll until it ends"),
            Self::Length { bytes } => write!(f, "a program of {bytes} bytes: need 1 to {MAX_BYTES}"),
            Self::NoSlot(error) => error.fmt(f),
            Self::Post(error) => error.fmt(f),
            Self::Refused(outcome) => outcome.fmt(f),
            Self::Status(status) => status.fmt(f),
            Self::Unintelligible => f.write_str("the answer cannot be decoded: the server has another version"),
            Self::TimedOut => {
                f.write_str("no answer in time; the operation may have succeeded: list what is deployed")
            }
            Self::Disconnected => f.write_str(
                "the connection broke; the operation may have succeeded: connect again and list what is deployed",
            ),
        }
    }
}

impl core::error::Error for DeployFailure {}

#[cfg(test)]
mod tests;
