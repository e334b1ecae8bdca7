//! The blocking shell: submit, look, relax, until the answer or the deadline.

use super::Message;
use super::entry::Request;
use super::error::{CommandError, CommandFailure, HealthReport};
use super::queue::{CommandQueue, Lane, Ticket};
use crate::hal::Hal;
use crate::trace::{Observer, TraceEvent};
use bareverbs_prm::time::Duration;

/// How long to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// For the answer to a command.
    pub timeout: Duration,
    /// Between two looks, if the place does not wake us earlier.
    pub interval: Duration,
}

/// Everything that a blocking command needs.
pub struct Shell<'a, H: Hal> {
    /// The place.
    pub hal: &'a H,
    /// The queue.
    pub queue: &'a mut CommandQueue<H::Dma>,
    /// How long to wait.
    pub patience: Patience,
    /// Who wants to know.
    pub observer: Option<&'static dyn Observer>,
}

impl<H: Hal> Shell<'_, H> {
    /// Executes `request` and reads the answer into `output`, of `output_length` bytes at the device. Calls `meanwhile`
    /// each time before it relaxes: the device may want something before it answers, pages above all.
    pub fn execute(
        &mut self,
        request: &Request<'_>,
        (output, output_length): (&mut [u8], usize),
        lane: Lane,
        mut meanwhile: impl FnMut(&mut Self),
    ) -> Result<(), CommandError> {
        let ticket = self.queue.submit(self.hal, request, output_length, lane)?;
        let (opcode, slot) = (request.opcode(), ticket.slot());
        self.observe(TraceEvent::CommandSubmitted { opcode, op_mod: request.op_mod(), slot });
        let result = self.wait(ticket, output, &mut meanwhile);
        self.observe(TraceEvent::CommandFinished { opcode, slot, failure: result.err() });
        result.map_err(|failure| request.error(failure))
    }

    /// Executes a command whose input and output are fixed, and returns the output.
    pub fn call<O: Message>(
        &mut self,
        request: &Request<'_>,
        meanwhile: impl FnMut(&mut Self),
    ) -> Result<O, CommandError> {
        let mut output = O::new_zeroed();
        let length = size_of::<O>();
        self.execute(request, (output.as_mut_bytes(), length), Lane::Regular, meanwhile)?;
        Ok(output)
    }

    fn wait(
        &mut self,
        ticket: Ticket,
        output: &mut [u8],
        meanwhile: &mut impl FnMut(&mut Self),
    ) -> Result<(), CommandFailure> {
        let start = self.hal.now();
        let deadline = start + self.patience.timeout;
        while !self.queue.poll(self.hal, ticket, output)? {
            meanwhile(self);
            let now = self.hal.now();
            if now >= deadline {
                self.queue.abandon(ticket);
                let health = HealthReport::read(self.hal);
                return Err(CommandFailure::TimedOut { waited: now.since(start), health });
            }
            self.hal.relax(deadline.min(now + self.patience.interval));
        }
        Ok(())
    }

    fn observe(&self, event: TraceEvent) {
        if let Some(observer) = self.observer {
            observer.observe(&event);
        }
    }
}
