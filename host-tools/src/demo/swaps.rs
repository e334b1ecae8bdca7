//! The operator at work: deploys the lookup program over the wire, and replaces it while it answers.

use super::dpu_wiring::PROGRAM;
use super::hosts::Operator;
use crate::program_object::load;
use anyhow::{Context as _, anyhow};
use bareverbs::offload::client::deployer::{DeployFailure, DeployerEvent};
use bareverbs::offload::program::control::ControlOutcome;
use bareverbs::prm::time::Time;

/// `offload/programs/kv_lookup.c`, as clang compiled it.
static LOOKUP: &[u8] = include_bytes!("../../../offload/programs/kv_lookup.o");
/// The instruction `exit`.
const EXIT: [u8; 8] = [0x95, 0, 0, 0, 0, 0, 0, 0];

/// The remaining deployments.
pub(super) struct Swaps {
    /// Programs that do the same and have different digests: the second has one more instruction, which is
    /// never reached.
    programs: [Vec<u8>; 2],
    wanted: u64,
    done: u64,
    under_way: bool,
}

impl Swaps {
    /// Nothing to deploy yet.
    pub(super) fn new() -> anyhow::Result<Self> {
        let lookup = load(LOOKUP, None).context("reading the lookup program")?;
        let longer = [&lookup[..], &EXIT].concat();
        Ok(Self { programs: [lookup, longer], wanted: 0, done: 0, under_way: false })
    }

    /// Whether a deployment is in progress.
    pub(super) const fn under_way(&self) -> bool {
        self.under_way
    }

    /// Adds this many replacements.
    pub(super) const fn want(&mut self, times: u64) {
        self.wanted += times;
    }

    /// How many replacements remain.
    pub(super) const fn left(&self) -> u64 {
        self.wanted - self.done
    }

    /// Starts the next deployment, and takes note of completed ones.
    pub(super) fn go_on(&mut self, now: Time, operator: &mut Operator) -> anyhow::Result<()> {
        let Operator { deployer, endpoint } = operator;
        if !self.under_way && self.left() > 0 {
            let program = &self.programs[(self.done % 2) as usize];
            deployer.deploy(now, endpoint, PROGRAM, program).context("deploying a program")?;
            self.under_way = true;
        }
        match deployer.poll(now, endpoint) {
            Some(DeployerEvent::Deployed { .. }) => (self.done, self.under_way) = (self.done + 1, false),
            // Requests of old versions occupy all places; they will end.
            Some(DeployerEvent::Failed(DeployFailure::Refused(ControlOutcome::Full { .. }))) => {
                self.under_way = false;
            }
            Some(DeployerEvent::Failed(failure)) => {
                return Err(anyhow!(failure)).context("deploying a program");
            }
            Some(other) => return Err(anyhow!("nobody asked for {other:?}")),
            None => {}
        }
        Ok(())
    }
}
