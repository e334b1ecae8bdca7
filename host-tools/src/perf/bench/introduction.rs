//! The first datagram of a queue pair under RDMA CM, as with perftest: the answer of the passive end names
//! its queue pair, and if that end is to send too, the active end names its own as immediate data.

use super::{Bench, INTRODUCTION};
use crate::rdma_cm::DatagramAgreement;
use anyhow::{Context as _, Result, bail, ensure};
use bareverbs_core::address_handle::ROUTE_HEADER;
use bareverbs_core::hal::Hal;
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::time::{Duration, Time};

/// Longest sleep during a wait.
const REST: Duration = Duration::from_micros(200);

impl<H: Hal> Bench<'_, H> {
    /// Sets the destination of a queue pair's datagrams.
    pub(crate) fn connect_datagrams(&mut self, lane: usize, agreement: &DatagramAgreement) -> Result<()> {
        let DatagramAgreement { remote, options, q_key } = agreement;
        let lane = self.lanes.get_mut(lane).context("a queue pair")?;
        lane.connect(self.device, remote, *options, *q_key)
    }

    fn introduction_at(&self) -> usize {
        2 * self.lanes.len() * self.room + ROUTE_HEADER
    }

    /// Sends the number of a queue pair to the peer, and waits until that has left.
    pub(crate) fn introduce(&mut self, lane: usize, deadline: Time) -> Result<()> {
        let (at, number) = (self.introduction_at(), self.own.get(lane).context("a queue pair")?.qpn.value());
        self.memory.copy_in(at, &number.to_ne_bytes())?;
        let slices = [self.memory.slice(at, INTRODUCTION)?];
        let request = WorkRequest::send(lane as u64, &slices).immediate(number);
        self.lanes.get_mut(lane).context("a queue pair")?.post_datagram(&request)?;
        let hal = self.device.hal();
        while !self.take_sends(|_, _, _| Ok(()))? {
            ensure!(hal.now() < deadline, "the datagram that introduces queue pair {number:#x} was not sent");
            hal.relax(hal.now() + REST);
        }
        Ok(())
    }

    /// Lets a queue pair receive the introduction of its peer.
    pub(crate) fn expect_introduction(&mut self, lane: usize) -> Result<()> {
        let headers = self.introduction_at() - ROUTE_HEADER;
        let slices = [self.memory.slice(headers, ROUTE_HEADER + INTRODUCTION)?];
        let lane = self.lanes.get_mut(lane).context("a queue pair")?;
        lane.post_receive(&ReceiveRequest::new(0, &slices))
    }

    /// Waits for the introduction; returns the queue pair of the peer.
    pub(crate) fn wait_for_introduction(
        &mut self,
        deadline: Time,
        mut meanwhile: impl FnMut() -> Result<()>,
    ) -> Result<Qpn> {
        let mut completion = [WorkCompletion::EMPTY];
        let hal = self.device.hal();
        while self.receives.poll(&mut completion)? == 0 {
            // The peer may have lost our answer.
            meanwhile()?;
            ensure!(
                hal.now() < deadline,
                "the peer has asked for our queue pair and did not name its own; the output of the peer says why"
            );
            hal.relax(hal.now() + REST);
        }
        let [completion] = completion;
        match completion.immediate {
            Some(number) if completion.is_success() => Ok(Qpn::from_low_bits(number)),
            _ => bail!(
                "the first datagram of the peer names no queue pair ({}): the peer is not perftest with -R",
                completion.status
            ),
        }
    }
}
