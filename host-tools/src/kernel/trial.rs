//! One request to a program over memory that nobody else changes, under a DPU's limits.

use anyhow::{Result, anyhow};
use bareverbs_offload::budget::{Budget, Limits, Next};
use bareverbs_offload::grant::{Checked, Grant};
use bareverbs_offload::kernel::{Emission, Event, Status, Step};
use bareverbs_offload::program::{Executable, Fault, Fuel, ProgramInvocation};
use bareverbs_prm::time::Time;

/// A request to the program.
pub struct Request<'a> {
    /// The granted region.
    pub memory: &'a [u8],
    /// Whether the grant is writable; writes go to a copy.
    pub writable: bool,
    pub parameters: &'a [u8],
    pub payload: &'a [u8],
    pub fuel: Fuel,
}

/// One executed step.
#[derive(Debug, PartialEq, Eq)]
pub struct StepTaken {
    /// Fuel that it used.
    pub fuel: u32,
    /// What it asked for, in words.
    pub action: String,
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Response { bytes: Vec<u8>, version: u64 },
    Status { status: Status, fault: Option<Fault> },
}

/// A completed request.
#[derive(Debug, PartialEq, Eq)]
pub struct Trial {
    pub steps: Vec<StepTaken>,
    pub ended: Ended,
    /// The region after the request.
    pub memory: Vec<u8>,
}

struct Walk<'a, E> {
    program: &'a E,
    request: &'a Request<'a>,
    grant: Grant,
    budget: Budget,
    invocation: ProgramInvocation,
    memory: Vec<u8>,
    window: Vec<u8>,
    payload_taken: bool,
}

impl Trial {
    /// Runs the request to its end.
    pub fn run<E: Executable>(program: &E, request: &Request<'_>) -> Result<Self> {
        let grant = Grant::new(0, request.memory.len() as u64)?;
        let grant = if request.writable { grant.writable() } else { grant };
        let started = ProgramInvocation::start(program, request.fuel, request.parameters, &grant);
        let (invocation, mut step) =
            started.map_err(|status| anyhow!("the program does not begin: {status}"))?;
        let budget = Budget::new(Limits::default(), Time::ZERO);
        let memory = request.memory.to_vec();
        let window = Vec::new();
        let mut walk =
            Walk { program, request, grant, budget, invocation, memory, window, payload_taken: false };
        let mut steps = Vec::new();
        let mut used = 0;
        loop {
            let fuel = walk.invocation.fuel_used();
            steps.push(StepTaken { fuel: fuel - used, action: words(step) });
            used = fuel;
            match walk.next(step) {
                Ok(next) => step = next,
                Err(ended) => return Ok(Self { steps, ended, memory: walk.memory }),
            }
        }
    }
}

impl<E: Executable> Walk<'_, E> {
    fn next(&mut self, step: Step) -> Result<Step, Ended> {
        match self.budget.charge(step, Time::ZERO) {
            Next::Read(range) => {
                self.window = self.place(range)?.to_vec();
                Ok(self.invocation.dma_done(self.program, &self.window, &self.grant))
            }
            Next::Payload if self.payload_taken => Err(self.end(Status::BadParameters)),
            Next::Payload => {
                (self.payload_taken, self.window) = (true, self.request.payload.to_vec());
                Ok(self.invocation.payload(self.program, &self.window, &self.grant))
            }
            Next::Emit(part) => Err(self.answer(&self.window, part)),
            Next::Reply(part) => Err(self.answer(self.invocation.state(), part)),
            Next::End(status) => Err(self.end(status)),
            Next::Write { to, from } => self.write(to.range(), from),
            Next::CompareAndSwap { word, expected, desired } => {
                let place = self.place(word.range())?;
                let found = u64::from_be_bytes(std::array::from_fn(|at| place[at]));
                if found == expected {
                    place.copy_from_slice(&desired.to_be_bytes());
                }
                Ok(self.invocation.resumed(self.program, Event::Compared { found }, &self.grant))
            }
            // Programs have no verbs for these.
            Next::ReadEach(_) | Next::AwaitPart => Err(self.end(Status::BadParameters)),
        }
    }

    fn write(&mut self, to: Checked, from: u32) -> Result<Step, Ended> {
        let state = *self.invocation.state();
        let written = state.get(from as usize..).and_then(|rest| rest.get(..to.length() as usize));
        let written = written.ok_or_else(|| self.end(Status::OutOfBounds))?;
        self.place(to)?.copy_from_slice(written);
        Ok(self.invocation.resumed(self.program, Event::Written, &self.grant))
    }

    /// The bytes of a range.
    fn place(&mut self, range: Checked) -> Result<&mut [u8], Ended> {
        let end = self.end(Status::DmaFault);
        let begin = usize::try_from(range.offset()).ok();
        begin.and_then(|begin| self.memory.get_mut(begin..)?.get_mut(..range.length() as usize)).ok_or(end)
    }

    fn answer(&self, bytes: &[u8], part: Emission) -> Ended {
        let Emission { offset, length, version } = part;
        let found = bytes.get(offset as usize..).and_then(|rest| rest.get(..length as usize));
        match found {
            Some(bytes) => Ended::Response { bytes: bytes.to_vec(), version },
            None => self.end(Status::OutOfBounds),
        }
    }

    const fn end(&self, status: Status) -> Ended {
        Ended::Status { status, fault: self.invocation.fault() }
    }
}

fn words(step: Step) -> String {
    match step {
        Step::Fetch(range) => format!("fetch {} bytes at {:#x}", range.length(), range.offset()),
        Step::Refetch { range, otherwise } => {
            format!("fetch {} bytes at {:#x} again, or end: {otherwise}", range.length(), range.offset())
        }
        Step::AwaitPayload => "wait for the payload".to_owned(),
        Step::Emit(part) => format!("answer with {} bytes at {:#x} of the window", part.length, part.offset),
        Step::Reply(part) => format!("answer with {} bytes at {:#x} of the state", part.length, part.offset),
        Step::Done(status) => format!("end: {status}"),
        Step::FetchEach(ranges) => format!("fetch {} ranges at once", ranges.iter().count()),
        Step::AwaitPart => "wait for the next of several ranges".to_owned(),
        Step::Write { to, .. } => {
            format!("write {} bytes at {:#x}", to.range().length(), to.range().offset())
        }
        Step::CompareAndSwap { word, expected, desired } => {
            format!("put {desired:#x} at {:#x} if the word there is {expected:#x}", word.range().offset())
        }
    }
}
