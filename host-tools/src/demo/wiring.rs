//! The setup: boots a host, fills the table, connects a client to each of its servers.

use super::data::{Row, table_config, table_size};
use super::hosts::{DPU_SLOTS, Handle, Host, LookupClient, SceneConfig, TableDma, WINDOW, Writer};
use crate::glue::NicKernels;
use anyhow::{Context as _, anyhow};
use bareverbs::device::{Device, DeviceConfig};
use bareverbs::gid::GidEntry;
use bareverbs::memory_region::{AccessFlags, MemoryRegion};
use bareverbs::offload::budget::Limits;
use bareverbs::offload::card::CardDma;
use bareverbs::offload::client::slots::SlotLayout;
use bareverbs::offload::client::{ClientConfig, KvClient, Way};
use bareverbs::offload::cost::KernelCost;
use bareverbs::offload::grant::{Grant, HostRegion};
use bareverbs::offload::kernels::BuiltInKernels;
use bareverbs::offload::kernels::kv_layout::object_size;
use bareverbs::offload::runtime::ResponseWindow;
use bareverbs::offload::table::{TableConfig, TableDescriptor, TablePolicy, TableWriter};
use bareverbs::offload::verbs::{INLINE, RegionTable, VerbsEndpoint};
use bareverbs::prm::ids::{Gid, MacAddress, VhcaId};
use bareverbs::prm::numbering::PathMtu;
use bareverbs::prm::time::{Duration, Time};
use bareverbs::protection_domain::ProtectionDomain;
use bareverbs::queue_pair::{ConnectOptions, PreparedQueuePair, QueuePair, QueuePairBuilder};
use bareverbs::sim::SimWorld;
use bareverbs::sim::nic::{CardFunction, Nic, NicConfig};
use bareverbs::sim::run::{self, SwitchId};
use bareverbs::{AccessKey, CompletionQueue, CompletionQueueConfig, RemoteVhcaRegion, SharedRegion};
use rand_core::RngCore;
use std::rc::Rc;

/// Send queue depth of each queue pair.
pub(crate) const DEPTH: u32 = 64;
/// How long a client waits for an answer. Lost frames are retransmitted long before.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of an invocation on the server.
const KERNEL_TIME: Duration = Duration::from_millis(1);

/// The table, as the parties have to know it.
#[derive(Clone, Copy)]
pub(super) struct Published {
    descriptor: TableDescriptor,
    address: u64,
    length: u64,
    rkey: u32,
    max_value: u32,
    /// What the DPU needs to open its alias.
    shared: SharedRegion,
}

pub(super) fn limits() -> Limits {
    Limits { time: KERNEL_TIME, ..Limits::default() }
}

/// Cost of a program's instruction. Interpreting one takes 1.0 ns on the development machine; an Arm core of
/// a BlueField is slower.
const PER_FUEL: Duration = Duration::from_nanos(2);

/// One core, or one engine in the NIC, carries out all kernels of a runtime.
pub(crate) const fn kernel_cost(cost: run::KernelCost) -> KernelCost {
    KernelCost { dispatch: cost.dispatch, per_dma: cost.per_dma, per_fuel: PER_FUEL, one_core: true }
}

/// Adds host `number` to the world, boots its driver and gives it the address 10.0.0.`number`.
pub(crate) fn host(
    world: &SimWorld<Nic>,
    config: &SceneConfig,
    switch: SwitchId,
    name: &str,
    number: u8,
    kernels: &NicKernels<BuiltInKernels>,
) -> anyhow::Result<Host> {
    let mac = MacAddress([0x02, 0, 0, 0, 0, number]);
    // Server and DPU are functions of one card. The client's card does not matter.
    let card = Some(CardFunction::bluefield3(VhcaId::from_low_bits(number.into())));
    let mut nic = Nic::new(NicConfig { strom: true, strict: true, card, ..NicConfig::new(mac) });
    if name == "server" {
        nic.set_extension(Box::new(kernels.clone()));
    }
    let node = world.add_node(name, nic, config.preset.node, config.memory);
    world.connect(node, switch, config.preset.link).context("joining a host to the switch")?;
    let device = Device::open(world.hal(node), DeviceConfig::default())
        .with_context(|| format!("opening the device of the {name}"))?;
    let device = Rc::new(device);
    let gid = Gid::from_ipv4([10, 0, 0, number]);
    device.set_gid(0, GidEntry::roce_v2(gid, mac)).context("setting an address")?;
    let domain = ProtectionDomain::allocate(device.clone()).context("allocating a protection domain")?;
    Ok(Host { node, device, domain })
}

/// Fills a table in the memory of the server.
pub(super) fn publish(
    world: &SimWorld<Nic>,
    server: &Host,
    rows: &[Row],
    changes: u64,
) -> anyhow::Result<(Writer, Published, Rc<MemoryRegion<Handle>>)> {
    let (config, length) = plan(rows, changes);
    let region = MemoryRegion::allocate(&server.domain, length, AccessFlags::REMOTE_READ)
        .with_context(|| format!("allocating {length} bytes for the table"))?;
    let shared =
        SharedRegion::share(&region, access_key(world)?).context("sharing the table with the DPU")?;
    let region = Rc::new(region);
    let memory = RegionTable::new(Rc::clone(&region), server.device.clone());
    let mut writer = TableWriter::create(memory, &config).context("making the table")?;
    for row in rows {
        writer
            .insert(Time::ZERO, &row.key, &row.value)
            .with_context(|| format!("inserting {:?}", String::from_utf8_lossy(&row.key)))?;
    }
    let descriptor = *writer.descriptor();
    let max_value = rows.iter().map(|row| row.value.len()).max().unwrap_or_default() as u32;
    let (address, rkey) = (region.address(), region.rkey().value());
    Ok((writer, Published { descriptor, address, length: length as u64, rkey, max_value, shared }, region))
}

/// The table's configuration and size. A table that will be changed begins with half as many buckets and
/// grows; it has room for that, for keys that are added, and for replaced values that may still be read.
fn plan(rows: &[Row], changes: u64) -> (TableConfig, usize) {
    let policy = TablePolicy { lease: KERNEL_TIME, ..TablePolicy::default() };
    let config = table_config(rows.len(), policy);
    let length = table_size(&config, rows);
    if changes == 0 {
        return (config, length);
    }
    let buckets = config.buckets / 2 + 1;
    let policy = TablePolicy { max_buckets: buckets.saturating_mul(16), ..policy };
    let longest = rows.iter().map(|row| object_size(row.key.len(), row.value.len()) as usize).max();
    let replaced = (longest.unwrap_or_default() * REPLACED).min(MOST_REPLACED);
    (
        TableConfig { buckets, policy, ..config },
        2 * length + rows.len() * FOR_GROWTH + replaced + FOR_GROWTH * 64,
    )
}

/// Number of replaced values that may still be read, and the most bytes that a table has for them.
const REPLACED: usize = 320;
const MOST_REPLACED: usize = 8 << 20;
/// Bytes per row for growth and for keys that are added.
const FOR_GROWTH: usize = 1024;

/// The secret of the table, drawn from the seed like everything random.
pub(crate) fn access_key(world: &SimWorld<Nic>) -> anyhow::Result<AccessKey> {
    let mut bytes = [0; 32];
    world.with(|world| world.seed().stream("access key of the table")).fill_bytes(&mut bytes);
    Ok(AccessKey::new(bytes)?)
}

/// Makes connections, and keeps the serving ends that have no other owner.
pub(super) struct Wiring {
    pub(super) table: Published,
    pub(super) served: Vec<Connected>,
}

/// A queue pair that is not connected, with the objects it uses.
pub(crate) struct UnconnectedPair {
    pub(crate) queue_pair: PreparedQueuePair<Handle>,
    pub(crate) completions: CompletionQueue<Handle>,
}

impl Wiring {
    /// The DPU's access to the memory of its host: an alias of the table, and DMA work requests.
    pub(super) fn dma(
        &self,
        dpu: &Host,
        memory: &MemoryRegion<Handle>,
    ) -> anyhow::Result<(TableDma, HostRegion)> {
        let completions = completions(dpu, DPU_SLOTS as u32)?;
        let alias = RemoteVhcaRegion::open(&dpu.domain, &self.table.shared)
            .context("making an alias of the table")?;
        let mut dma = CardDma::create(&dpu.domain, completions, memory, 0)
            .context("creating a queue for DMA work requests")?;
        let shared = dma.add(alias).map_err(|_| anyhow!("the DMA channel has no room for the table"))?;
        Ok((dma, shared))
    }

    pub(super) fn ask_nic(
        &mut self,
        client: &Host,
        server: &Host,
        kernels: &NicKernels<BuiltInKernels>,
    ) -> anyhow::Result<LookupClient> {
        let slots = self.slots(client)?;
        let ((queue_pair, completions), far) = join(unconnected_pair(client)?, unconnected_pair(server)?)?;
        let region =
            kernels.admit(far.0.qpn(), window(&slots), self.grant()?).context("admitting the client")?;
        self.served.push(far);
        Ok(self.lookup_client(Way::KernelNic(region), queue_pair, completions, slots))
    }

    pub(super) fn ask_by_read(&mut self, client: &Host, server: &Host) -> anyhow::Result<LookupClient> {
        let slots = self.slots(client)?;
        let ((queue_pair, completions), far) = join(unconnected_pair(client)?, unconnected_pair(server)?)?;
        self.served.push(far);
        let way = Way::Read { rkey: self.table.rkey, region: self.grant()? };
        Ok(self.lookup_client(way, queue_pair, completions, slots))
    }

    fn grant(&self) -> anyhow::Result<Grant> {
        Grant::new(self.table.address, self.table.length).context("granting the table")
    }

    /// The table as the DPU reaches it, in this region of its DMA queue.
    pub(super) fn grant_within(&self, region: HostRegion) -> anyhow::Result<Grant> {
        Grant::within(region, self.table.address, self.table.length).context("granting the table")
    }

    /// The table as a core of the server reaches it.
    pub(super) fn own_grant(&self) -> anyhow::Result<Grant> {
        Grant::within(HostRegion(0), 0, self.table.length).context("granting the table")
    }

    /// Memory of the client for response slots.
    pub(super) fn slots(&self, client: &Host) -> anyhow::Result<MemoryRegion<Handle>> {
        response_slots(client, ClientConfig::stride(self.table.max_value) as usize * WINDOW)
    }

    pub(super) fn lookup_client(
        &self,
        way: Way,
        queue_pair: QueuePair<Handle>,
        completions: CompletionQueue<Handle>,
        slots: MemoryRegion<Handle>,
    ) -> LookupClient {
        let layout = SlotLayout {
            address: slots.address(),
            rkey: slots.rkey().value(),
            stride: ClientConfig::stride(self.table.max_value),
            max_response: self.table.max_value,
        };
        let credits = WINDOW as u32;
        let table = self.table.descriptor;
        let config = ClientConfig { way, table, layout, credits, timeout: TIMEOUT, limits: limits() };
        let endpoint = VerbsEndpoint::new([queue_pair], completions, slots, DEPTH);
        LookupClient { client: KvClient::new(config), endpoint }
    }
}

/// Memory of the client that servers write to.
pub(crate) fn response_slots(client: &Host, length: usize) -> anyhow::Result<MemoryRegion<Handle>> {
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    MemoryRegion::allocate(&client.domain, length, access).context("allocating response slots")
}

pub(crate) fn window(slots: &MemoryRegion<Handle>) -> ResponseWindow {
    ResponseWindow { address: slots.address(), length: slots.len() as u64, rkey: slots.rkey().value() }
}

pub(crate) fn completions(host: &Host, entries: u32) -> anyhow::Result<CompletionQueue<Handle>> {
    CompletionQueue::create(host.device.clone(), CompletionQueueConfig { entries })
        .context("creating a completion queue")
}

pub(crate) fn prepared(
    host: &Host,
    completions: &CompletionQueue<Handle>,
) -> anyhow::Result<PreparedQueuePair<Handle>> {
    QueuePairBuilder::new(&host.domain, completions, completions)
        .send_queue(DEPTH)
        .receive_queue(DEPTH)
        .max_inline(INLINE)
        .build()
        .context("creating a queue pair")
}

pub(crate) fn unconnected_pair(host: &Host) -> anyhow::Result<UnconnectedPair> {
    let completions = completions(host, 2 * DEPTH)?;
    Ok(UnconnectedPair { queue_pair: prepared(host, &completions)?, completions })
}

/// A connected queue pair, with its completion queue.
pub(crate) type Connected = (QueuePair<Handle>, CompletionQueue<Handle>);

pub(crate) fn join(a: UnconnectedPair, b: UnconnectedPair) -> anyhow::Result<(Connected, Connected)> {
    let (near, far) = connect(a.queue_pair, b.queue_pair)?;
    Ok(((near, a.completions), (far, b.completions)))
}

pub(crate) fn connect(
    a: PreparedQueuePair<Handle>,
    b: PreparedQueuePair<Handle>,
) -> anyhow::Result<(QueuePair<Handle>, QueuePair<Handle>)> {
    // An ACK that takes longer than about a millisecond is lost: any path through the network takes a few
    // microseconds.
    let options = ConnectOptions { path_mtu: PathMtu::Mtu1024, ack_timeout: 8, ..ConnectOptions::default() };
    let near = a.endpoint(0).context("our side of the connection")?;
    let far = b.endpoint(0).context("their side of the connection")?;
    Ok((a.connect(&far, options).context("connecting")?, b.connect(&near, options).context("connecting")?))
}
