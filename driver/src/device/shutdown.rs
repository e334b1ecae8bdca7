//! Shuts the device down: the steps of [`boot`](super::boot) in reverse.

use super::control::{Control, DestroyCommand, PrivateControl};
use super::error::CloseCause;
use super::requests::{command_header, set_roce};
use crate::boot_step::BootStep;
use crate::command::{CommandError, Request};
use crate::hal::Hal;
use crate::trace::TraceEvent;
use bareverbs_prm::numbering::CommandOpcode;

/// Shuts the device down and frees the memory that it no longer uses.
pub(super) fn release<H: Hal>(hal: &H, mut control: PrivateControl<H>) -> Result<(), CloseCause> {
    let result = take_down(hal, &mut control);
    let held = control.pages.held();
    control.pages.leak();
    if result.is_err() {
        // The device may still fetch commands or write events: none of this memory may be reused.
        core::mem::forget(control);
        return result;
    }
    match held {
        0 => Ok(()),
        held => Err(CloseCause::PagesKept { held }),
    }
}

/// Undoes every step that was done. Continues after a failed step, and reports the first failure.
fn take_down<H: Hal>(hal: &H, control: &mut Control<H>) -> Result<(), CloseCause> {
    let mut shutdown = Shutdown { hal, control, result: Ok(()) };
    shutdown.control.retry_pending(hal);
    shutdown.disable_roce();
    shutdown.destroy_event_queue();
    shutdown.deallocate_uar();
    let device_forgot = shutdown.tear_down();
    shutdown.control.settle_pending(device_forgot);
    shutdown.disable();
    match shutdown.control.commands.is_idle() {
        true => shutdown.result,
        false => shutdown.result.and(Err(CloseCause::CommandsUnderWay)),
    }
}

struct Shutdown<'a, H: Hal> {
    hal: &'a H,
    control: &'a mut Control<H>,
    /// The first failure.
    result: Result<(), CloseCause>,
}

impl<H: Hal> Shutdown<'_, H> {
    fn disable_roce(&mut self) {
        if core::mem::take(&mut self.control.progress.roce) {
            self.begin(BootStep::EnableRoce);
            let outcome = self.control.run(self.hal, &Request::new(&set_roce(false)));
            self.note(BootStep::EnableRoce, outcome);
        }
    }

    fn destroy_event_queue(&mut self) {
        self.control.serve(self.hal);
        let Some(queue) = self.control.events.take() else { return };
        self.begin(BootStep::CreateEventQueue);
        let command = DestroyCommand::new(CommandOpcode::DestroyEq, queue.eqn.value());
        let outcome = self.control.destroy_now(self.hal, command);
        if outcome.is_err() {
            // The device may still write events.
            core::mem::forget(queue);
        }
        self.note(BootStep::CreateEventQueue, outcome);
    }

    fn deallocate_uar(&mut self) {
        let Some(uar) = self.control.progress.uar.take() else { return };
        self.begin(BootStep::AllocateUar);
        let command = DestroyCommand::new(CommandOpcode::DeallocUar, uar.value());
        let outcome = self.control.destroy_now(self.hal, command);
        self.note(BootStep::AllocateUar, outcome);
    }

    /// TEARDOWN_HCA. Returns whether the device has forgotten all objects.
    fn tear_down(&mut self) -> bool {
        if !core::mem::take(&mut self.control.progress.initialised) {
            return true;
        }
        self.begin(BootStep::InitHca);
        let outcome =
            self.control.run(self.hal, &Request::new(&command_header(CommandOpcode::TeardownHca, 0)));
        self.note(BootStep::InitHca, outcome);
        outcome.is_ok()
    }

    /// Reclaims the pages, then sends DISABLE_HCA.
    fn disable(&mut self) {
        if !core::mem::take(&mut self.control.progress.enabled) {
            return;
        }
        self.begin(BootStep::BootPages);
        let reclaimed = self.control.reclaim_pages(self.hal);
        self.begin(BootStep::EnableHca);
        let outcome =
            self.control.run(self.hal, &Request::new(&command_header(CommandOpcode::DisableHca, 0)));
        self.note(BootStep::EnableHca, outcome);
        self.result = self.result.and(reclaimed.map_err(CloseCause::Pages));
    }

    fn begin(&self, step: BootStep) {
        self.control.observe(TraceEvent::Step { step, undo: true });
    }

    fn note(&mut self, step: BootStep, outcome: Result<(), CommandError>) {
        self.result = self.result.and(outcome.map_err(|error| CloseCause::Command { step, error }));
    }
}
