//! `-R`: both ends meet by RDMA CM. The exchange has a connection of its own. Then the queue pairs of the
//! test are connected by RDMA CM too, all at one port, as with perftest: as connections, or as datagram
//! services.

use super::bench::Bench;
use super::plan::{TestPlan, Transport};
use crate::Failure;
use crate::rdma_cm::{Agreement, CmPeer, ConnectionManager, ConnectionParameters, DATAGRAM_Q_KEY, QueueEnd};
use crate::seat::Seat;
use anyhow::{Context as _, Result, bail};
use bareverbs_cm::CommunicationId;
use bareverbs_core::Device;
use bareverbs_core::completion_queue::CompletionQueue;
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{AccessFlags, MemoryRegion};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{QueuePair, QueuePairBuilder, Rc};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_perftest::Role;
use bareverbs_perftest::exchange::Session;
use bareverbs_perftest::line::{Carrier, DestinationForm, WaitHook};
use bareverbs_prm::numbering::PathMtu;
use bareverbs_prm::time::{Duration, Time};
use std::cell::RefCell;

/// Receives of the exchange, and bytes of each: no message is longer than a handshake.
const RECEIVES: u32 = 4;
const SLOT: usize = 256;
/// How long the peer may take to disconnect the queue pairs of the test, and the exchange; its program may
/// already have ended.
const PARTING: Duration = Duration::from_secs(10);
const LAST_PARTING: Duration = Duration::from_millis(500);

/// The roles of both ends.
#[derive(Debug, Clone)]
pub(crate) struct CmMeeting {
    /// Name or address of the peer; `None` if this end listens.
    pub(crate) peer: Option<String>,
    pub(crate) port: u16,
}

/// The RDMA CM connections of a test.
pub(crate) struct CmSide<'d, H: Hal> {
    manager: RefCell<ConnectionManager<'d, H>>,
    /// `None` if this end listens.
    peer: Option<CmPeer>,
    port: u16,
    parameters: ConnectionParameters,
    /// How long to wait for the peer.
    timeout: Duration,
    connections: RefCell<Vec<CommunicationId>>,
}

impl<'d, H: Hal> CmSide<'d, H> {
    pub(crate) fn open(
        device: &'d Device<H>,
        seat: &'d Seat,
        plan: &TestPlan,
        meeting: &CmMeeting,
        path_mtu: PathMtu,
    ) -> Result<Self, Failure> {
        let gid_index = plan.gid_index(seat).map_err(Failure::Input)?;
        let timeout = Duration::from_nanos(u64::try_from(plan.timeout.as_nanos()).unwrap_or(u64::MAX));
        let mut manager = ConnectionManager::open(device, seat, gid_index, timeout)?;
        let peer = meeting.peer.as_ref().map(|peer| manager.peer(peer));
        let peer = peer.transpose().map_err(Failure::Input)?;
        if peer.is_none() {
            manager.listen(meeting.port).map_err(Failure::Input)?;
            if plan.transport == Transport::Ud {
                manager.listen_for_datagrams(meeting.port).map_err(Failure::Input)?;
            }
            eprintln!("waiting for the client at RDMA CM port {}", meeting.port);
        }
        let reads = if plan.operation.fetches() { 1 << plan.outstanding.max(1).ilog2() } else { 0 };
        let parameters = ConnectionParameters {
            path_mtu,
            reads,
            ack_timeout: plan.ack_timeout,
            retry_count: plan.retry_count,
            traffic_class: plan.traffic_class,
        };
        let (manager, connections) = (RefCell::new(manager), RefCell::new(Vec::new()));
        Ok(Self { manager, peer, port: meeting.port, parameters, timeout, connections })
    }

    pub(crate) fn role(&self) -> Role {
        if self.peer.is_some() { Role::Client } else { Role::Server }
    }

    /// Meets the peer: the exchange begins over its own connection.
    pub(crate) fn meet<'m>(
        &'m self,
        device: &'d Device<H>,
        mtu: u32,
        timeout: std::time::Duration,
        meanwhile: &mut WaitHook<'_>,
    ) -> Result<Session<'m>> {
        let mut control = ControlLine::prepare(device, &self.manager, timeout)?;
        let parameters = ConnectionParameters { reads: 0, ..self.parameters };
        let own = control.own_end()?;
        control.id = Some(self.connect_one(own, &parameters, |agreement| control.connect(agreement))?);
        Session::over(Box::new(control), self.role(), mtu, meanwhile)
    }

    /// Connects the queue pairs of the test, in order, with the path MTU that both ends support.
    pub(crate) fn connect_all(
        &self,
        bench: &mut Bench<'d, H>,
        plan: &TestPlan,
        path_mtu: PathMtu,
    ) -> Result<()> {
        let parameters = ConnectionParameters { path_mtu, ..self.parameters };
        if plan.transport == Transport::Ud {
            return self.bring_together(bench, plan, &parameters);
        }
        for lane in 0..bench.count() {
            let own = bench.own.get(lane).context("a queue pair")?;
            let own = QueueEnd { qpn: own.qpn, psn: own.psn };
            let id = self.connect_one(own, &parameters, |agreement| {
                bench.connect_lane(lane, &agreement.remote, agreement.options)
            })?;
            self.connections.borrow_mut().push(id);
        }
        Ok(())
    }

    /// Datagrams: the client learns the server's queue pair and Q_Key. If the server is to send too, a first
    /// datagram tells it the client's queue pair.
    fn bring_together(
        &self,
        bench: &mut Bench<'d, H>,
        plan: &TestPlan,
        parameters: &ConnectionParameters,
    ) -> Result<()> {
        let mut manager = self.manager.borrow_mut();
        let (hal, server_sends) = (bench.device.hal(), plan.sends(false));
        for lane in 0..bench.count() {
            let own = bench.own.get(lane).context("a queue pair")?.qpn;
            let deadline = || hal.now() + self.timeout;
            if let Some(peer) = &self.peer {
                bench.connect_datagrams(lane, &manager.resolve(peer, self.port, own, parameters)?)?;
                if server_sends {
                    bench.introduce(lane, deadline())?;
                }
                continue;
            }
            if server_sends {
                bench.expect_introduction(lane)?;
            }
            let path = manager.serve(own)?;
            if server_sends {
                let theirs = bench.wait_for_introduction(deadline(), || manager.step())?;
                bench.connect_datagrams(
                    lane,
                    &manager.datagrams_to(path, theirs, DATAGRAM_Q_KEY, parameters)?,
                )?;
            }
        }
        Ok(())
    }

    /// Connects one queue pair: this end either calls or listens.
    fn connect_one(
        &self,
        own: QueueEnd,
        parameters: &ConnectionParameters,
        connect: impl FnOnce(&Agreement) -> Result<()>,
    ) -> Result<CommunicationId> {
        let mut manager = self.manager.borrow_mut();
        let agreement = match &self.peer {
            Some(peer) => manager.call(peer, self.port, own, parameters)?,
            None => manager.wait_for_request(parameters)?,
        };
        connect(&agreement)?;
        match self.peer {
            Some(_) => manager.ready(agreement.id)?,
            None => manager.accept(&agreement, own, parameters)?,
        }
        Ok(agreement.id)
    }

    /// Disconnects the queue pairs from the peer's. Nothing is in flight to them any more.
    pub(crate) fn part(&self) -> Result<()> {
        if !self.manager.borrow_mut().part(&self.connections.borrow(), PARTING)? {
            eprintln!(
                "the peer did not disconnect all queue pairs within {PARTING}; this does not affect the figures"
            );
        }
        Ok(())
    }
}

/// The connection of the exchange. The fields are in the order in which they have to be dropped.
struct ControlLine<'m, 'd, H: Hal> {
    queue_pair: ControlQueuePair<'d, H>,
    sends: CompletionQueue<&'d Device<H>>,
    receives: CompletionQueue<&'d Device<H>>,
    memory: MemoryRegion<&'d Device<H>>,
    #[allow(dead_code, reason = "it lives as long as what is in it")]
    domain: ProtectionDomain<&'d Device<H>>,
    device: &'d Device<H>,
    manager: &'m RefCell<ConnectionManager<'d, H>>,
    /// Set once it is connected.
    id: Option<CommunicationId>,
    limit: Duration,
}

enum ControlQueuePair<'d, H: Hal> {
    Prepared(bareverbs_core::queue_pair::PreparedQueuePair<&'d Device<H>, Rc>),
    Connected(QueuePair<&'d Device<H>, Rc>),
    Broken,
}

impl<'m, 'd, H: Hal> ControlLine<'m, 'd, H> {
    fn prepare(
        device: &'d Device<H>,
        manager: &'m RefCell<ConnectionManager<'d, H>>,
        timeout: std::time::Duration,
    ) -> Result<Self> {
        let domain = ProtectionDomain::allocate(device)?;
        let bytes = (RECEIVES as usize + 1) * SLOT;
        let memory = MemoryRegion::allocate(&domain, bytes, AccessFlags::LOCAL_WRITE)?;
        let sends = CompletionQueue::builder(device).entries(RECEIVES).create()?;
        let receives = CompletionQueue::builder(device).entries(RECEIVES).create()?;
        let builder = QueuePairBuilder::new(&domain, &sends, &receives).send_queue(1).receive_queue(RECEIVES);
        let mut queue_pair = builder.build().context("the queue pair of the exchange")?;
        for slot in 0..RECEIVES as usize {
            let slices = [memory.slice(slot * SLOT, SLOT)?];
            queue_pair.post_receive(&ReceiveRequest::new(slot as u64, &slices))?;
        }
        let limit = Duration::from_nanos(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        let queue_pair = ControlQueuePair::Prepared(queue_pair);
        Ok(Self { queue_pair, sends, receives, memory, domain, device, manager, id: None, limit })
    }

    fn own_end(&self) -> Result<QueueEnd> {
        let ControlQueuePair::Prepared(queue_pair) = &self.queue_pair else {
            bail!("it is connected already")
        };
        let endpoint = queue_pair.endpoint(0)?;
        Ok(QueueEnd { qpn: endpoint.qpn, psn: endpoint.psn })
    }

    fn connect(&mut self, agreement: &Agreement) -> Result<()> {
        let prepared = core::mem::replace(&mut self.queue_pair, ControlQueuePair::Broken);
        let ControlQueuePair::Prepared(prepared) = prepared else { bail!("it is connected already") };
        let connected = prepared.connect(&agreement.remote, agreement.options);
        self.queue_pair = ControlQueuePair::Connected(connected.context("the queue pair of the exchange")?);
        Ok(())
    }

    fn queue_pair(&mut self) -> Result<&mut QueuePair<&'d Device<H>, Rc>> {
        match &mut self.queue_pair {
            ControlQueuePair::Connected(queue_pair) => Ok(queue_pair),
            _ => bail!("the connection of the exchange is broken"),
        }
    }

    /// Waits for the next completion of receives, or of sends.
    fn wait(&mut self, of_receives: bool, meanwhile: &mut WaitHook<'_>) -> Result<WorkCompletion> {
        let hal = self.device.hal();
        let deadline: Time = hal.now() + self.limit;
        let mut completion = [WorkCompletion::EMPTY];
        loop {
            let queue = if of_receives { &mut self.receives } else { &mut self.sends };
            if queue.poll(&mut completion)? == 1 {
                break;
            }
            // The peer may have lost an answer of communication management.
            self.manager.borrow_mut().step()?;
            if hal.now() > deadline {
                bail!("the peer sent nothing over the connection of the exchange before the timeout");
            }
            meanwhile()?;
        }
        let [completion] = completion;
        if !completion.is_success() {
            bail!(
                "the connection of the exchange broke with {}; the output of the peer says why",
                completion.status
            );
        }
        Ok(completion)
    }
}

impl<H: Hal> Carrier for ControlLine<'_, '_, H> {
    fn send(&mut self, message: &[u8], meanwhile: &mut WaitHook<'_>) -> Result<()> {
        let at = RECEIVES as usize * SLOT;
        self.memory.copy_in(at, message)?;
        let slices = [self.memory.slice(at, message.len())?];
        self.queue_pair()?.post_send(&WorkRequest::send(0, &slices))?;
        self.wait(false, meanwhile).map(drop)
    }

    fn receive(&mut self, message: &mut [u8], meanwhile: &mut WaitHook<'_>) -> Result<()> {
        let completion = self.wait(true, meanwhile)?;
        let (slot, length) = (completion.wr_id as usize, completion.byte_count as usize);
        if length != message.len() {
            bail!("the peer sent {length} bytes of the exchange, and {} are next", message.len());
        }
        self.memory.copy_out(slot * SLOT, message)?;
        let slices = [self.memory.slice(slot * SLOT, SLOT)?];
        self.queue_pair()?.post_receive(&ReceiveRequest::new(slot as u64, &slices))?;
        Ok(())
    }

    fn form(&self) -> DestinationForm {
        DestinationForm::Record
    }

    fn set_limit(&mut self, limit: std::time::Duration) {
        self.limit = Duration::from_nanos(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    }
}

impl<H: Hal> Drop for ControlLine<'_, '_, H> {
    /// The peer's program may have ended, so a missing answer is not reported.
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let _ = self.manager.borrow_mut().part(&[id], LAST_PARTING);
        }
    }
}
