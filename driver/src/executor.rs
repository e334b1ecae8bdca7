//! Blocking commands: submit, poll, relax, until the device answers or the deadline passes.
//!
//! [`CommandQueue`] never waits. The executor does, and only in [`Hal::relax`].

use crate::command::{
    CommandError, CommandFailure, CommandQueue, HealthReport, Lane, Message, Request, Ticket,
};
use crate::hal::Hal;
use crate::trace::{Observer, TraceEvent};
use bareverbs_prm::time::{Duration, Time};

/// How long a command may take, and how often the executor polls for its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandTiming {
    /// Longest wait for the response to a command.
    pub timeout: Duration,
    /// Longest pause between two polls. The HAL may end a pause early.
    pub poll_interval: Duration,
}

/// The destination of a command's output, and its length on the device.
pub struct CommandOutput<'a> {
    /// Receives the first bytes of the output.
    pub buffer: &'a mut [u8],
    /// Bytes of output that the device writes.
    pub length: usize,
}

/// Everything that a blocking command needs.
pub struct CommandExecutor<'a, H: Hal> {
    /// The HAL.
    pub hal: &'a H,
    /// The queue.
    pub queue: &'a mut CommandQueue<H::Dma>,
    /// Deadline and poll interval.
    pub timing: CommandTiming,
    /// Receives trace events.
    pub observer: Option<&'static dyn Observer>,
    /// Deadline of the operation that this command is part of, such as another command that waits for it.
    pub limit: Option<Time>,
}

impl<H: Hal> CommandExecutor<'_, H> {
    /// Executes `request` and copies its output. Calls `meanwhile` before each pause, because the device may need
    /// something before it can answer: pages above all.
    pub fn execute(
        &mut self,
        request: &Request<'_>,
        output: CommandOutput<'_>,
        lane: Lane,
        mut meanwhile: impl FnMut(&mut Self),
    ) -> Result<(), CommandError> {
        let ticket = self.queue.submit(self.hal, request, output.length, lane)?;
        let (opcode, slot) = (request.opcode(), ticket.slot());
        self.observe(TraceEvent::CommandSubmitted { opcode, op_mod: request.op_mod(), slot });
        let result = self.wait(ticket, output.buffer, &mut meanwhile);
        self.observe(TraceEvent::CommandFinished { opcode, slot, failure: result.err() });
        result.map_err(|failure| request.error(failure))
    }

    /// Executes a command whose output has a fixed size, and returns the output.
    pub fn call<O: Message>(
        &mut self,
        request: &Request<'_>,
        meanwhile: impl FnMut(&mut Self),
    ) -> Result<O, CommandError> {
        let mut message = O::new_zeroed();
        let output = CommandOutput { buffer: message.as_mut_bytes(), length: size_of::<O>() };
        self.execute(request, output, Lane::Regular, meanwhile)?;
        Ok(message)
    }

    fn wait(
        &mut self,
        ticket: Ticket,
        output: &mut [u8],
        meanwhile: &mut impl FnMut(&mut Self),
    ) -> Result<(), CommandFailure> {
        let (start, outer) = (self.hal.now(), self.limit);
        let deadline = self.deadline();
        self.limit = Some(deadline);
        let result = loop {
            match self.queue.poll(self.hal, ticket, output) {
                Ok(true) => break Ok(()),
                Ok(false) => meanwhile(self),
                Err(failure) => break Err(failure),
            }
            if let Err(failure) = self.go_on(start, deadline) {
                self.queue.abandon(ticket);
                break Err(failure);
            }
        };
        self.limit = outer;
        result
    }

    /// Deadline for the response to a command that is sent now.
    pub fn deadline(&self) -> Time {
        let own = self.hal.now() + self.timing.timeout;
        self.limit.map_or(own, |limit| limit.min(own))
    }

    /// Pauses while waiting for the response to a command.
    ///
    /// # Errors
    /// The deadline has passed, or the device is gone and cannot respond.
    fn go_on(&mut self, start: Time, deadline: Time) -> Result<(), CommandFailure> {
        self.queue.check_presence(self.hal).map_err(CommandFailure::DeviceLost)?;
        let now = self.hal.now();
        if now >= deadline {
            return Err(CommandFailure::TimedOut {
                waited: now.since(start),
                health: HealthReport::read(self.hal),
            });
        }
        self.hal.relax(deadline.min(now + self.timing.poll_interval));
        Ok(())
    }

    fn observe(&self, event: TraceEvent) {
        if let Some(observer) = self.observer {
            observer.observe(&event);
        }
    }
}
