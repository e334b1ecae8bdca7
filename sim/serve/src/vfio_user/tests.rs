//! The server against a client of the protocol: configuration space, BAR0, memory, interrupts, and protocol violations.

use super::socket::WAITING;
use super::*;
use bareverbs_prm::command::entry::CommandQueueEntry;
use bareverbs_prm::command::hca::{EnableHcaIn, QueryIssiIn};
use bareverbs_prm::doorbell::init_segment;
use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::numbering::CommandOpcode;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Barrier;
use std::sync::mpsc::Receiver as Farewells;
use std::time::Instant;
use tempfile::TempDir;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_BAR0_REGION_INDEX,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::Client;
use zerocopy::{FromBytes, IntoBytes};

const BAR: u32 = VFIO_PCI_BAR0_REGION_INDEX;
const CONFIG: u32 = VFIO_PCI_CONFIG_REGION_INDEX;
const QUEUE: u64 = 0x1000;
const MEMORY: u64 = 0x10_0000;

/// A server on its own thread that serves one client after another.
struct Rig {
    directory: TempDir,
    farewells: Farewells<Farewell>,
}

impl Rig {
    fn new() -> Self {
        Self::with_limit(LIMIT)
    }

    /// A server with this time limit for the rest of a message.
    fn with_limit(limit: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let nic = NicConfig::infiniband(MacAddress([2, 0, 0, 0, 0, 1]));
        let config = ServerConfig { trace_commands: true, ..ServerConfig::new(nic) };
        let mut server = Server::bind(&directory.path().join("nic"), config).unwrap();
        server.limit = limit;
        let (sender, farewells) = channel();
        std::thread::spawn(move || while sender.send(server.serve().unwrap()).is_ok() {});
        Self { directory, farewells }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("nic")
    }

    fn client(&self) -> Machine {
        Machine::new(Client::new(&self.path()).unwrap())
    }

    fn farewell(&self) -> Farewell {
        self.farewells.recv_timeout(std::time::Duration::from_secs(20)).unwrap()
    }
}

/// A client with memory.
struct Machine {
    client: Client,
    memory: File,
}

impl Machine {
    fn new(mut client: Client) -> Self {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(MEMORY).unwrap();
        client.dma_map(0, 0, MEMORY, memory.as_raw_fd()).unwrap();
        Self { client, memory }
    }

    fn read32(&mut self, region: u32, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.client.region_read(region, offset, &mut bytes).unwrap();
        if region == BAR { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn write32(&mut self, offset: u64, value: u32) {
        self.client.region_write(BAR, offset, &value.to_be_bytes()).unwrap();
    }

    /// Waits for the firmware and sets the command queue address.
    fn boot(&mut self) {
        while self.read32(BAR, init_segment::INITIALIZING as u64) >> 31 != 0 {}
        self.write32(init_segment::CMDQ_ADDRESS_HIGH as u64, 0);
        self.write32(init_segment::CMDQ_ADDRESS_LOW as u64, QUEUE as u32);
    }

    /// Runs an inline command in slot 0. Returns delivery status and output.
    fn command(&mut self, input: &[u8]) -> Option<(u8, [u8; 16])> {
        let mut entry = CommandQueueEntry::new();
        let mut inline = [0; 16];
        inline[..input.len()].copy_from_slice(input);
        entry.set_kind(7).set_input_length(16).set_output_length(16).set_ownership(true);
        entry.set_command_input_inline_data(inline);
        self.memory.write_all_at(entry.as_bytes(), QUEUE).unwrap();
        self.write32(init_segment::COMMAND_DOORBELL as u64, 1);
        // A read after the doorbell returns once the command is done.
        self.read32(BAR, 0);
        let mut bytes = [0; 64];
        self.memory.read_exact_at(&mut bytes, QUEUE).unwrap();
        let entry = CommandQueueEntry::read_from_bytes(&bytes).unwrap();
        (!entry.ownership()).then(|| (entry.status(), entry.command_output_inline_data()))
    }

    fn enable(&mut self) -> Option<(u8, [u8; 16])> {
        let mut input = EnableHcaIn::new();
        input.set_opcode(CommandOpcode::EnableHca);
        self.command(input.as_bytes())
    }
}

#[test]
fn a_client_boots_the_device() {
    let rig = Rig::new();
    let mut machine = rig.client();
    assert_eq!(machine.read32(CONFIG, 0), 0x1017_15b3);
    assert_eq!(machine.client.region(BAR).unwrap().size, 16 << 20);
    assert_eq!(machine.client.get_irq_info(VFIO_PCI_MSIX_IRQ_INDEX).unwrap().count, 64);
    machine.boot();
    assert_eq!(machine.enable(), Some((0, [0; 16])));
    let mut unknown = QueryIssiIn::new();
    unknown.set_opcode(CommandOpcode::from_raw(0xbad));
    let (delivery, output) = machine.command(unknown.as_bytes()).unwrap();
    assert_eq!((delivery, output[0], &output[4..8]), (0, 2, &[0xde, 0xad, 0x0b, 0xad][..]));
    assert_eq!(machine.enable().map(|(_, output)| output[0]), Some(4), "enabled already");
    machine.client.reset().unwrap();
    assert_eq!(machine.enable(), None, "a reset forgets the command queue");
    machine.boot();
    assert_eq!(machine.enable(), Some((0, [0; 16])));
}

#[test]
fn a_bar_can_be_sized_and_read_in_any_width() {
    let rig = Rig::new();
    let mut machine = rig.client();
    machine.client.region_write(CONFIG, 0x10, &[0xff; 8]).unwrap();
    let low = machine.read32(CONFIG, 0x10);
    assert_eq!(
        u64::from(machine.read32(CONFIG, 0x14)) << 32 | u64::from(low & !0xf),
        (16u64 << 20).wrapping_neg()
    );
    let mut wide = [0; 8];
    machine.client.region_read(BAR, 0, &mut wide).unwrap();
    let mut odd = [0; 3];
    machine.client.region_read(BAR, 5, &mut odd).unwrap();
    assert_eq!(odd, wide[5..8], "bytes are bytes");
}

/// A command whose memory was unmapped must not run, and must do no harm.
#[test]
fn memory_that_was_taken_away_faults() {
    let rig = Rig::new();
    let mut machine = rig.client();
    machine.boot();
    machine.client.dma_unmap(0, MEMORY).unwrap();
    assert_eq!(machine.enable(), None);
    let memory = machine.memory.as_raw_fd();
    for page in 0..256u64 {
        machine.client.dma_map(page << 12, page << 12, 4096, memory).unwrap();
    }
    assert_eq!(machine.enable(), Some((0, [0; 16])), "hundreds of mappings of one file");
}

#[test]
fn the_device_is_reset_between_clients() {
    let rig = Rig::new();
    for _ in 0..3 {
        let mut machine = rig.client();
        assert_eq!(machine.read32(BAR, init_segment::CMDQ_ADDRESS_LOW as u64) >> 12, 0, "no command queue");
        machine.boot();
        assert_eq!(machine.enable(), Some((0, [0; 16])));
        drop(machine);
        assert_eq!(rig.farewell(), Farewell::Closed);
    }
}

#[test]
fn vectors_are_added_one_by_one() {
    let rig = Rig::new();
    let mut machine = rig.client();
    let event = File::from(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
    let connect = VFIO_IRQ_SET_ACTION_TRIGGER | VFIO_IRQ_SET_DATA_EVENTFD;
    machine.client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, connect, 5, 1, &[event.as_raw_fd()]).unwrap();
    let fire = VFIO_IRQ_SET_ACTION_TRIGGER | vfio_bindings::bindings::vfio::VFIO_IRQ_SET_DATA_NONE;
    machine.client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, fire, 5, 1, &[]).unwrap();
    let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&event, PollFlags::IN)], Some(&limit)), Ok(1));
}

/// Builds a message: ID, command, size, flags, error number, body.
fn message(command: u16, size: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = [1u16.to_ne_bytes(), command.to_ne_bytes()].concat();
    bytes.extend([size.to_ne_bytes(), [0; 4], [0; 4]].concat());
    bytes.extend(body);
    bytes
}

/// Whatever a client sends, the next one gets a device in reset state.
#[test]
fn garbage_leaves_the_server_alive() {
    let rig = Rig::new();
    let garbage = [
        vec![0xff; 100],
        vec![0; 7],
        message(1, 0, &[0; 64]),
        message(1, u32::MAX, &[0; 64]),
        message(1, 30, b"\0\0\0\0not JSON\0"),
        message(1, 30, &[0xff; 14]),
        message(2, 48, &[0xff; 32]),
        message(9, 32, &[0xff; 16]),
        message(10, 32, &[0x7f; 16]),
        message(8, 36, &[0xff; 20]),
        message(99, 16, &[]),
    ];
    for bytes in garbage {
        let mut stream = UnixStream::connect(rig.path()).unwrap();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        drop(stream);
        rig.farewell();
        let mut machine = rig.client();
        machine.boot();
        assert_eq!(machine.enable(), Some((0, [0; 16])), "after {bytes:x?}");
        drop(machine);
        assert_eq!(rig.farewell(), Farewell::Closed);
    }
}

/// Sends a message after the version and returns the reply's errno; a refusal does not end the conversation.
#[test]
fn a_refusal_says_why_and_the_next_message_is_answered() {
    let rig = Rig::new();
    let mut stream = UnixStream::connect(rig.path()).unwrap();
    let mut ask = |bytes: &[u8]| {
        stream.write_all(bytes).unwrap();
        let mut header = [0; 16];
        stream.read_exact(&mut header).unwrap();
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        stream.read_exact(&mut vec![0; word(4) as usize - 16]).unwrap();
        (word(8), word(12))
    };
    assert_eq!(ask(&message(1, 22, b"\0\0\0\0{}")), (1, 0));
    let access =
        |offset: u64, count: u32| [&offset.to_ne_bytes()[..], &[0; 4], &count.to_ne_bytes()].concat();
    let (error, invalid) = (0x21, libc::EINVAL as u32);
    assert_eq!(ask(&message(9, 32, &access(0, 4))), (1, 0));
    assert_eq!(ask(&message(9, 32, &access(0, u32::MAX))), (error, invalid), "longer than anything");
    assert_eq!(ask(&message(9, 32, &access(u64::MAX, 4))), (error, invalid), "outside of the region");
    assert_eq!(
        ask(&message(10, 36, &[access(0, 8), vec![0; 4]].concat())),
        (error, invalid),
        "another count"
    );
    assert_eq!(ask(&message(11, 16, &[])), (error, libc::EOPNOTSUPP as u32));
    assert_eq!(ask(&message(5, 48, &[0xff; 32])), (error, invalid));
    assert_eq!(ask(&message(9, 32, &access(0, 4))), (1, 0));
}

/// A client that stops in the middle of a message blocks the card no longer than the limit.
#[test]
fn a_client_that_stops_in_the_middle_is_given_up() {
    let rig = Rig::with_limit(Duration::from_millis(100));
    for beginning in [vec![], vec![1, 0, 1], message(1, 1 << 20, b"\0\0\0\0")] {
        let mut stream = UnixStream::connect(rig.path()).unwrap();
        stream.write_all(&beginning).unwrap();
        let begun = Instant::now();
        assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "{beginning:?}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{beginning:?}");
        rig.farewell();
    }
    let mut machine = rig.client();
    std::thread::sleep(Duration::from_millis(300));
    machine.boot();
    assert_eq!(machine.enable(), Some((0, [0; 16])), "silence between messages is no fault");
}

/// A message that claims an impossible length ends the conversation.
#[test]
fn a_message_that_claims_4_gib_ends_the_conversation() {
    let rig = Rig::new();
    let mut stream = UnixStream::connect(rig.path()).unwrap();
    stream.write_all(&message(1, 22, b"\0\0\0\0{}")).unwrap();
    stream.write_all(&message(10, u32::MAX, &[0; 16])).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    assert_eq!(rig.farewell(), Farewell::Garbage);
}

#[test]
fn a_path_in_use_is_refused_and_a_dead_socket_is_replaced() {
    let rig = Rig::new();
    let config = ServerConfig::new(NicConfig::default());
    let file = rig.directory.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(matches!(Server::bind(&file, config.clone()), Err(ServeError::NotASocket(_))));
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let dead = rig.directory.path().join("dead");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    Server::bind(&dead, config).unwrap();
}

#[test]
fn a_socket_takes_clients_as_soon_as_it_has_its_name() {
    let rig = Rig::new();
    for round in 0..500 {
        let path = rig.directory.path().join(format!("card{round}"));
        let (awaited, ready) = (path.clone(), Arc::new(Barrier::new(2)));
        let begun = ready.clone();
        let client = std::thread::spawn(move || {
            begun.wait();
            loop {
                match std::os::unix::net::UnixStream::connect(&awaited) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    other => return other.map(drop),
                }
            }
        });
        ready.wait();
        let server = Server::bind(&path, ServerConfig::new(NicConfig::default())).unwrap();
        client.join().unwrap().unwrap();
        drop(server);
    }
    let names = std::fs::read_dir(rig.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left = names.filter(|name| name.to_string_lossy().starts_with("card"));
    assert_eq!(left.count(), 0, "no socket is left behind");
}

#[test]
fn a_server_that_does_not_get_its_wire_leaves_no_socket() {
    let directory = tempfile::tempdir().unwrap();
    let taken = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    let own = taken.local_addr().unwrap();
    let attachment = Attachment::Wire(Outside::Udp { own, peer: own });
    let config = ServerConfig { attachment, ..ServerConfig::new(NicConfig::default()) };
    let refused = Server::bind(&directory.path().join("nic"), config).err().unwrap();
    assert!(matches!(refused, ServeError::Wire(_)), "{refused}");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_name_that_is_almost_too_long_for_a_socket_is_served() {
    let rig = Rig::new();
    let length = 107 - rig.directory.path().as_os_str().len() - 1;
    let path = rig.directory.path().join("n".repeat(length));
    let _server = Server::bind(&path, ServerConfig::new(NicConfig::default())).unwrap();
    std::os::unix::net::UnixStream::connect(path).unwrap();
}

/// Random numbers with a bias to small ones, so that they often are valid commands, regions and lengths.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (self.0 >> 33) as u32;
        match number & 3 {
            0 => number >> 2,
            1 => number >> 29,
            2 => number >> 18,
            _ => 0,
        }
    }

    /// A message with a correct length, and whether it wants a reply.
    fn message(&mut self) -> (Vec<u8>, bool) {
        let length = 4 * (self.next() % 16);
        let body: Vec<u8> = (0..length / 4).flat_map(|_| self.next().to_ne_bytes()).collect();
        let command = self.next() as u16 % 16;
        let mut bytes = message(command, 16 + length, &body);
        let quiet = self.next() % 8 == 1;
        bytes[8] = if quiet { 1 << 4 } else { 0 };
        (bytes, !quiet)
    }
}

/// Counts the replies until the end of the conversation.
fn count_replies(mut stream: UnixStream) -> usize {
    let mut count = 0;
    let mut header = [0; 16];
    while stream.read_exact(&mut header).is_ok() {
        let size = u32::from_ne_bytes(header[4..8].try_into().unwrap());
        stream.read_exact(&mut vec![0; size as usize - 16]).unwrap();
        count += 1;
    }
    count
}

/// Each message is executed or refused, and answered if it wants a reply; the next client is served. A hundred messages
/// per conversation; `BAREVERBS_CONVERSATIONS` sets the number of conversations.
#[test]
fn random_messages_are_all_answered() {
    let conversations = std::env::var("BAREVERBS_CONVERSATIONS").map_or(30, |text| text.parse().unwrap());
    let (rig, mut dice) = (Rig::new(), Dice(12));
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (before, begun, mut answered) = (descriptors(), Instant::now(), 0);
    for _ in 0..conversations {
        let mut stream = UnixStream::connect(rig.path()).unwrap();
        stream.write_all(&message(1, 22, b"\0\0\0\0{}")).unwrap();
        let reader = std::thread::spawn({
            let stream = stream.try_clone().unwrap();
            move || count_replies(stream)
        });
        let mut wanted = 1;
        for _ in 0..100 {
            let (bytes, wants_reply) = dice.message();
            stream.write_all(&bytes).unwrap();
            wanted += usize::from(wants_reply);
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(reader.join().unwrap(), wanted);
        assert_eq!(rig.farewell(), Farewell::Closed);
        answered += wanted;
    }
    println!(
        "{conversations} conversations of 100 messages, {answered} replies in {:?}, descriptors {before} and {}",
        begun.elapsed(),
        descriptors()
    );
    let mut machine = rig.client();
    machine.boot();
    assert_eq!(machine.enable(), Some((0, [0; 16])));
}

/// A client that does not start properly does not reach the device, so the next one need not wait for a reset.
#[test]
fn a_client_without_a_proper_start_does_not_reach_the_device() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nic");
    let mut server = Server::bind(&path, ServerConfig::new(NicConfig::default())).unwrap();
    // A link that nobody serves: any request to the device would show here, and never be answered.
    let (_wire, waker) = Wire::new(|_| Ok(Frames::Nowhere)).unwrap();
    let ((requests, asked), (_, responses)) = (sync_channel(super::QUEUE), channel());
    let nobody = Link { requests, responses, waker, is_leaving: Arc::default() };
    let _device = std::mem::replace(&mut server.link, nobody);
    UnixStream::connect(&path).unwrap().write_all(&[0xff; 64]).unwrap();
    assert_eq!(server.serve().unwrap(), Farewell::Garbage);
    drop(UnixStream::connect(&path).unwrap());
    assert_eq!(server.serve().unwrap(), Farewell::Closed);
    assert!(asked.try_recv().is_err(), "the device was asked for something");
}

/// A new client waits behind at most this many conversations, however fast others come and go.
#[test]
fn the_number_of_clients_that_wait_is_limited() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nic");
    let _server = Server::bind(&path, ServerConfig::new(NicConfig::default())).unwrap();
    let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
    let connect = || {
        let kind = rustix::net::SocketType::STREAM;
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(rustix::net::AddressFamily::UNIX, kind, flags, None).unwrap();
        rustix::net::connect(&socket, &address).map(|()| socket)
    };
    let waiting: Vec<_> = (0..100).map_while(|_| connect().ok()).collect();
    assert_eq!(waiting.len(), WAITING as usize + 1);
    assert_eq!(connect().err(), Some(rustix::io::Errno::AGAIN));
}
