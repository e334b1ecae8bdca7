//! `bareverbs serve --wire tap:NAME`: our driver on a served device, and this machine's own network stack as
//! the other side.

use crate::support::KillOnDrop;
use bareverbs::prm::ids::{Gid, MacAddress, Qpn};
use bareverbs::prm::psn::Psn;
use bareverbs::prm::time::Duration as Span;
use bareverbs::queue_pair::{RemoteEndpoint, Uc};
use bareverbs::vfio_user::{VfioUserConfig, VfioUserHal};
use bareverbs::{AccessFlags, hal::Hal};
use bareverbs::{
    CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig, GidEntry, MemoryRegion,
    ProtectionDomain, QueuePairBuilder, WorkRequest,
};
use std::error::Error;
use std::io::{Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// UDP port of RoCEv2.
const ROCE: u16 = 4791;
/// Base transport header: opcode "SEND only" of UC, and a queue pair that does not exist.
const UC_SEND_ONLY: u8 = 0x24;
const QPN: u32 = 0x1234;
const LIMIT: Duration = Duration::from_secs(30);

/// Addresses of this machine and of the device, in a link-local subnet with room for just the two. Each process has its own, so that
/// several runs do not meet.
fn addresses() -> [Ipv4Addr; 2] {
    let number = std::process::id() % (128 * 64);
    [1, 2].map(|host| Ipv4Addr::from(u32::from(Ipv4Addr::new(169, 254, 64, host)) + 4 * number))
}

/// Starts a server whose wire is a new interface; `Err` says why this machine does not allow one.
fn serve(directory: &Path, interface: &str) -> Result<KillOnDrop, String> {
    let mut log = tempfile::tempfile().expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bareverbs"));
    let wire = format!("tap:{interface}");
    command.args(["serve", "--link", "eth", "--socket", "nic", "--wire", &wire]).current_dir(directory);
    command.stdin(Stdio::null()).stderr(log.try_clone().expect("a file"));
    let mut server = KillOnDrop(command.spawn().expect("the program"));
    let deadline = Instant::now() + LIMIT;
    while !directory.join("nic").exists() || !Path::new("/sys/class/net").join(interface).exists() {
        if let Some(status) = server.try_wait().expect("a process") {
            let mut said = String::new();
            log.seek(SeekFrom::Start(0)).and_then(|_| log.read_to_string(&mut said)).expect("a file");
            assert!(said.contains(&format!("'{interface}'")), "{said}");
            let is_refusal = said.contains("ip tuntap add") || said.contains("modprobe tun");
            assert!(status.code() == Some(2) && is_refusal, "{status}: {said}");
            return Err(said.trim().to_owned());
        }
        assert!(Instant::now() < deadline, "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(server)
}

/// Gives the interface this machine's address, and returns its Ethernet address.
fn set_up(interface: &str) -> Result<MacAddress, String> {
    let [here, _] = addresses();
    let address = format!("{here}/30");
    let ip = Command::new("ip").args(["addr", "add", &address, "dev", interface]).status();
    assert!(ip.map_err(|error| format!("ip: {error}"))?.success(), "ip addr add");
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/address")).expect("an interface");
    let bytes = text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16).expect("a byte"));
    Ok(MacAddress(bytes.collect::<Vec<_>>().try_into().expect("six bytes")))
}

/// Sends one message over an unreliable connection to a nonexistent queue pair of this machine.
fn send(socket: &Path, mac: MacAddress, message: &[u8]) -> Result<(), Box<dyn Error>> {
    let [here, there] = addresses();
    let hal = VfioUserHal::connect(socket, VfioUserConfig::default())?;
    let device = Rc::new(Device::open(hal, DeviceConfig::default())?);
    let port_mac = device.port()?.mac;
    device.set_gid(0, GidEntry::roce_v2(Gid::from_ipv4(there.octets()), port_mac))?;
    let domain = ProtectionDomain::allocate(device.clone())?;
    let config = CompletionQueueConfig { entries: 16 };
    let mut completions = CompletionQueue::create(device.clone(), config)?;
    let region = MemoryRegion::allocate(&domain, 4096, AccessFlags::LOCAL_WRITE)?;
    region.copy_in(0, message)?;
    let prepared = QueuePairBuilder::new(&domain, &completions, &completions).service::<Uc>().build()?;
    let peer = RemoteEndpoint {
        qpn: Qpn::from_low_bits(QPN),
        psn: Psn::new(0),
        gid: Gid::from_ipv4(here.octets()),
        mac,
        version: None,
        lid: 0,
    };
    let mut sender = prepared.connect(&peer, ConnectOptions::default())?;
    sender.post_send(&WorkRequest::send(1, &[region.slice(0, message.len())?]).signalled(true))?;
    let deadline = device.hal().now() + Span::from_secs(30);
    let completion = loop {
        let now = device.hal().now();
        match completions.poll_one()? {
            Some(completion) => break completion,
            None if now >= deadline => return Err("no completion within 30 s".into()),
            None => device.hal().relax(now + Span::from_micros(50)),
        }
    };
    assert!(completion.is_success(), "{}", completion.status);
    Ok(())
}

#[test]
fn a_device_outlives_its_wire() {
    let directory = tempfile::tempdir().expect("a directory");
    let interface = format!("bvd{}", std::process::id());
    let _server = match serve(directory.path(), &interface) {
        Ok(server) => server,
        Err(reason) => return println!("SKIPPED a_device_outlives_its_wire: {reason}"),
    };
    let ip = Command::new("ip").args(["link", "del", &interface]).status();
    match ip {
        Err(error) => return println!("SKIPPED a_device_outlives_its_wire: ip: {error}"),
        Ok(status) => assert!(status.success(), "ip link del"),
    }
    for _ in 0..2 {
        let mac = MacAddress([2, 0, 0, 0, 0, 9]);
        send(&directory.path().join("nic"), mac, b"to nobody").expect("a message sent");
    }
}

#[test]
fn packets_of_the_device_reach_a_socket_of_this_machine() {
    const MESSAGE: &[u8; 16] = b"out of a TAP one";
    let directory = tempfile::tempdir().expect("a directory");
    let interface = format!("bvs{}", std::process::id());
    let served = serve(directory.path(), &interface).and_then(|server| Ok((server, set_up(&interface)?)));
    let (server, mac) = match served {
        Ok(served) => served,
        Err(reason) => {
            println!("SKIPPED packets_of_the_device_reach_a_socket_of_this_machine: {reason}");
            return;
        }
    };
    let [here, there] = addresses();
    let socket = UdpSocket::bind((here, ROCE)).expect("this machine's address");
    socket.set_read_timeout(Some(LIMIT)).expect("a socket");
    send(&directory.path().join("nic"), mac, MESSAGE).expect("a message sent");
    let mut packet = [0; 256];
    let (length, from) = socket.recv_from(&mut packet).expect("a packet");
    assert_eq!(from.ip(), there);
    assert_eq!((packet[0], &packet[5..8]), (UC_SEND_ONLY, &QPN.to_be_bytes()[1..]));
    // Base transport header, the message, ICRC.
    assert_eq!((length, &packet[12..28]), (12 + MESSAGE.len() + 4, &MESSAGE[..]));
    drop(server);
    assert!(!Path::new("/sys/class/net").join(&interface).exists(), "the interface outlived its server");
}
