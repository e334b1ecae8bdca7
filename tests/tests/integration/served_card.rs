//! A served DPU: the host and the Arm cores are two functions of one card. Each is served over vfio-user by a
//! thread of its own, as `bareverbs serve --dpu` does. The errors are those of `hal/sim/tests/card.rs`, where
//! the card runs in virtual time.

use bareverbs_core::command::CommandFailure;
use bareverbs_core::gid::GidEntry;
use bareverbs_core::remote_vhca_region::AliasError;
use bareverbs_core::shared_region::ShareError;
use bareverbs_core::{
    AccessFlags, AccessKey, CompletionQueue, CompletionQueueConfig, Device, DeviceConfig, DmaCopy, DmaQueue,
    DmaQueueConfig, IndirectRegion, MemoryRegion, MemorySlice, ProtectionDomain, RemoteVhcaRegion,
    SharedRegion, WorkCompletion, WorkCompletionOpcode, WorkCompletionStatus,
};
use bareverbs_hal::memory::ArenaConfig;
use bareverbs_hal::vfio_user::{VfioUserConfig, VfioUserHal};
use bareverbs_prm::ids::{Gid, MacAddress, MkeyIndex, VhcaId};
use bareverbs_prm::numbering::CqeSyndrome;
use bareverbs_prm::time::Duration;
use bareverbs_serve::real_time::Card;
use bareverbs_serve::vfio_user::{Server, ServerConfig};
use bareverbs_sim::nic::{CardFunction, NicConfig, syndrome};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

const HOST: u8 = 1;
const ARM: u8 = 2;
/// A function of another card.
const STRANGER: u8 = 3;
const REGION: usize = 4 << 20;
/// The longest copy of a BlueField-3.
const LONGEST: usize = 2 << 20;
/// Longest wait for one completion.
const TIMEOUT: Duration = Duration::from_secs(20);

type Handle = Rc<Device<VfioUserHal>>;

/// A function and its open driver.
struct Function {
    device: Handle,
    domain: ProtectionDomain<Handle>,
}

impl Function {
    /// Connects to a served function, which resets it.
    fn open(socket: &Path) -> Self {
        let memory = ArenaConfig { segment: 16 << 20, ..ArenaConfig::default() };
        let config = VfioUserConfig { memory, ..VfioUserConfig::default() };
        let hal = VfioUserHal::connect(socket, config).unwrap_or_else(|error| panic!("{error}"));
        let device = Device::open(hal, DeviceConfig::default()).unwrap_or_else(|error| panic!("{error}"));
        // A queue of DMA work requests is connected to itself, for which it needs an address.
        let mac = device.port().unwrap().mac;
        device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, mac.0[5]]), mac)).unwrap();
        let device = Rc::new(device);
        let domain = ProtectionDomain::allocate(device.clone()).unwrap();
        Self { device, domain }
    }

    fn memory(&self, length: usize) -> MemoryRegion<Handle> {
        MemoryRegion::allocate(&self.domain, length, AccessFlags::LOCAL_WRITE).unwrap()
    }
}

/// Where functions are served. The servers' threads end with the test program.
struct CardSockets(tempfile::TempDir);

impl CardSockets {
    /// The host and the Arm cores of one card, and a function of another card.
    fn open(shares_indirect_keys: bool) -> Self {
        let sockets = Self(tempfile::tempdir().unwrap());
        let card = Card::default();
        for (number, card) in [(HOST, card.clone()), (ARM, card), (STRANGER, Card::default())] {
            let function = CardFunction::bluefield3(VhcaId::from_low_bits(number.into()));
            let function = CardFunction { shares_indirect_keys, ..function };
            let mac = MacAddress([2, 0, 0, 0, 2, number]);
            let nic = NicConfig { card: Some(function), ..NicConfig::new(mac) };
            let config = ServerConfig { card: Some(card), ..ServerConfig::new(nic) };
            let mut server = Server::bind(&sockets.path(number), config).unwrap();
            std::thread::spawn(move || while server.serve().is_ok() {});
        }
        sockets
    }

    fn path(&self, number: u8) -> PathBuf {
        self.0.path().join(format!("function{number}"))
    }
}

/// The host's function and the region that it shares.
struct Host {
    region: MemoryRegion<Handle>,
    function: Function,
}

impl Host {
    fn open(socket: &Path) -> Self {
        let function = Function::open(socket);
        Self { region: function.memory(REGION), function }
    }
}

/// A host that shares a region, and an Arm side with an alias of it and a DMA queue. Fields are dropped in this order.
struct ServedCard {
    queue: DmaQueue<Handle>,
    completions: CompletionQueue<Handle>,
    alias: RemoteVhcaRegion<Handle>,
    local: MemoryRegion<Handle>,
    arm: Function,
    host: Option<Host>,
    sockets: CardSockets,
}

impl ServedCard {
    fn new() -> Self {
        let sockets = CardSockets::open(true);
        let (host, arm) = (Host::open(&sockets.path(HOST)), Function::open(&sockets.path(ARM)));
        let alias = open(&arm, &share(&host.region)).unwrap_or_else(|error| panic!("{error}"));
        let completions =
            CompletionQueue::create(arm.device.clone(), CompletionQueueConfig { entries: 256 }).unwrap();
        let queue = dma_queue(&arm, &completions);
        let local = arm.memory(REGION);
        Self { queue, completions, alias, local, arm, host: Some(host), sockets }
    }

    fn host(&mut self) -> &mut Host {
        self.host.as_mut().expect("the host is there")
    }

    /// A request that copies `length` bytes from the host to the Arm side, at the same offset.
    fn read(&self, id: u64, offset: usize, length: usize) -> DmaCopy {
        let from = self.alias.slice(offset as u64, length as u32).unwrap();
        DmaCopy::new(id, from, self.local.slice(offset, length).unwrap())
    }

    fn wait(&mut self) -> WorkCompletion {
        let deadline = bareverbs_core::hal::Hal::now(self.arm.device.hal()) + TIMEOUT;
        self.completions.wait_one(deadline).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Copies and waits for the completion.
    fn copy(&mut self, copy: &DmaCopy) -> WorkCompletion {
        self.queue.post(copy).unwrap();
        self.wait()
    }

    /// Takes the region back while copies of it are in flight. Some may have succeeded; the first one that
    /// failed says why.
    fn take_back_in_the_middle(&mut self, take_back: impl FnOnce(&mut Self)) {
        let copies: Vec<_> = (0..64).map(|id| self.read(id, 0, LONGEST)).collect();
        assert_eq!(self.queue.post_all(&copies).unwrap(), 64);
        take_back(self);
        let mut ends: Vec<_> = (0..64).map(|_| self.wait()).collect();
        assert!(ends.iter().map(|end| end.wr_id).eq(0..64), "each has an end, in order");
        ends.retain(|end| !end.is_success());
        if ends.is_empty() {
            // The region outlived all of them. A later copy finds no region.
            let late = self.read(64, 0, 64);
            ends.push(self.copy(&late));
        }
        assert_taken_back(&ends[0]);
        let flushed = WorkCompletionStatus::Failed(CqeSyndrome::WorkRequestFlushed);
        assert!(ends[1..].iter().all(|end| end.status == flushed), "{ends:?}");
        self.wait_until_unusable();
    }

    /// Waits until the device says that the alias leads nowhere. The owner's function fails the copies. That its keys are gone is a notice
    /// to the other functions of the card, which may arrive a moment later.
    fn wait_until_unusable(&self) {
        let hal = self.arm.device.hal();
        let deadline = bareverbs_core::hal::Hal::now(hal) + TIMEOUT;
        while self.alias.is_usable().unwrap() {
            assert!(bareverbs_core::hal::Hal::now(hal) < deadline, "the alias outlived its region");
            std::thread::yield_now();
        }
    }

    /// A new queue can read what the host shares now.
    fn share_again(&mut self) {
        self.host().region.copy_in(0, &pattern(4096)).unwrap();
        let shared = share(&self.host().region);
        self.alias = open(&self.arm, &shared).unwrap_or_else(|error| panic!("{error}"));
        self.queue = dma_queue(&self.arm, &self.completions);
        let copy = self.read(99, 0, 4096);
        assert_eq!(self.copy(&copy).into_result().unwrap().wr_id, 99);
        assert_eq!(bytes(&self.local, 0, 4096), pattern(4096));
    }
}

fn dma_queue(arm: &Function, completions: &CompletionQueue<Handle>) -> DmaQueue<Handle> {
    DmaQueue::create(&arm.domain, completions, DmaQueueConfig::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn secret() -> AccessKey {
    AccessKey::new(core::array::from_fn(|i| (i as u8).wrapping_mul(37) ^ 0x5a)).unwrap()
}

fn share(region: &MemoryRegion<Handle>) -> SharedRegion {
    SharedRegion::share(region, secret()).unwrap_or_else(|error| panic!("{error}"))
}

fn open(arm: &Function, shared: &SharedRegion) -> Result<RemoteVhcaRegion<Handle>, AliasError> {
    RemoteVhcaRegion::open(&arm.domain, shared)
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 + i / 251) as u8).collect()
}

fn bytes(region: &MemoryRegion<Handle>, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    region.copy_out(offset, &mut bytes).unwrap();
    bytes
}

#[track_caller]
fn assert_taken_back(end: &WorkCompletion) {
    assert_eq!(end.opcode, WorkCompletionOpcode::DmaCopy);
    assert_eq!(end.status, WorkCompletionStatus::Failed(CqeSyndrome::LocalProtection));
    let text = end.into_result().unwrap_err().to_string();
    assert!(text.contains("once its owner drops the region or resets"), "{text}");
}

/// The syndrome with which the device refuses an alias.
#[track_caller]
fn refused(outcome: Result<RemoteVhcaRegion<Handle>, AliasError>) -> u32 {
    match outcome {
        Err(AliasError::Refused { error, .. }) => match error.failure {
            CommandFailure::Refused { syndrome, .. } => syndrome,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_arm_side_reads_and_writes_the_host_through_both_sockets() {
    let mut card = ServedCard::new();
    for (round, length) in [1, 64, 4096, 65_537, LONGEST].into_iter().enumerate() {
        card.host().region.copy_in(round, &pattern(length)).unwrap();
        let read = card.read(0, round, length);
        assert!(card.copy(&read).is_success(), "{length} bytes read");
        assert_eq!(bytes(&card.local, round, length), pattern(length));
        let inverted: Vec<u8> = pattern(length).iter().map(|byte| !byte).collect();
        card.local.copy_in(round, &inverted).unwrap();
        let to = card.alias.slice(round as u64, length as u32).unwrap();
        let write = DmaCopy::new(1, card.local.slice(round, length).unwrap(), to);
        assert!(card.copy(&write).is_success(), "{length} bytes written");
        assert_eq!(bytes(&card.host().region, round, length), inverted);
    }
}

#[test]
fn a_wrong_secret_a_wrong_function_and_a_wrong_key_give_no_alias() {
    let mut card = ServedCard::new();
    let shared = share(&card.host().region);
    let other_secret = AccessKey::new(core::array::from_fn(|i| i as u8)).unwrap();
    let wrong = SharedRegion { access_key: other_secret, ..shared };
    assert_eq!(refused(open(&card.arm, &wrong)), syndrome::ALIAS_ACCESS_KEY.syndrome);
    for vhca_id in [99, STRANGER.into()].map(VhcaId::from_low_bits) {
        let wrong = SharedRegion { vhca_id, ..shared };
        assert_eq!(refused(open(&card.arm, &wrong)), syndrome::ALIAS_TARGET.syndrome);
    }
    let wrong = SharedRegion { key: MkeyIndex::from_low_bits(0x4321), ..shared };
    assert_eq!(refused(open(&card.arm, &wrong)), syndrome::ALIAS_TARGET.syndrome);
    // The secret does not help a function of another card.
    let stranger = Function::open(&card.sockets.path(STRANGER));
    assert_eq!(refused(open(&stranger, &shared)), syndrome::ALIAS_TARGET.syndrome);
    // A new secret keeps the aliases that the old one authorized.
    SharedRegion::share(&card.host().region, other_secret).unwrap();
    assert_eq!(refused(open(&card.arm, &shared)), syndrome::ALIAS_ACCESS_KEY.syndrome);
    assert!(card.alias.is_usable().unwrap());
}

/// A memory key belongs to its function: a key of the host is not valid on the Arm side, even while the host
/// shares it.
#[test]
fn a_host_key_is_invalid_on_the_arm_side() {
    let mut card = ServedCard::new();
    card.host().region.copy_in(0, &[7; 64]).unwrap();
    // Both functions number their keys alike, so take one that the Arm side has not created itself.
    let mut spare: Vec<_> = (0..8).map(|_| card.host().function.memory(4096)).collect();
    let unlike = |region: &MemoryRegion<Handle>| {
        ![card.alias.lkey().index(), card.local.lkey().index()].contains(&region.lkey().index())
    };
    let at = spare.iter().rposition(unlike).unwrap();
    let foreign = spare.swap_remove(at);
    share(&foreign);
    let from = MemorySlice::from_raw(foreign.address(), 64, foreign.lkey());
    let crossing = DmaCopy::new(1, from, card.local.slice(0, 64).unwrap());
    let end = card.copy(&crossing);
    assert_eq!(end.status, WorkCompletionStatus::Failed(CqeSyndrome::LocalProtection), "{end:?}");
    assert_eq!(bytes(&card.local, 0, 64), [0; 64], "nothing was read");
    card.share_again();
}

/// A ConnectX-7 can share regions, but refuses keys that are built from other keys (UCX pull request
/// 10980).
#[test]
fn a_region_of_other_regions_is_not_shared_by_a_card_that_follows_no_keys() {
    for follows in [false, true] {
        let sockets = CardSockets::open(follows);
        let [host, arm] = [HOST, ARM].map(|number| Function::open(&sockets.path(number)));
        let parts = [host.memory(4096), host.memory(4096)];
        let slices = parts.each_ref().map(|part| part.slice(0, 4096).unwrap());
        let region = IndirectRegion::create(&host.domain, &slices, AccessFlags::LOCAL_WRITE).unwrap();
        let shared = SharedRegion::share_indirect(&region, secret());
        if follows {
            let alias = open(&arm, &shared.unwrap()).unwrap_or_else(|error| panic!("{error}"));
            assert!(alias.is_usable().unwrap());
            continue;
        }
        let Err(ShareError::NotShareable(error)) = shared else { panic!("{shared:?}") };
        let CommandFailure::Refused { syndrome, .. } = error.failure else { panic!("{error:?}") };
        assert_eq!(syndrome, 0x17_2df6);
        let said = ShareError::NotShareable(error).to_string();
        assert!(said.contains("share a region of pages that is not made of others"), "{said}");
        // Its parts can be shared.
        assert!(open(&arm, &share(&parts[0])).is_ok());
    }
}

#[test]
fn a_region_that_the_host_drops_in_the_middle_ends_the_copies() {
    let mut card = ServedCard::new();
    card.take_back_in_the_middle(|card| {
        let Host { region, function } = card.host();
        drop(core::mem::replace(region, function.memory(REGION)));
    });
    card.share_again();
}

/// The host runs in a process of its own, which is killed: nobody destroys its keys, and its function is
/// reset.
#[test]
fn a_host_that_dies_in_the_middle_ends_the_copies() {
    if let Some(socket) = std::env::var_os(HOST_SOCKET) {
        return share_until_killed(Path::new(&socket));
    }
    let mut card = ServedCard::new();
    drop(card.host.take());
    let (mut process, shared) = host_process(&card.sockets.path(HOST));
    card.alias = open(&card.arm, &shared).unwrap_or_else(|error| panic!("{error}"));
    let read = card.read(1, 0, 4096);
    assert!(card.copy(&read).is_success());
    assert_eq!(bytes(&card.local, 0, 4096), pattern(4096), "of the other process");
    card.take_back_in_the_middle(|_| process.kill().unwrap());
    process.wait().unwrap();
    card.host = Some(Host::open(&card.sockets.path(HOST)));
    card.share_again();
}

/// Names the host's socket to the host's process.
const HOST_SOCKET: &str = "BAREVERBS_SERVED_CARD_HOST";

/// Runs this test again as the host in another process. Returns the process and what it shares.
fn host_process(socket: &Path) -> (Child, SharedRegion) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "served_card::a_host_that_dies_in_the_middle_ends_the_copies", "--nocapture"]);
    let mut process = command.env(HOST_SOCKET, socket).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
    let numbers: Vec<u64> = lines
        .flat_map(|line| line.split_once("shared: ").map(|(_, rest)| rest.to_owned()))
        .next()
        .expect("the host shares a region")
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    let [vhca_id, key] = [numbers[0] as u32, numbers[1] as u32];
    let shared = SharedRegion {
        vhca_id: VhcaId::from_low_bits(vhca_id),
        key: MkeyIndex::from_low_bits(key),
        address: numbers[2],
        length: REGION as u64,
        access_key: secret(),
    };
    (process, shared)
}

fn share_until_killed(socket: &Path) {
    let host = Host::open(socket);
    host.region.copy_in(0, &pattern(4096)).unwrap();
    let SharedRegion { vhca_id, key, address, .. } = share(&host.region);
    println!("shared: {} {} {address}", vhca_id.value(), key.value());
    std::thread::sleep(std::time::Duration::from_secs(60));
    panic!("nobody killed the host");
}
