//! What one end of a test needs from its device: queue pairs, completion queues, and a buffer with perftest's
//! layout.
//!
//! The first half of the buffer has a slot for each queue pair to send from (or to read into). The second
//! half has a slot for each to receive into, which is the one that the peer writes and reads. Route headers
//! of datagrams come after both, and the introductions of queue pairs with `-R`.
//!
//! With XRC a queue pair either sends or answers. An end that does both has twice as many: first those that
//! send, then those that answer; each is connected to one of the other half at the peer. Every connection has
//! its own shared receive queue. With `--use-srq`, all connections share one.

mod buffer;
mod introduction;

use super::lane::{Lane, Message, Q_KEY};
use super::plan::{Operation, TestPlan, Transport};
use crate::counters::{Readings, queue_counters};
use crate::rdma_cm::DATAGRAM_Q_KEY;
use crate::seat::{GidSelection, Seat};
use anyhow::{Context as _, Result, bail};
use bareverbs_core::address_handle::ROUTE_HEADER;
use bareverbs_core::completion_channel::CompletionChannel;
use bareverbs_core::completion_queue::{Arming, CompletionQueue, Notify};
use bareverbs_core::hal::Hal;
use bareverbs_core::memory_region::{MemorySlice, RemoteSlice};
use bareverbs_core::protection_domain::ProtectionDomain;
use bareverbs_core::queue_pair::{ConnectOptions, QueuePairBuilder, RemoteEndpoint, Service};
use bareverbs_core::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
use bareverbs_core::work_completion::WorkCompletion;
use bareverbs_core::work_request::ReceiveRequest;
use bareverbs_core::xrc_domain::XrcDomain;
use bareverbs_core::{CounterSet, Device, DeviceConfig};
use bareverbs_perftest::exchange::Destination;
use bareverbs_prm::ids::{Gid, MacAddress, Mkey};
use bareverbs_prm::numbering::{PathMtu, PortType, RoceVersion};
use buffer::Buffer;
use std::ops::Range;

/// Completions that are taken at a time.
const POLL_BATCH: usize = 16;
/// Basic blocks of a send with one slice, whatever the operation.
const BLOCKS: u32 = 2;
/// Bytes of a basic block.
const BLOCK: u32 = 64;

/// Bytes of the datagram that introduces a queue pair: its number once more, which nobody reads.
const INTRODUCTION: usize = 4;
/// Ledger words and number of the queue pairs that `-R` needs: general services, the exchange, and on
/// InfiniBand IPoIB.
const CM_WORDS: u32 = 1024;
const CM_QUEUES: u32 = 3;

/// A completion queue, and with `-e` its channel.
struct Completions<'d, H: Hal> {
    queue: CompletionQueue<&'d Device<H>>,
    channel: Option<CompletionChannel<&'d Device<H>>>,
    is_armed: bool,
}

/// One end of a test. The fields are in the order in which they have to be dropped.
pub(crate) struct Bench<'d, H: Hal> {
    lanes: Vec<Lane<'d, H>>,
    /// One for each connection with XRC, one for all with `--use-srq`; otherwise none.
    shared: Vec<SharedReceiveQueue<&'d Device<H>>>,
    /// The counter set of the queue pairs; `None` if the device has no further set.
    counters: Option<CounterSet<&'d Device<H>>>,
    #[allow(dead_code, reason = "it lives as long as what is in it")]
    xrc: Option<XrcDomain<&'d Device<H>>>,
    sends: Completions<'d, H>,
    receives: Completions<'d, H>,
    pub(crate) memory: Buffer<'d, H>,
    #[allow(dead_code, reason = "it lives as long as what is in it")]
    domain: ProtectionDomain<&'d Device<H>>,
    pub(crate) device: &'d Device<H>,
    room: usize,
    /// Number of connections.
    count: usize,
    /// Whether messages have immediate data.
    immediate: bool,
    transport: Transport,
    gid_index: u8,
    /// Our ends of the queue pairs, for the peer.
    pub(crate) own: Vec<Destination>,
    /// The peer's ends.
    pub(crate) peers: Vec<Destination>,
}

/// Device settings with room for a test.
pub(crate) fn device_config(plan: &TestPlan) -> DeviceConfig {
    let config = DeviceConfig::default();
    // A shared receive queue has two ledger words for each entry, one of which is never posted; its
    // connection may have two queue pairs.
    let (queues, receives) = match plan.transport {
        Transport::Xrc => (3 * plan.queue_pairs, 2 * (plan.rx_depth + 1).next_power_of_two()),
        _ if plan.shared_receives => (plan.queue_pairs + 1, 0),
        _ => (plan.queue_pairs, plan.rx_depth.next_power_of_two().max(2)),
    };
    let shared = if plan.shared_receives { 2 * (plan.rx_depth + 1).next_power_of_two() } else { 0 };
    let words = plan.queue_pairs * (2 * send_blocks(plan).next_power_of_two() + receives) + shared;
    let (words, queues) = if plan.rdma_cm { (words + CM_WORDS, queues + CM_QUEUES) } else { (words, queues) };
    DeviceConfig {
        queue_pairs: config.queue_pairs.max(queues + 1),
        ledger_words: config.ledger_words.max(words.next_power_of_two()),
        ..config
    }
}

/// Checks that the port has the requested P_Key.
pub(crate) fn check_partition<H: Hal>(device: &Device<H>, plan: &TestPlan) -> Result<()> {
    let index = plan.pkey_index;
    if index == 0 {
        return Ok(());
    }
    if device.capabilities().port_type == PortType::Ethernet {
        bail!(
            "--pkey_index {index}: a RoCE port has one P_Key, at index 0; VLANs separate traffic there (-x)"
        );
    }
    let key = device
        .partition_key(index)
        .with_context(|| format!("--pkey_index {index}: the port has no such P_Key"))?;
    if key == 0 {
        bail!(
            "--pkey_index {index}: that entry of the port's P_Key table is empty; `bareverbs doctor` lists those that are not"
        );
    }
    Ok(())
}

/// Basic blocks that the sends of a queue pair take at most.
fn send_blocks(plan: &TestPlan) -> u32 {
    let inline = if plan.inline == 0 { 0 } else { (plan.inline + BLOCK).div_ceil(BLOCK) };
    plan.tx_depth * (BLOCKS + inline)
}

impl<'d, H: Hal> Completions<'d, H> {
    fn create(device: &'d Device<H>, entries: u32, plan: &TestPlan) -> Result<Self> {
        let builder = CompletionQueue::builder(device).entries(entries);
        if !plan.events {
            return Ok(Self { queue: builder.create()?, channel: None, is_armed: false });
        }
        let channel = CompletionChannel::create(device, plan.run.vector, 4)
            .with_context(|| format!("events by interrupt vector {} (-X)", plan.run.vector))?;
        let queue = builder.channel(&channel).create()?;
        Ok(Self { queue, channel: Some(channel), is_armed: false })
    }

    /// Polls; with events only after an event, like a program that sleeps until then.
    fn poll(&mut self, completions: &mut [WorkCompletion]) -> Result<usize> {
        let Some(channel) = &mut self.channel else { return Ok(self.queue.poll(completions)?) };
        if self.is_armed {
            if channel.poll().is_none() {
                return Ok(0);
            }
            self.queue.acknowledge_event();
            self.is_armed = false;
        }
        let count = self.queue.poll(completions)?;
        if count == 0 {
            self.is_armed = self.queue.arm(Notify::Next) == Arming::Armed;
        }
        Ok(count)
    }
}

/// What queue pairs are created from.
struct LaneMaker<'a, 'd, H: Hal> {
    domain: &'a ProtectionDomain<&'d Device<H>>,
    sends: &'a CompletionQueue<&'d Device<H>>,
    receives: &'a CompletionQueue<&'d Device<H>>,
    counters: Option<&'a CounterSet<&'d Device<H>>>,
    plan: &'a TestPlan,
}

/// Queue pairs of XRC, their shared receive queues, and the domain of these.
type Extended<'d, H> =
    (Vec<Lane<'d, H>>, Vec<SharedReceiveQueue<&'d Device<H>>>, Option<XrcDomain<&'d Device<H>>>);

impl<'d, H: Hal> LaneMaker<'_, 'd, H> {
    fn counting<'b, S: Service>(
        &self,
        builder: QueuePairBuilder<'b, &'d Device<H>, S>,
    ) -> QueuePairBuilder<'b, &'d Device<H>, S> {
        let builder = builder.partition_key_index(self.plan.pkey_index);
        match self.counters {
            Some(set) => builder.counter_set(set),
            None => builder,
        }
    }

    /// With `--use-srq`, the queue for all receives of an end, if it receives messages.
    fn shared(&self, is_client: bool) -> Result<Option<SharedReceiveQueue<&'d Device<H>>>> {
        if !self.plan.shared_receives || !self.plan.receives(is_client) {
            return Ok(None);
        }
        let config = SharedReceiveQueueConfig { receives: self.plan.rx_depth, slices: 1 };
        SharedReceiveQueue::create(self.domain, config).map(Some).context("a shared receive queue")
    }

    fn plain(&self, shared: Option<&SharedReceiveQueue<&'d Device<H>>>) -> Result<Vec<Lane<'d, H>>> {
        let make = |_| {
            let builder = QueuePairBuilder::new(self.domain, self.sends, self.receives)
                .send_queue(self.plan.tx_depth)
                .receive_queue(if self.plan.shared_receives { 0 } else { self.plan.rx_depth })
                .max_inline(self.plan.inline)
                .max_receive_sge(2);
            let builder = match shared {
                Some(queue) => builder.shared_receive_queue(queue),
                None => builder,
            };
            // RDMA CM has its own Q_Key.
            let q_key = if self.plan.rdma_cm { DATAGRAM_Q_KEY } else { Q_KEY };
            Lane::build(self.counting(builder), self.plan.transport, q_key).context("a queue pair")
        };
        (0..self.plan.queue_pairs).map(make).collect()
    }

    fn extended(&self, is_client: bool) -> Result<Extended<'d, H>> {
        let xrc = XrcDomain::allocate(*self.domain.device()).context("an XRC domain")?;
        let config = SharedReceiveQueueConfig { receives: self.plan.rx_depth, slices: 1 };
        let mut shared = Vec::new();
        for _ in 0..self.plan.queue_pairs {
            let queue = SharedReceiveQueue::create_xrc(self.domain, &xrc, self.receives, config);
            shared.push(queue.context("an XRC shared receive queue")?);
        }
        let both = self.plan.has_separate_ends();
        let mut lanes = Vec::new();
        for queue in shared.iter().filter(|_| both || is_client) {
            let builder = QueuePairBuilder::xrc_initiator(self.domain, &xrc, queue, self.sends)
                .send_queue(self.plan.tx_depth)
                .max_inline(self.plan.inline);
            let builder = self.counting(builder);
            lanes.push(Lane::PreparedInitiator(builder.build().context("an XRC queue pair that sends")?));
        }
        for queue in shared.iter().filter(|_| both || !is_client) {
            let builder = QueuePairBuilder::xrc_target(self.domain, &xrc, queue, self.receives);
            let builder = self.counting(builder);
            lanes.push(Lane::PreparedTarget(builder.build().context("an XRC queue pair that answers")?));
        }
        Ok((lanes, shared, Some(xrc)))
    }
}

impl<'d, H: Hal> Bench<'d, H> {
    /// Creates everything and fills in what the peer has to know.
    pub(crate) fn set_up(
        device: &'d Device<H>,
        seat: &Seat,
        plan: &TestPlan,
        is_client: bool,
    ) -> Result<Self> {
        let gid_index = plan.gid_index(seat)?;
        let domain = ProtectionDomain::allocate(device)?;
        let count = plan.queue_pairs as usize;
        let total = if plan.has_separate_ends() { 2 * count } else { count };
        let memory = Buffer::allocate(&domain, plan, total, ROUTE_HEADER + INTRODUCTION)?;
        let sends = Completions::create(device, plan.tx_depth * plan.queue_pairs, plan)?;
        let receives = Completions::create(device, plan.rx_depth * plan.queue_pairs, plan)?;
        let counters = CounterSet::create(device)
            .inspect_err(|error| tracing::warn!("the queue pairs have no counter set of their own: {error}"))
            .ok();
        let maker = LaneMaker {
            domain: &domain,
            sends: &sends.queue,
            receives: &receives.queue,
            counters: counters.as_ref(),
            plan,
        };
        let (lanes, shared, xrc) = match plan.transport {
            Transport::Xrc => maker.extended(is_client)?,
            _ => {
                let shared = maker.shared(is_client)?;
                (maker.plain(shared.as_ref())?, shared.into_iter().collect(), None)
            }
        };
        let room = plan.room();
        let (own, peers) = (Vec::new(), Vec::new());
        let mut bench = Self {
            lanes,
            shared,
            counters,
            xrc,
            sends,
            receives,
            memory,
            domain,
            device,
            room,
            count,
            immediate: plan.immediate,
            transport: plan.transport,
            gid_index,
            own,
            peers,
        };
        bench.own = bench.identities(seat, plan)?;
        Ok(bench)
    }

    fn identities(&self, seat: &Seat, plan: &TestPlan) -> Result<Vec<Destination>> {
        // Without a GID index, an InfiniBand port uses no global route header, as with perftest.
        let gid = match seat.gids.get(usize::from(self.gid_index)) {
            Some(entry) => entry.gid,
            None if plan.gid_selection != GidSelection::Any => {
                self.device.infiniband_gid(self.gid_index.into())?
            }
            None => Gid::default(),
        };
        let lid = self.device.port()?.lid;
        let identity = |(index, lane): (usize, &Lane<'d, H>)| {
            let (qpn, psn) = lane.identity(self.gid_index)?;
            let (address, rkey) = self.memory.remote((self.lanes.len() + index) * self.room);
            let rkey = rkey.value();
            // Only an XRC peer has to name it.
            let shared_queue =
                self.shared.get(index % self.count).filter(|_| plan.transport == Transport::Xrc);
            let shared_queue = shared_queue.map(SharedReceiveQueue::number);
            let outstanding_reads = plan.outstanding;
            Ok(Destination { outstanding_reads, qpn, psn, rkey, address, gid, lid, shared_queue })
        };
        self.lanes.iter().enumerate().map(identity).collect()
    }

    /// The counters of the queue pairs, under mlx5's names.
    pub(crate) fn counters(&self) -> Result<Option<Readings>> {
        let read =
            self.counters.as_ref().map(|set| set.read().context("reading the counters of queue pairs"));
        Ok(read.transpose()?.map(|counters| queue_counters(&counters)))
    }

    /// The index of our GID.
    pub(crate) const fn gid_index(&self) -> u8 {
        self.gid_index
    }

    /// Number of connections.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// The queue pair that receives for a connection: the same one or, if others send than receive, the one
    /// behind all senders.
    const fn answering(&self, lane: usize) -> usize {
        self.lanes.len() - self.count + lane
    }

    /// Offset of a connection's send slot.
    pub(crate) const fn send_at(&self, lane: usize) -> usize {
        lane * self.room
    }

    /// Offset of a connection's receive slot.
    pub(crate) const fn receive_at(&self, lane: usize) -> usize {
        (self.lanes.len() + self.answering(lane)) * self.room
    }

    /// Connects every queue pair to the peer's.
    pub(crate) fn connect(&mut self, seat: &Seat, plan: &TestPlan, mtu: PathMtu) -> Result<()> {
        let family = |gid: Gid| gid.to_ipv4().is_some();
        let total = self.lanes.len();
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            let opposite = (index + total - self.count) % total;
            let (own, peer) =
                (&self.own[index], self.peers.get(opposite).context("the peer has fewer queue pairs")?);
            if own.shared_queue.is_some() && peer.shared_queue.is_none() {
                bail!("the peer names no shared receive queue: give -c XRC there too");
            }
            if family(own.gid) != family(peer.gid) {
                bail!(
                    "this end has the GID {} and the peer {}: one is IPv4, the other is not. Choose another GID index with -x, \
                     here or there",
                    own.gid,
                    peer.gid
                );
            }
            let on_ethernet = !seat.gids.is_empty();
            let mac =
                if on_ethernet { seat.mac_of(self.gid_index, peer.gid)? } else { MacAddress::default() };
            let gid = if own.gid.is_zero() { Gid::default() } else { peer.gid };
            let version = on_ethernet.then_some(RoceVersion::Version2);
            let lid = plan.peer_lid.unwrap_or(peer.lid);
            let remote = RemoteEndpoint { qpn: peer.qpn, psn: peer.psn, gid, mac, version, lid };
            let reads = plan.outstanding.min(peer.outstanding_reads.max(1));
            let options = ConnectOptions {
                gid_index: self.gid_index,
                path_mtu: mtu,
                ack_timeout: plan.ack_timeout,
                retry_count: plan.retry_count,
                max_reads: 1 << reads.max(1).ilog2(),
                hop_limit: plan.hop_limit,
                traffic_class: plan.traffic_class,
                flow_label: plan.flow_label,
                service_level: plan.service_level,
                ..ConnectOptions::default()
            };
            lane.connect(self.device, &remote, options, Q_KEY)?;
        }
        Ok(())
    }

    /// Connects a queue pair as both ends have agreed by RDMA CM.
    pub(crate) fn connect_lane(
        &mut self,
        lane: usize,
        remote: &RemoteEndpoint,
        options: ConnectOptions,
    ) -> Result<()> {
        // A connection has no Q_Key.
        self.lanes.get_mut(lane).context("a queue pair")?.connect(self.device, remote, options, 0)
    }

    /// Posts the receive of message number `index` of a queue pair.
    pub(crate) fn post_receive(&mut self, plan: &TestPlan, size: u32, lane: usize, index: u64) -> Result<()> {
        let place = self.receive(plan, size, lane, index)?;
        let request = place.request();
        match self.shared.get_mut(if plan.shared_receives { 0 } else { lane }) {
            Some(queue) => Ok(queue.post_receive(&request)?),
            None => self.lanes[lane].post_receives(&[request]),
        }
    }

    /// Posts the receives of several messages with one doorbell, for a queue pair that has its own receive
    /// queue.
    pub(crate) fn post_receives(
        &mut self,
        plan: &TestPlan,
        size: u32,
        lane: usize,
        indices: Range<u64>,
    ) -> Result<()> {
        let places: Vec<_> =
            indices.map(|index| self.receive(plan, size, lane, index)).collect::<Result<_>>()?;
        let requests: Vec<_> = places.iter().map(ReceivePlace::request).collect();
        self.lanes[lane].post_receives(&requests)
    }

    fn receive(&self, plan: &TestPlan, size: u32, lane: usize, index: u64) -> Result<ReceivePlace> {
        let at = self.receive_at(lane) + plan.slot(size, index);
        let headers = self.memory.slice(2 * self.lanes.len() * self.room, ROUTE_HEADER)?;
        let used = match plan.operation {
            // The peer chooses where the bytes go; the receive only reports them.
            Operation::Write => 0..0,
            _ if self.transport == Transport::Ud => 0..2,
            _ => 1..2,
        };
        let token = ((lane as u64) << 48) | (index & 0xffff_ffff_ffff);
        Ok(ReceivePlace { token, slices: [headers, self.memory.slice(at, size as usize)?], used })
    }

    /// Message number `index` of a queue pair; its completion carries that number.
    pub(crate) fn message(
        &self,
        plan: &TestPlan,
        size: u32,
        lane: usize,
        index: u64,
        signalled: bool,
    ) -> Result<Message> {
        let offset = plan.slot(size, index);
        let at = self.send_at(lane) + offset;
        let peer = self.peers.get(self.answering(lane)).context("the peer has fewer queue pairs")?;
        let fits = size <= plan.inline && matches!(plan.operation, Operation::Write | Operation::Send);
        let inline = fits
            .then(|| {
                let mut bytes = vec![0; size as usize];
                self.memory.copy_out(at, &mut bytes).map(|()| bytes)
            })
            .transpose()?;
        Ok(Message {
            token: ((lane as u64) << 48) | ((index + 1) & 0xffff_ffff_ffff),
            operation: plan.operation,
            slice: [self.memory.slice(at, size as usize)?],
            remote: RemoteSlice::from_raw(peer.address + offset as u64, size, Mkey::new(peer.rkey)),
            signalled,
            inline,
            // As perftest: it adds 1, or compares with 0 and swaps 1 in.
            shared_queue: peer.shared_queue.filter(|_| plan.transport == Transport::Xrc),
            immediate: plan.immediate.then_some(index as u32),
            operands: if plan.operation == Operation::FetchAdd { [1, 0] } else { [0, 1] },
        })
    }

    pub(crate) fn post(&mut self, lane: usize, messages: &[Message]) -> Result<()> {
        self.lanes[lane].post(messages)
    }

    /// Calls `each` with queue pair and number of every completed send.
    pub(crate) fn take_sends(&mut self, mut each: impl FnMut(usize, u64, u32) -> Result<()>) -> Result<bool> {
        take(&mut self.sends, "a send", |lane, index, completion| each(lane, index, completion.byte_count))
    }

    /// Calls `each` with queue pair, number and bytes of every received message.
    pub(crate) fn take_receives(
        &mut self,
        mut each: impl FnMut(usize, u64, u32) -> Result<()>,
    ) -> Result<bool> {
        let header = if self.transport == Transport::Ud { ROUTE_HEADER as u32 } else { 0 };
        let immediate = self.immediate;
        take(&mut self.receives, "a receive", |lane, index, completion| {
            if immediate && completion.immediate.is_none() {
                bail!(
                    "message {index} of queue pair {} came without immediate data: give --write_with_imm or --send_with_imm to both ends",
                    completion.qpn
                );
            }
            each(lane, index, completion.byte_count.saturating_sub(header))
        })
    }
}

/// Where a message is received.
struct ReceivePlace {
    token: u64,
    slices: [MemorySlice; 2],
    used: Range<usize>,
}

impl ReceivePlace {
    fn request(&self) -> ReceiveRequest<'_> {
        ReceiveRequest::new(self.token, &self.slices[self.used.clone()])
    }
}

/// Takes a completion. The error for a failed one names all its fields.
fn take<H: Hal>(
    completions: &mut Completions<'_, H>,
    what: &str,
    mut each: impl FnMut(usize, u64, &WorkCompletion) -> Result<()>,
) -> Result<bool> {
    let mut batch = [WorkCompletion::EMPTY; POLL_BATCH];
    let count = completions.poll(&mut batch)?;
    for completion in &batch[..count] {
        let (lane, index) = ((completion.wr_id >> 48) as usize, completion.wr_id & 0xffff_ffff_ffff);
        if !completion.is_success() {
            bail!(
                "{what} of queue pair {} (message {index}) ended with {} (vendor syndrome {:#04x}); \
                 `bareverbs explain {:?}` says what that means",
                completion.qpn,
                completion.status,
                completion.vendor_syndrome,
                completion.status
            );
        }
        each(lane, index, completion)?;
    }
    Ok(count > 0)
}
