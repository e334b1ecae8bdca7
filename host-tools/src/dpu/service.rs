//! The one thread that owns the device: makes and ends connections, and runs what is asked on them.
//!
//! A connection ends in two steps. Its queue pair is moved to ERROR first, which flushes what is outstanding; the place is given to somebody else
//! when everything was flushed, so that no completion of the one is taken for one of the other.

use super::config::ServiceConfig;
use super::listener::{CallerRequest, JoinRequest, Joined};
use super::offer::{Aim, Offer, PURPOSE};
use super::served_table::{ServedRows, ServedTable};
use super::tenant::{CONNECTIONS, SHARE, Tenant, Tenants};
use crate::seat::Seat;
use anyhow::{Context as _, Result};
use bareverbs::memory_region::{AccessFlags, MemoryRegion};
use bareverbs::offload::budget::Limits;
use bareverbs::offload::cost::KernelCost;
use bareverbs::offload::dpu::{self, DpuServer};
use bareverbs::offload::grant::Grant;
use bareverbs::offload::kernels::BuiltInKernels;
use bareverbs::offload::kernels::kv_layout::MAX_OBJECT;
use bareverbs::offload::own_memory::OwnMemory;
use bareverbs::offload::program::WithPrograms;
use bareverbs::offload::runtime::{ConnectionId, ResponseWindow, Runtime};
use bareverbs::offload::verbs::{INLINE, RegionTable, VerbsEndpoint};
use bareverbs::prm::time::{Duration, Time};
use bareverbs::protection_domain::ProtectionDomain;
use bareverbs::queue_pair::{ConnectOptions, QueuePair, QueuePairBuilder};
use bareverbs::{CompletionQueue, CompletionQueueConfig, Device};
use bareverbs_core::hal::Hal;
use bareverbs_exchange::Introduction;
use std::rc::Rc;
use std::sync::mpsc::{Sender, channel};

/// Requests that run at a time, of all connections.
const SLOTS: usize = 32;
/// Versions of programs.
const PLACES: usize = 16;
/// Sends of each queue pair.
const DEPTH: u32 = 64;
/// How long the device may take to flush a queue pair.
const FLUSH: Duration = Duration::from_secs(2);

type TenantServer = DpuServer<WithPrograms<BuiltInKernels, PLACES>, SLOTS, CONNECTIONS, SHARE>;
type Owned<'d, H> = &'d Device<H>;
type TableDoorway<'d, H> = OwnMemory<RegionTable<Rc<MemoryRegion<Owned<'d, H>>>, Owned<'d, H>>, SLOTS>;

/// A connection of a tenant.
struct Tenancy {
    number: u64,
    tenant: String,
    wish: Aim,
    farewell: Sender<String>,
    /// Since when it is being flushed.
    leaving: Option<Time>,
}

/// What runs on a device.
pub(super) struct Service<'d, H: Hal> {
    domain: ProtectionDomain<Owned<'d, H>>,
    gid_index: u8,
    limits: Limits,
    table: ServedTable<Owned<'d, H>>,
    server: Box<TenantServer>,
    endpoint: VerbsEndpoint<Owned<'d, H>, CONNECTIONS>,
    door: TableDoorway<'d, H>,
    scratch: Vec<u8>,
    tenancies: [Option<Tenancy>; CONNECTIONS],
    /// The number of the next connection.
    next: u64,
}

/// What happened and is there, for whoever watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServiceFigures {
    pub(super) runtime: bareverbs::offload::runtime::Counters,
    pub(super) server: bareverbs::offload::dpu::DpuCounters,
    pub(super) running: usize,
    pub(super) programs: usize,
    /// The tenant of each connection.
    pub(super) connections: Vec<String>,
    pub(super) connected: u64,
    pub(super) rows: usize,
}

/// Somebody who wants a connection.
struct Caller<'a> {
    tenant: &'a Tenant,
    wish: Aim,
    peer: &'a Introduction,
}

impl<'d, H: Hal> Service<'d, H> {
    /// Fills the table and makes everything but connections.
    pub(super) fn new(
        device: Owned<'d, H>,
        seat: &Seat,
        config: &ServiceConfig,
        rows: &ServedRows,
    ) -> Result<Self> {
        let domain = ProtectionDomain::allocate(device).context("allocating a protection domain")?;
        let table = ServedTable::fill(&domain, &device, rows)?;
        let memory = dpu::memory_size(CONNECTIONS * SHARE, SLOTS);
        let memory = MemoryRegion::allocate(&domain, memory, AccessFlags::LOCAL_WRITE)
            .context("allocating receive and staging buffers")?;
        let entries = (DEPTH + SHARE as u32).next_power_of_two() * CONNECTIONS as u32;
        let completions = CompletionQueue::create(device, CompletionQueueConfig { entries })
            .context("creating a completion queue")?;
        let programs = WithPrograms::new(config.fuel);
        let runtime = Runtime::with(programs, config.limits, KernelCost::FREE);
        Ok(Self {
            gid_index: seat.gid_index(&config.gid_index.into())?,
            limits: config.limits,
            door: OwnMemory::new(table.memory(&device)),
            table,
            server: Box::new(DpuServer::new(runtime)),
            endpoint: VerbsEndpoint::vacant(completions, memory, DEPTH),
            scratch: vec![0; MAX_OBJECT as usize],
            tenancies: std::array::from_fn(|_| None),
            next: 1,
            domain,
        })
    }

    /// Does all that can be done now. Returns whether anything was done.
    pub(super) fn turn(&mut self, now: Time) -> bool {
        let mut active = false;
        // One request after the other may have become due by what was done before.
        for _ in 0..SLOTS {
            if !self.server.poll(now, &mut self.endpoint, &mut self.door, &mut self.scratch) {
                break;
            }
            active = true;
        }
        (0..CONNECTIONS).for_each(|index| self.look_after(now, index));
        active
    }

    /// When there is something to do, if nothing arrives before.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.server.poll_timeout(&self.door)
    }

    /// Does what a caller's thread wants.
    pub(super) fn handle_request(&mut self, now: Time, request: CallerRequest, tenants: &Tenants) {
        match request {
            CallerRequest::Leave { number } => {
                self.leave(now, |tenancy| tenancy.number == number, "the caller has left")
            }
            CallerRequest::Join(request) => self.answer(now, *request, tenants),
        }
    }

    fn answer(&mut self, now: Time, request: JoinRequest, tenants: &Tenants) {
        let JoinRequest { tenant, wish, from, peer, answer } = request;
        let joined = self.join(&tenant, wish, &peer, tenants);
        let tenant = tenant.name;
        let number = joined.as_ref().map(|joined| joined.number).ok();
        if let Some(number) = number {
            tracing::info!(number, tenant, ?wish, from, "connected");
        }
        if let (Err(_), Some(number)) = (answer.send(joined), number) {
            self.leave(now, |tenancy| tenancy.number == number, "the caller did not wait for the answer");
        }
    }

    fn join(
        &mut self,
        tenant: &Tenant,
        wish: Aim,
        peer: &Introduction,
        tenants: &Tenants,
    ) -> Result<Joined, String> {
        // Who was removed since it proved its key, or has another key now, is not let in.
        let name = tenant.name.as_str();
        if tenants.find(name).as_ref() != Some(tenant) {
            return Err(format!("tenant {name:?} was changed just now: call again"));
        }
        let held = self.tenancies.iter().flatten().filter(|tenancy| tenancy.tenant == name).count();
        tenant.may(wish, held)?;
        let full = || format!("all {CONNECTIONS} connections of the service are taken: call again later");
        let index = self.endpoint.vacancy().ok_or_else(full)?;
        let caller = Caller { tenant, wish, peer };
        let introduction = self
            .connect(index, &caller)
            .map_err(|error| format!("the connection cannot be made: {error:#}"))?;
        let (number, (farewell, farewell_of_call)) = (self.next, channel());
        self.next += 1;
        self.tenancies[index] =
            Some(Tenancy { number, tenant: name.to_owned(), wish, farewell, leaving: None });
        Ok(Joined { number, introduction, farewell: farewell_of_call })
    }

    /// Makes the queue pair, lets the caller in, and takes its requests from now on.
    fn connect(&mut self, index: usize, caller: &Caller<'_>) -> Result<Introduction> {
        let peer = caller.peer;
        let may = if caller.wish == Aim::Read { AccessFlags::REMOTE_READ } else { AccessFlags::default() };
        let prepared =
            QueuePairBuilder::new(&self.domain, self.endpoint.completions(), self.endpoint.completions())
                .send_queue(DEPTH)
                .receive_queue(SHARE as u32)
                .max_inline(INLINE)
                .access(may)
                .build()
                .context("creating a queue pair")?;
        let mut own = Introduction::new(PURPOSE, prepared.endpoint(self.gid_index)?);
        let path_mtu = if own.path_mtu.raw() < peer.path_mtu.raw() { own.path_mtu } else { peer.path_mtu };
        let gid_index = self.gid_index;
        // A caller that posts no receives ends its own connection, and keeps a staging buffer no longer than that takes.
        let options = ConnectOptions { gid_index, path_mtu, rnr_retry: 6, ..ConnectOptions::default() };
        let queue_pair = prepared.connect(&peer.endpoint, options).context("connecting the queue pair")?;
        let id = self.let_in(caller)?;
        let served = self.serve(index, queue_pair, id).and_then(|()| self.offer(caller, id, &mut own));
        if let Err(error) = served {
            self.server.dismiss(index);
            self.server.runtime().disconnect(id);
            self.endpoint.detach(index);
            return Err(error);
        }
        Ok(own)
    }

    /// A connection of the runtime with the tenant's limits, for answers to the memory that the caller offers.
    fn let_in(&mut self, caller: &Caller<'_>) -> Result<ConnectionId> {
        let slice = caller.peer.slices.first().context("the caller offers no memory for answers")?;
        let window =
            ResponseWindow { address: slice.address, length: slice.length.into(), rkey: slice.rkey.value() };
        let runtime = self.server.runtime();
        let id = runtime.connect(window, caller.tenant.share)?;
        runtime.limit(id, caller.tenant.allowance)?;
        runtime.allow_deployment(id, caller.wish == Aim::Deploy)?;
        Ok(id)
    }

    fn serve(&mut self, index: usize, queue_pair: QueuePair<Owned<'d, H>>, id: ConnectionId) -> Result<()> {
        let attached = self.endpoint.attach(index, queue_pair);
        attached.map_err(|_| anyhow::anyhow!("connection {index} is taken"))?;
        self.server.serve(&mut self.endpoint, index, id).context("posting receives")
    }

    /// Grants what the caller is there for, and tells it.
    fn offer(&mut self, caller: &Caller<'_>, id: ConnectionId, own: &mut Introduction) -> Result<()> {
        let region = match caller.wish {
            Aim::Lookup => {
                let table = Grant::new(0, self.table.region.len() as u64)?;
                let table = if caller.tenant.write { table.writable() } else { table };
                self.server.runtime().grant(id, table)?.0
            }
            Aim::Read => {
                own.slices.push(self.table.region.remote(0));
                0
            }
            Aim::Deploy => 0,
        };
        own.data =
            Offer::new(region, SHARE as u32, self.table.max_value, self.limits, &self.table.descriptor)
                .to_data()?;
        Ok(())
    }

    /// Ends the connections that `which` picks; their callers hear why.
    fn leave(&mut self, now: Time, which: impl Fn(&Tenancy) -> bool, why: &str) {
        for index in 0..CONNECTIONS {
            if self.tenancies[index]
                .as_ref()
                .is_some_and(|tenancy| tenancy.leaving.is_none() && which(tenancy))
            {
                self.begin_to_leave(now, index, why);
            }
        }
    }

    /// Ends all connections.
    pub(super) fn end_all(&mut self, now: Time, why: &str) {
        self.leave(now, |_| true, why);
    }

    /// Ends the connections of these tenants.
    pub(super) fn end_tenants(&mut self, now: Time, names: &[String]) {
        let why = "the service's configuration of this tenant was changed: call again";
        self.leave(now, |tenancy| names.contains(&tenancy.tenant), why);
    }

    fn begin_to_leave(&mut self, now: Time, index: usize, why: &str) {
        let Some(tenancy) = &mut self.tenancies[index] else { return };
        let (number, tenant) = (tenancy.number, tenancy.tenant.as_str());
        tracing::info!(number, tenant, wish = ?tenancy.wish, "disconnected: {why}");
        // The caller may have hung up before.
        let _ = tenancy.farewell.send(why.to_owned());
        tenancy.leaving = Some(now);
        self.server.dismiss(index);
        if let Err(error) = self.endpoint.break_off(index) {
            tracing::error!(number, "the queue pair cannot be moved to ERROR: {error}");
        }
    }

    /// Notices a connection that broke, and frees the place of one that was flushed.
    fn look_after(&mut self, now: Time, index: usize) {
        let Some(tenancy) = &self.tenancies[index] else { return };
        match tenancy.leaving {
            None if !self.server.is_served(index) => {
                self.begin_to_leave(
                    now,
                    index,
                    "the connection broke: the caller does not acknowledge or takes no answers",
                );
            }
            None => {}
            Some(since) => {
                let flushed = self.endpoint.is_flushed(index);
                if !flushed && now < since + FLUSH {
                    return;
                }
                if !flushed {
                    tracing::error!(
                        number = tenancy.number,
                        "the device did not flush the queue pair in {FLUSH:?}"
                    );
                }
                self.endpoint.detach(index);
                self.tenancies[index] = None;
            }
        }
    }

    /// Answers what runs, and begins nothing more.
    pub(super) fn drain(&mut self) {
        self.server.runtime().drain();
    }

    /// Whether nothing that was asked is still to be answered.
    pub(super) fn is_idle(&self) -> bool {
        self.server.is_idle() && (0..CONNECTIONS).all(|index| self.endpoint.is_sent(index))
    }

    /// What happened so far.
    pub(super) fn figures(&mut self) -> ServiceFigures {
        ServiceFigures {
            runtime: self.server.runtime().counters(),
            running: self.server.runtime().running(),
            programs: self
                .server
                .runtime()
                .deployment()
                .store()
                .list()
                .filter(|program| program.current)
                .count(),
            server: self.server.counters(),
            connections: self.tenancies.iter().flatten().map(|tenancy| tenancy.tenant.clone()).collect(),
            connected: self.next - 1,
            rows: self.table.rows,
        }
    }
}
