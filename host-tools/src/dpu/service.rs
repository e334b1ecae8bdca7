//! The one thread that owns the device: makes and ends connections, and runs their requests.
//!
//! A connection ends in two steps. First its queue pair moves to ERROR, which flushes its outstanding work.
//! Its place is reused only after that, so that no completion of the old connection is mistaken for one of
//! the new.

use super::config::{ServiceConfig, TableSource};
use super::listener::{CallerRequest, JoinRequest, Joined};
use super::lookup_table::LookupTable;
use super::offer::{ConnectionKind, ConnectionRequest, HostTable, Offer, PURPOSE};
use super::program_engine::ProgramEngine;
use super::served_table::ServedRows;
use super::tenant::{CONNECTIONS, SHARE, Tenant, Tenants};
use crate::seat::Seat;
use anyhow::{Context as _, Result};
use bareverbs::memory_region::{AccessFlags, MemoryRegion};
use bareverbs::offload::budget::Limits;
use bareverbs::offload::cost::KernelCost;
use bareverbs::offload::dpu::{self, DpuServer};
use bareverbs::offload::kernels::BuiltInKernels;
use bareverbs::offload::kernels::kv_layout::MAX_OBJECT;
use bareverbs::offload::program::WithPrograms;
use bareverbs::offload::runtime::{ConnectionId, ResponseWindow, Runtime};
use bareverbs::offload::verbs::{INLINE, VerbsEndpoint};
use bareverbs::prm::ids::Qpn;
use bareverbs::prm::psn::Psn;
use bareverbs::prm::time::{Duration, Time};
use bareverbs::protection_domain::ProtectionDomain;
use bareverbs::queue_pair::{ConnectOptions, QueuePair, QueuePairBuilder, RemoteEndpoint};
use bareverbs::{CompletionQueue, CompletionQueueConfig, Device};
use bareverbs_core::AccessKey;
use bareverbs_core::hal::Hal;
use bareverbs_exchange::{Introduction, SessionSecret};
use std::sync::mpsc::{Sender, channel};

/// Requests of all connections that run at a time.
const SLOTS: usize = 32;
/// Versions of programs.
const PLACES: usize = 16;
/// Send queue depth of each queue pair.
const DEPTH: u32 = 64;
/// How long the device may take to flush a queue pair.
const FLUSH: Duration = Duration::from_secs(2);

/// Each connection may have a stream.
type TenantServer =
    DpuServer<WithPrograms<BuiltInKernels, PLACES, ProgramEngine>, SLOTS, CONNECTIONS, SHARE, CONNECTIONS>;
type Owned<'d, H> = &'d Device<H>;

/// A connection of a tenant.
struct Tenancy {
    number: u64,
    tenant: String,
    kind: ConnectionKind,
    farewell: Sender<String>,
    /// When flushing began.
    leaving: Option<Time>,
}

/// The host that shares its table.
struct HostTenancy {
    number: u64,
    tenant: String,
    table: HostTable,
    farewell: Sender<String>,
}

/// A service on a device.
pub(super) struct Service<'d, H: Hal> {
    gid_index: u8,
    limits: Limits,
    lookup: LookupTable<'d, H, SLOTS>,
    server: Box<TenantServer>,
    endpoint: VerbsEndpoint<Owned<'d, H>, CONNECTIONS>,
    scratch: Vec<u8>,
    tenancies: [Option<Tenancy>; CONNECTIONS],
    /// The tenant that may share a table, if the service has none of its own.
    shared_by: Option<String>,
    host: Option<HostTenancy>,
    /// The number of the next connection.
    next: u64,
    /// Dropped last, because a protection domain that is in use cannot be destroyed.
    domain: ProtectionDomain<Owned<'d, H>>,
}

/// Counters and state for monitoring.
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

/// A caller that wants a connection.
struct Caller<'a> {
    tenant: &'a Tenant,
    kind: ConnectionKind,
    peer: &'a Introduction,
}

impl<'d, H: Hal> Service<'d, H> {
    /// Fills the table and creates everything but connections.
    pub(super) fn new(
        device: Owned<'d, H>,
        seat: &Seat,
        config: &ServiceConfig,
        rows: Option<&ServedRows>,
    ) -> Result<Self> {
        let domain = ProtectionDomain::allocate(device).context("allocating a protection domain")?;
        let gid_index = seat.gid_index(&config.gid_index.into())?;
        let memory = dpu::memory_size(CONNECTIONS * SHARE, SLOTS) + dpu::stream_memory_size(CONNECTIONS);
        let memory = MemoryRegion::allocate(&domain, memory, AccessFlags::LOCAL_WRITE)
            .context("allocating receive and staging buffers")?;
        let entries = (DEPTH + SHARE as u32).next_power_of_two() * CONNECTIONS as u32;
        let completions = CompletionQueue::create(device, CompletionQueueConfig { entries })
            .context("creating a completion queue")?;
        let lookup = match rows {
            Some(rows) => LookupTable::own(&domain, device, rows)?,
            None => LookupTable::of_host(&domain, device, &memory, gid_index)?,
        };
        let shared_by = match &config.table {
            Some(TableSource::Host(host)) => Some(host.clone()),
            _ => None,
        };
        let programs = WithPrograms::with_engine(config.fuel, ProgramEngine::new(config.engine));
        let runtime = Runtime::with(programs, config.limits, KernelCost::FREE);
        Ok(Self {
            gid_index,
            limits: config.limits,
            lookup,
            server: Box::new(DpuServer::new(runtime)),
            endpoint: VerbsEndpoint::vacant(completions, memory, DEPTH),
            scratch: vec![0; MAX_OBJECT as usize],
            tenancies: std::array::from_fn(|_| None),
            shared_by,
            host: None,
            next: 1,
            domain,
        })
    }

    /// Does everything that can be done now. Returns whether anything was.
    pub(super) fn turn(&mut self, now: Time) -> bool {
        let mut active = false;
        // Each step may make further requests due.
        for _ in 0..SLOTS {
            if !self.server.poll(now, &mut self.endpoint, &mut self.lookup.dma, &mut self.scratch) {
                break;
            }
            active = true;
        }
        match self.lookup.repair(&self.domain) {
            Ok(repaired) => active |= repaired,
            Err(error) => {
                self.lose_host(now, &format!("the host's memory can no longer be reached: {error:#}"))
            }
        }
        (0..CONNECTIONS).for_each(|index| self.look_after(now, index));
        active
    }

    /// When to run again if nothing arrives before.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.server.poll_timeout(&self.lookup.dma)
    }

    /// Entry of the RoCE address table from which packets to tenants come.
    pub(super) const fn gid_index(&self) -> u8 {
        self.gid_index
    }

    /// Handles a request of a caller's thread.
    pub(super) fn handle_request(&mut self, now: Time, request: CallerRequest, tenants: &Tenants) {
        match request {
            CallerRequest::Leave { number } => {
                if self.host.as_ref().is_some_and(|host| host.number == number) {
                    self.lose_host(now, "the host has left");
                }
                self.leave(now, |tenancy| tenancy.number == number, "the caller has left");
            }
            CallerRequest::Shared { number, access, answer } => {
                let taken = self.take_table(number, &access).map_err(|error| format!("{error:#}"));
                if let Err(reason) = &taken {
                    self.lose_host(now, reason);
                }
                // The caller's thread has ended if it does not wait any more.
                let _ = answer.send(taken);
            }
            CallerRequest::Join(request) => self.answer(now, *request, tenants),
        }
    }

    fn answer(&mut self, now: Time, request: JoinRequest, tenants: &Tenants) {
        let JoinRequest { tenant, requested, from, peer, answer } = request;
        let kind = requested.kind;
        let joined = self.join(&tenant, requested, &peer, tenants);
        let tenant = tenant.name;
        let number = joined.as_ref().map(|joined| joined.number).ok();
        if let Some(number) = number {
            tracing::info!(number, tenant, ?kind, from, "connected");
        }
        if let (Err(_), Some(number)) = (answer.send(joined), number) {
            if self.host.as_ref().is_some_and(|host| host.number == number) {
                self.host = None;
            }
            self.leave(now, |tenancy| tenancy.number == number, "the caller did not wait for the answer");
        }
    }

    fn join(
        &mut self,
        tenant: &Tenant,
        requested: ConnectionRequest,
        peer: &Introduction,
        tenants: &Tenants,
    ) -> Result<Joined, String> {
        let kind = requested.kind;
        // A tenant that was removed or got another key since it proved its key is refused.
        let name = tenant.name.as_str();
        if tenants.find(name).as_ref() != Some(tenant) {
            return Err(format!("tenant {name:?} was changed just now: call again"));
        }
        if kind == ConnectionKind::Share {
            return self.receive_host(tenant, requested.shares, peer);
        }
        if kind == ConnectionKind::Lookup && self.lookup.view().is_none() {
            return Err(
                "the host has not shared its table yet (`bareverbs dpu host`): call again later".into()
            );
        }
        if kind == ConnectionKind::Read && self.lookup.view().is_none_or(|view| view.readable.is_none()) {
            return Err("the table cannot be READ: it is in the memory of the host, or no tenant could READ it when the service started".into());
        }
        let held = self.tenancies.iter().flatten().filter(|tenancy| tenancy.tenant == name).count();
        tenant.may(kind, held)?;
        let full = || format!("all {CONNECTIONS} connections of the service are taken: call again later");
        let index = self.endpoint.vacancy().ok_or_else(full)?;
        let caller = Caller { tenant, kind, peer };
        let introduction = self
            .connect(index, &caller)
            .map_err(|error| format!("the connection cannot be made: {error:#}"))?;
        let (number, (farewell, farewell_of_call)) = (self.next, channel());
        self.next += 1;
        self.tenancies[index] =
            Some(Tenancy { number, tenant: name.to_owned(), kind, farewell, leaving: None });
        Ok(Joined { number, introduction, farewell: farewell_of_call, shares: false })
    }

    /// Accepts a host that is about to share its table. It has no queue pair: its introduction names one that
    /// is never connected.
    fn receive_host(
        &mut self,
        tenant: &Tenant,
        shares: Option<HostTable>,
        peer: &Introduction,
    ) -> Result<Joined, String> {
        let name = tenant.name.as_str();
        if self.shared_by.as_deref() != Some(name) {
            return Err(format!(
                "tenant {name:?} may not share a table: `shared_by = {name:?}` in [table] of the service's configuration lets it"
            ));
        }
        if let Some(host) = &self.host {
            return Err(format!(
                "tenant {:?} shares a table already (connection {})",
                host.tenant, host.number
            ));
        }
        let table = shares.ok_or("the caller does not say what it shares")?;
        let unused = RemoteEndpoint { qpn: Qpn::from_low_bits(0), ..peer.endpoint };
        let introduction = Introduction::new(PURPOSE, RemoteEndpoint { psn: Psn::new(1), ..unused });
        let (number, (farewell, farewell_of_call)) = (self.next, channel());
        self.next += 1;
        self.host = Some(HostTenancy { number, tenant: name.to_owned(), table, farewell });
        Ok(Joined { number, introduction, farewell: farewell_of_call, shares: true })
    }

    /// Takes the table after the host has allowed access with the secret of its session.
    fn take_table(&mut self, number: u64, access: &SessionSecret) -> Result<()> {
        let host = self.host.as_ref().filter(|host| host.number == number).context("the host has left")?;
        let access = AccessKey::new(*access.as_bytes())?;
        self.lookup.share(&self.domain, &host.table, access).context("the host's memory cannot be used")?;
        tracing::info!(number, rows = host.table.rows, "the host shares its table");
        Ok(())
    }

    /// The table is gone: ends the host's connection, and those for lookups.
    fn lose_host(&mut self, now: Time, why: &str) {
        let Some(host) = self.host.take() else { return };
        tracing::warn!(number = host.number, tenant = host.tenant, "the table is gone: {why}");
        // The host may have hung up already.
        let _ = host.farewell.send(why.to_owned());
        self.lookup.withdraw();
        self.leave(
            now,
            |tenancy| tenancy.kind == ConnectionKind::Lookup,
            "the host has taken its table back: call again when it shares one",
        );
    }

    /// Creates the queue pair, admits the caller, and takes its requests from now on.
    fn connect(&mut self, index: usize, caller: &Caller<'_>) -> Result<Introduction> {
        let peer = caller.peer;
        let may = if caller.kind == ConnectionKind::Read {
            AccessFlags::REMOTE_READ
        } else {
            AccessFlags::default()
        };
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
        // A caller that posts no receives breaks its own connection, and holds a staging buffer no longer
        // than that takes.
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

    /// A connection of the runtime with the tenant's limits, for answers to the memory that the caller
    /// offers.
    fn let_in(&mut self, caller: &Caller<'_>) -> Result<ConnectionId> {
        let slice = caller.peer.slices.first().context("the caller offers no memory for answers")?;
        let window =
            ResponseWindow { address: slice.address, length: slice.length.into(), rkey: slice.rkey.value() };
        let runtime = self.server.runtime();
        let id = runtime.connect(window, caller.tenant.share)?;
        runtime.limit(id, caller.tenant.allowance)?;
        runtime.allow_deployment(id, caller.kind == ConnectionKind::Deploy)?;
        Ok(id)
    }

    fn serve(&mut self, index: usize, queue_pair: QueuePair<Owned<'d, H>>, id: ConnectionId) -> Result<()> {
        let attached = self.endpoint.attach(index, queue_pair);
        attached.map_err(|_| anyhow::anyhow!("connection {index} is taken"))?;
        self.server.serve(&mut self.endpoint, index, id).context("posting receives")
    }

    /// Grants what the caller's purpose needs, and describes it in the introduction.
    fn offer(&mut self, caller: &Caller<'_>, id: ConnectionId, own: &mut Introduction) -> Result<()> {
        let offer = Offer::new(SHARE as u32, self.limits);
        let offer = match (self.lookup.view(), caller.kind) {
            (Some(view), ConnectionKind::Lookup) => {
                let table = if caller.tenant.write { view.grant.writable() } else { view.grant };
                let region = self.server.runtime().grant(id, table)?.0;
                offer.of_table(region, view.max_value, &view.descriptor)
            }
            (Some(view), ConnectionKind::Read) => {
                own.slices.extend(view.readable);
                offer.of_table(0, view.max_value, &view.descriptor)
            }
            _ => offer,
        };
        own.data = offer.to_data()?;
        Ok(())
    }

    /// Ends the connections that `which` selects, and tells their callers why.
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
        self.lose_host(now, why);
        self.leave(now, |_| true, why);
    }

    /// Ends the connections of these tenants.
    pub(super) fn end_tenants(&mut self, now: Time, names: &[String]) {
        let why = "the service's configuration of this tenant was changed: call again";
        if self.host.as_ref().is_some_and(|host| names.contains(&host.tenant)) {
            self.lose_host(now, why);
        }
        self.leave(now, |tenancy| names.contains(&tenancy.tenant), why);
    }

    fn begin_to_leave(&mut self, now: Time, index: usize, why: &str) {
        let Some(tenancy) = &mut self.tenancies[index] else { return };
        let (number, tenant) = (tenancy.number, tenancy.tenant.as_str());
        tracing::info!(number, tenant, kind = ?tenancy.kind, "disconnected: {why}");
        // The caller may have hung up already.
        let _ = tenancy.farewell.send(why.to_owned());
        tenancy.leaving = Some(now);
        self.server.dismiss(index);
        if let Err(error) = self.endpoint.break_off(index) {
            tracing::error!(number, "the queue pair cannot be moved to ERROR: {error}");
        }
    }

    /// Notices a broken connection, and frees the place of a flushed one.
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

    /// Finishes running requests, and begins nothing new.
    pub(super) fn drain(&mut self) {
        self.server.runtime().drain();
    }

    /// Whether all requests have been answered.
    pub(super) fn is_idle(&self) -> bool {
        self.server.is_idle() && (0..CONNECTIONS).all(|index| self.endpoint.is_sent(index))
    }

    /// The current counters and state.
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
            rows: self.lookup.view().map_or(0, |view| view.rows),
        }
    }
}
