//! Two programs on two hosts over `/dev/infiniband/rdma_cm`: commands as librdmacm writes them, and frames
//! from device to device.

mod resolutions;

use crate::support;

use bareverbs_prm::ids::Gid;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::nic::HostMemory;
use bareverbs_sim::wire::FrameBuffer;
use bareverbs_uverbs::uapi::*;
use bareverbs_uverbs::{ConnectionFileId, Connections, Errno, Uverbs, VirtualHost};
use support::{BASE, Program, device_of};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

const PORT: u16 = 7174;
/// Milliseconds that resolving an address takes, and then resolving a route.
const RESOLUTION: u64 = 2;
/// Milliseconds that a request waits for a listener.
const TIMEOUT: u64 = 500;
/// Events, as `rdma_cma.h` numbers them.
const ADDRESS_RESOLVED: u32 = 0;
const ADDRESS_ERROR: u32 = 1;
const ROUTE_RESOLVED: u32 = 2;
const CONNECT_REQUEST: u32 = 4;
const CONNECT_RESPONSE: u32 = 5;
const REJECTED: u32 = 8;
const ESTABLISHED: u32 = 9;
const DISCONNECTED: u32 = 10;
const JOINED: u32 = 12;

struct Host {
    /// By their numbers.
    devices: Vec<Uverbs>,
    connections: Connections,
    program: Program,
    file: ConnectionFileId,
}

impl Host {
    fn new(name: &str) -> Self {
        let mut program = Program::default();
        let devices = vec![device_of(name, &mut program)];
        Self::with(devices, program)
    }

    fn with(devices: Vec<Uverbs>, mut program: Program) -> Self {
        let mut connections = Connections::new(&devices, &mut program);
        let file = connections.open();
        Self { devices, connections, program, file }
    }

    /// A host with two devices.
    fn with_two_ports(name: &str) -> Self {
        let mut program = Program::default();
        let host = VirtualHost::new(name).unwrap().with("devices 2".parse().unwrap());
        let mut boot = |port: VirtualHost| {
            Uverbs::boot(port.nic_config(0), &port.port_addresses(), &mut program)
                .unwrap()
                .numbered(port.device())
        };
        let devices = host.ports().map(&mut boot).collect();
        Self::with(devices, program)
    }

    /// A host with an InfiniBand port in the subnet of [`subnet`].
    fn on_infiniband(name: &str) -> Self {
        Self::process_on_infiniband(name, 0)
    }

    /// The process with this number on such a host.
    fn process_on_infiniband(name: &str, process: u8) -> Self {
        let host = subnet().into_iter().find(|host| host.name() == name).unwrap();
        let mut program = Program { subnet: subnet(), ..Program::default() };
        let device = Uverbs::boot(host.nic_config(process), &host.port_addresses(), &mut program).unwrap();
        Self::with(vec![device], program)
    }

    fn write<T: IntoBytes + Immutable>(&mut self, cmd: u32, body: &T, out: usize) -> Result<(), Errno> {
        let header = CmHeader { cmd, r#in: size_of::<T>() as u16, out: out as u16 };
        let bytes = [header.as_bytes(), body.as_bytes()].concat();
        self.connections.write(&mut self.devices, &mut self.program, self.file, &bytes)
    }

    fn answer<T: FromBytes + FromZeros + IntoBytes>(&mut self) -> T {
        let mut response = T::new_zeroed();
        self.program.read(BASE, response.as_mut_bytes()).unwrap();
        response
    }

    fn create(&mut self, uid: u64, ps: u16) -> u32 {
        let command = CmCreateId { uid, response: BASE, ps, qp_type: 0, reserved: [0; 5] };
        self.write(RDMA_USER_CM_CMD_CREATE_ID, &command, size_of::<CmCreateIdResp>()).unwrap();
        self.answer::<CmCreateIdResp>().id
    }

    fn listen(&mut self, port: u16) -> u32 {
        let id = self.create(0x11, RDMA_PS_TCP);
        let command = CmBind { id, addr_size: 16, reserved: 0, addr: address([0; 4], port) };
        self.write(RDMA_USER_CM_CMD_BIND, &command, 0).unwrap();
        self.write(RDMA_USER_CM_CMD_LISTEN, &CmListen { id, backlog: 2 }, 0).unwrap();
        id
    }

    fn resolve(&mut self, id: u32, to: [u8; 4], port: u16) {
        let command = CmResolveAddr {
            id,
            timeout_ms: 100,
            dst_size: 16,
            dst_addr: address(to, port),
            ..CmResolveAddr::new_zeroed()
        };
        self.write(RDMA_USER_CM_CMD_RESOLVE_ADDR, &command, 0).unwrap();
    }

    /// Lets time pass and runs what is due.
    fn pass(&mut self, millis: u64) {
        self.program.now += Duration::from_millis(millis);
        for device in &mut self.devices {
            device.advance(self.program.now, &mut self.program);
        }
        self.connections.advance(self.program.now, &mut self.devices, &mut self.program);
        self.settle();
    }

    fn settle(&mut self) {
        self.connections.settle(self.program.now, &mut self.devices, &mut self.program);
    }

    fn event(&mut self) -> Result<CmEventResp, Errno> {
        let out = size_of::<CmEventResp>();
        self.write(RDMA_USER_CM_CMD_GET_EVENT, &CmGetEvent { response: BASE }, out)?;
        Ok(self.answer())
    }

    fn expect(&mut self, kind: u32) -> CmEventResp {
        let event = self.event().unwrap();
        assert_eq!((event.event, self.event().err()), (kind, Some(Errno::Again)));
        event
    }
}

fn address(ip: [u8; 4], port: u16) -> [u8; SOCKADDR_STORAGE] {
    let mut bytes = [0; SOCKADDR_STORAGE];
    bytes[..2].copy_from_slice(&2_u16.to_ne_bytes());
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    bytes[4..8].copy_from_slice(&ip);
    bytes
}

/// Hosts with InfiniBand ports.
fn subnet() -> Vec<VirtualHost> {
    let host = |(name, lid)| VirtualHost::new(name).unwrap().with(format!("lid {lid}").parse().unwrap());
    [("a", 7), ("b", 9)].map(host).into()
}

fn ip(name: &str) -> [u8; 4] {
    VirtualHost::new(name).unwrap().ipv4()
}

/// Moves frames until there are none.
fn exchange(one: &mut Host, other: &mut Host) {
    let (mut frame, mut moved) = (FrameBuffer::new(), true);
    while core::mem::take(&mut moved) {
        moved |= carry(one, other, &mut frame);
        moved |= carry(other, one, &mut frame);
    }
}

fn carry(from: &mut Host, to: &mut Host, frame: &mut FrameBuffer) -> bool {
    let mut moved = false;
    for device in &mut from.devices {
        while device.poll_frame(from.program.now, &mut from.program, frame).is_some() {
            // Every port sees the frame; the one with the address takes it.
            for receiver in &mut to.devices {
                receiver.handle_frame(to.program.now, &mut to.program, frame);
            }
            moved = true;
        }
    }
    from.settle();
    to.settle();
    moved
}

fn parameters(qp_num: u32, private: &[u8]) -> CmConnParam {
    let mut parameters = CmConnParam { qp_num, valid: 1, retry_count: 7, ..CmConnParam::new_zeroed() };
    parameters.private_data[..private.len()].copy_from_slice(private);
    parameters.private_data_len = private.len() as u8;
    parameters
}

fn connect(host: &mut Host, port: u16) -> u32 {
    connect_queue_pair(host, port, 0x41)
}

fn connect_queue_pair(host: &mut Host, port: u16, qpn: u32) -> u32 {
    let id = host.create(0x22, RDMA_PS_TCP);
    host.resolve(id, ip("a"), port);
    host.pass(RESOLUTION);
    assert_eq!(host.expect(ADDRESS_RESOLVED).id, id);
    host.write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, &CmResolveRoute { id, timeout_ms: 100 }, 0).unwrap();
    host.pass(RESOLUTION);
    host.expect(ROUTE_RESOLVED);
    let command = CmConnect { conn_param: parameters(qpn, b"hello"), id, ..CmConnect::new_zeroed() };
    host.write(RDMA_USER_CM_CMD_CONNECT, &command, 0).unwrap();
    id
}

#[test]
fn two_programs_connect_and_part() {
    let (mut a, mut b) = (Host::new("a"), Host::new("b"));
    let listener = a.listen(PORT);
    let active = connect(&mut b, PORT);
    exchange(&mut a, &mut b);
    let asked = a.expect(CONNECT_REQUEST);
    assert_eq!(asked.uid, 0x11);
    assert_ne!(asked.id, listener);
    let given = CmConnParam::read_from_prefix(&asked.param).unwrap().0;
    assert_eq!((given.qp_num, given.private_data_len), (0x41, 56));
    assert_eq!(given.private_data[..6], *b"hello\0");
    let command =
        CmAccept { uid: 0x33, conn_param: parameters(0x42, b"you"), id: asked.id, ..CmAccept::new_zeroed() };
    a.write(RDMA_USER_CM_CMD_ACCEPT, &command, 0).unwrap();
    exchange(&mut a, &mut b);
    b.expect(CONNECT_RESPONSE);
    let ready = CmInitQpAttr { response: BASE, id: active, qp_state: 2 };
    b.write(RDMA_USER_CM_CMD_INIT_QP_ATTR, &ready, size_of::<UverbsQpAttr>()).unwrap();
    let attributes: UverbsQpAttr = b.answer();
    assert_eq!((attributes.dest_qp_num, attributes.ah_attr.is_global), (0x42, 1));
    assert_eq!(attributes.ah_attr.grh.dgid[12..], ip("a"));
    let command = CmAccept { id: active, ..CmAccept::new_zeroed() };
    b.write(RDMA_USER_CM_CMD_ACCEPT, &command, 0).unwrap();
    exchange(&mut a, &mut b);
    assert_eq!(a.expect(ESTABLISHED).uid, 0x33);
    b.write(RDMA_USER_CM_CMD_DISCONNECT, &CmDisconnect { id: active }, 0).unwrap();
    exchange(&mut a, &mut b);
    a.expect(DISCONNECTED);
    a.write(RDMA_USER_CM_CMD_DISCONNECT, &CmDisconnect { id: asked.id }, 0).unwrap();
    exchange(&mut a, &mut b);
    b.expect(DISCONNECTED);
    let destroy = CmDestroyId { response: BASE, id: active, reserved: 0 };
    b.write(RDMA_USER_CM_CMD_DESTROY_ID, &destroy, 4).unwrap();
    assert_eq!(b.answer::<CmDestroyIdResp>().events_reported, 4);
    assert_eq!(b.write(RDMA_USER_CM_CMD_DESTROY_ID, &destroy, 4), Err(Errno::NoEntry));
}

/// A peer at the other end of a wire may have a port for frames of 1500 bytes, and its `ibv_modify_qp`
/// refuses a longer path MTU.
#[test]
fn a_path_that_leads_outside_is_for_plain_frames() {
    let [mtu_1024, mtu_4096] = [3, 5];
    for (outside, wanted) in [(vec![], mtu_4096), (vec![Gid::from_ipv4(ip("a"))], mtu_1024)] {
        let (mut a, mut b) = (Host::new("a"), Host::new("b"));
        b.program.outside = outside;
        a.listen(PORT);
        let active = connect(&mut b, PORT);
        let query = CmQuery { response: BASE, id: active, option: RDMA_USER_CM_QUERY_PATH };
        let out = size_of::<CmQueryPathResp>() + size_of::<PathRecordData>();
        b.write(RDMA_USER_CM_CMD_QUERY, &query, out).unwrap();
        let mut record = PathRecordData::new_zeroed();
        b.program.read(BASE + size_of::<CmQueryPathResp>() as u64, record.as_mut_bytes()).unwrap();
        assert_eq!(u32::from(record.path_rec[54] & 0x3f), wanted, "the MTU in the path record");
        exchange(&mut a, &mut b);
        let asked = a.expect(CONNECT_REQUEST);
        let ready = CmInitQpAttr { response: BASE, id: asked.id, qp_state: 2 };
        a.write(RDMA_USER_CM_CMD_INIT_QP_ATTR, &ready, size_of::<UverbsQpAttr>()).unwrap();
        assert_eq!(a.answer::<UverbsQpAttr>().path_mtu, wanted, "the MTU in the connection request");
    }
}

/// A listener on any address hears every port; the request's event says which device it is for.
#[test]
fn a_request_names_the_device_whose_address_it_was_for() {
    let (mut a, mut b) = (Host::with_two_ports("a"), Host::new("b"));
    a.listen(PORT);
    let second = VirtualHost::of_port("a-mlx5_1").unwrap().ipv4();
    let id = b.create(0x22, RDMA_PS_TCP);
    b.resolve(id, second, PORT);
    b.pass(RESOLUTION);
    b.expect(ADDRESS_RESOLVED);
    b.write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, &CmResolveRoute { id, timeout_ms: 100 }, 0).unwrap();
    b.pass(RESOLUTION);
    b.expect(ROUTE_RESOLVED);
    let command = CmConnect { conn_param: parameters(0x41, b""), id, ..CmConnect::new_zeroed() };
    b.write(RDMA_USER_CM_CMD_CONNECT, &command, 0).unwrap();
    exchange(&mut a, &mut b);
    let asked = a.expect(CONNECT_REQUEST);
    let query = CmQuery { response: BASE, id: asked.id, option: RDMA_USER_CM_QUERY_ADDR };
    a.write(RDMA_USER_CM_CMD_QUERY, &query, size_of::<CmQueryAddrResp>()).unwrap();
    let told: CmQueryAddrResp = a.answer();
    let guids = [0, 1].map(|number: usize| a.devices[number].attributes().node_guid);
    assert_ne!(guids[0], guids[1]);
    assert_eq!((u64::from_be(told.node_guid), &told.src_addr[4..8]), (guids[1], &second[..]));
    let command =
        CmAccept { uid: 1, conn_param: parameters(0x42, b""), id: asked.id, ..CmAccept::new_zeroed() };
    a.write(RDMA_USER_CM_CMD_ACCEPT, &command, 0).unwrap();
    exchange(&mut a, &mut b);
    b.expect(CONNECT_RESPONSE);
    let ready = CmInitQpAttr { response: BASE, id: asked.id, qp_state: 2 };
    a.write(RDMA_USER_CM_CMD_INIT_QP_ATTR, &ready, size_of::<UverbsQpAttr>()).unwrap();
    let attributes: UverbsQpAttr = a.answer();
    assert_eq!((attributes.ah_attr.grh.sgid_index, attributes.dest_qp_num), (0, 0x41));
}

/// Requirement: IBTA v1.4 §12.6.5: LocalCAGUID and LocalQPN together identify the queue pair. Two devices of a process
/// use the same numbers.
#[test]
fn queue_pairs_of_two_devices_with_equal_numbers_both_connect() {
    let (mut a, mut b) = (Host::new("a"), Host::with_two_ports("b"));
    a.listen(PORT);
    for number in [0, 1] {
        let own = VirtualHost::of_port(&format!("b-mlx5_{number}")).unwrap().ipv4();
        let id = b.create(0x22, RDMA_PS_TCP);
        let command = CmBind { id, addr_size: 16, reserved: 0, addr: address(own, 0) };
        b.write(RDMA_USER_CM_CMD_BIND, &command, 0).unwrap();
        b.resolve(id, ip("a"), PORT);
        b.pass(RESOLUTION);
        b.expect(ADDRESS_RESOLVED);
        b.write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, &CmResolveRoute { id, timeout_ms: 100 }, 0).unwrap();
        b.pass(RESOLUTION);
        b.expect(ROUTE_RESOLVED);
        let command = CmConnect { conn_param: parameters(0x41, b""), id, ..CmConnect::new_zeroed() };
        b.write(RDMA_USER_CM_CMD_CONNECT, &command, 0).unwrap();
        exchange(&mut a, &mut b);
        let asked = a.expect(CONNECT_REQUEST);
        let command = CmAccept {
            uid: 1,
            conn_param: parameters(0x42 + number, b""),
            id: asked.id,
            ..CmAccept::new_zeroed()
        };
        a.write(RDMA_USER_CM_CMD_ACCEPT, &command, 0).unwrap();
        exchange(&mut a, &mut b);
        b.expect(CONNECT_RESPONSE);
    }
}

/// A host outside the network is resolved by ARP, which takes time: the response to a request waits for it, and
/// nothing else does.
#[test]
fn a_reply_waits_for_the_address_of_its_receiver() {
    let (mut a, mut b) = (Host::new("a"), Host::new("b"));
    a.program.is_slow_to_find = true;
    connect(&mut b, PORT);
    exchange(&mut a, &mut b);
    a.pass(TIMEOUT);
    exchange(&mut a, &mut b);
    assert_eq!(b.event().err(), Some(Errno::Again), "a cannot resolve the address of b yet");
    let due = a.connections.next_wakeup().unwrap();
    assert!(due > a.program.now && due <= a.program.now + Duration::from_millis(2), "{due:?}");
    a.program.is_slow_to_find = false;
    a.pass(2);
    exchange(&mut a, &mut b);
    assert_eq!(b.expect(REJECTED).status, 8, "invalid service ID");
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let (mut a, mut b) = (Host::new("a"), Host::new("b"));
    connect(&mut b, PORT);
    exchange(&mut a, &mut b);
    a.pass(TIMEOUT - 1);
    exchange(&mut a, &mut b);
    assert_eq!(b.event().err(), Some(Errno::Again), "a program may still start to listen");
    a.pass(1);
    exchange(&mut a, &mut b);
    assert_eq!(b.expect(REJECTED).status, 8, "invalid service ID");
}

#[test]
fn a_late_listener_receives_a_waiting_request() {
    let (mut a, mut b) = (Host::new("a"), Host::new("b"));
    connect(&mut b, PORT);
    exchange(&mut a, &mut b);
    a.listen(PORT + 1);
    assert_eq!(a.event().err(), Some(Errno::Again), "a listens on another port");
    a.pass(TIMEOUT - 1);
    a.listen(PORT);
    assert_eq!(a.expect(CONNECT_REQUEST).uid, 0x11);
    a.pass(TIMEOUT);
    exchange(&mut a, &mut b);
    assert_eq!(b.event().err(), Some(Errno::Again), "an accepted request is not refused later");
}

#[test]
fn a_program_that_ends_rejects_its_waiting_requests() {
    let (mut a, mut b) = (Host::new("a"), Host::new("b"));
    connect(&mut b, PORT);
    exchange(&mut a, &mut b);
    a.connections.close_all(&mut a.devices, &mut a.program);
    exchange(&mut a, &mut b);
    assert_eq!(b.expect(REJECTED).status, 8, "invalid service ID");
}

#[test]
fn the_number_of_waiting_requests_is_limited() {
    const MOST: u32 = 256;
    let (mut a, mut b) = (Host::new("a"), Host::new("b"));
    for qpn in 0x1000..=0x1000 + MOST {
        connect_queue_pair(&mut b, PORT, qpn);
        exchange(&mut a, &mut b);
    }
    assert_eq!(b.expect(REJECTED).status, 8, "only the last request is refused");
    a.pass(TIMEOUT);
    exchange(&mut a, &mut b);
    for _ in 0..MOST {
        assert_eq!(b.event().unwrap().event, REJECTED);
    }
    assert_eq!(b.event().err(), Some(Errno::Again));
}

#[test]
fn a_file_that_is_closed_parts_from_its_peers() {
    let (mut a, mut b) = (Host::new("a"), Host::new("b"));
    a.listen(PORT);
    connect(&mut b, PORT);
    exchange(&mut a, &mut b);
    a.expect(CONNECT_REQUEST);
    let Host { devices, connections, program, file } = &mut a;
    connections.close(devices, program, *file);
    exchange(&mut a, &mut b);
    assert_eq!(b.expect(REJECTED).status, 28, "rejected by the consumer");
}

#[test]
fn a_port_belongs_to_one_listener() {
    let mut a = Host::new("a");
    a.listen(PORT);
    let id = a.create(1, RDMA_PS_TCP);
    let command = CmBind { id, addr_size: 16, reserved: 0, addr: address([0; 4], PORT) };
    assert_eq!(a.write(RDMA_USER_CM_CMD_BIND, &command, 0), Err(Errno::AddressInUse));
    let elsewhere = CmBind { addr: address([10, 0, 0, 1], 1), ..command };
    assert_eq!(a.write(RDMA_USER_CM_CMD_BIND, &elsewhere, 0), Err(Errno::AddressNotAvailable));
}

#[test]
fn missing_objects_are_refused_as_by_the_kernel() {
    let mut a = Host::new("a");
    let long = [0_u8; 300];
    assert_eq!(a.write(99, &long, 64), Err(Errno::Invalid), "no such command");
    assert_eq!(a.write(RDMA_USER_CM_CMD_GET_OPTION, &long, 64), Err(Errno::NoCommand));
    assert_eq!(a.write(RDMA_USER_CM_CMD_LISTEN, &CmListen { id: 7, backlog: 0 }, 0), Err(Errno::NoEntry));
    let command = CmCreateId { uid: 1, response: BASE, ps: RDMA_PS_TCP, qp_type: 0, reserved: [0; 5] };
    assert_eq!(a.write(RDMA_USER_CM_CMD_CREATE_ID, &command, 3), Err(Errno::NoSpace));
    assert_eq!(a.write(RDMA_USER_CM_CMD_CREATE_ID, &CmCreateId { ps: 9, ..command }, 4), Err(Errno::Invalid));
    let Host { devices, connections, program, file } = &mut a;
    assert_eq!(connections.write(devices, program, *file, &[0; 7]), Err(Errno::Invalid), "half a header");
}

#[test]
fn arbitrary_commands_are_answered() {
    let mut a = Host::new("a");
    let id = a.listen(PORT);
    let mut random = 7_u64;
    let mut next = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) as u32
    };
    for _ in 0..3000 {
        let mut body = [0_u8; 300];
        body.iter_mut().for_each(|byte| *byte = if next() % 3 == 0 { next() as u8 } else { 0 });
        body[..8].copy_from_slice(&(if next() % 2 == 0 { u64::from(id) } else { BASE }).to_ne_bytes());
        // Whatever the command is, it neither panics nor hangs.
        let _ = a.write(next() % 24, &body, next() as usize % 400);
    }
}

/// IBTA v1.4 §12.6.5: a REQ has the LIDs of both ports, and says that they are of one subnet.
#[test]
fn two_programs_connect_by_lid() {
    let (mut a, mut b) = (Host::on_infiniband("a"), Host::on_infiniband("b"));
    a.listen(PORT);
    let active = connect(&mut b, PORT);
    let query = CmQuery { response: BASE, id: active, option: RDMA_USER_CM_QUERY_PATH };
    b.write(RDMA_USER_CM_CMD_QUERY, &query, 80).unwrap();
    let record = b.answer::<[u8; 80]>();
    assert_eq!(record[56..60], [0, 7, 0, 9], "LIDs of the path record, the destination's first");
    assert_eq!(record[63], 0, "no hop leaves the subnet");
    exchange(&mut a, &mut b);
    let asked = a.expect(CONNECT_REQUEST);
    let command =
        CmAccept { uid: 1, conn_param: parameters(0x42, b""), id: asked.id, ..CmAccept::new_zeroed() };
    a.write(RDMA_USER_CM_CMD_ACCEPT, &command, 0).unwrap();
    exchange(&mut a, &mut b);
    b.expect(CONNECT_RESPONSE);
    for (host, id, remote_lid, remote_qpn) in [(&mut a, asked.id, 9, 0x41), (&mut b, active, 7, 0x42)] {
        let ready = CmInitQpAttr { response: BASE, id, qp_state: 2 };
        host.write(RDMA_USER_CM_CMD_INIT_QP_ATTR, &ready, size_of::<UverbsQpAttr>()).unwrap();
        let attributes: UverbsQpAttr = host.answer();
        assert_eq!((attributes.dest_qp_num, attributes.ah_attr.dlid), (remote_qpn, remote_lid));
        assert_eq!(attributes.ah_attr.is_global, 0, "one subnet");
    }
    b.write(RDMA_USER_CM_CMD_ACCEPT, &CmAccept { id: active, ..CmAccept::new_zeroed() }, 0).unwrap();
    exchange(&mut a, &mut b);
    a.expect(ESTABLISHED);
}

/// IBTA v1.4 §3.9.2: a port has one queue pair 1. Processes of a host share the port, so each of them hears
/// what arrives there.
#[test]
fn two_processes_of_an_infiniband_host_connect() {
    let (mut server, mut client) = (Host::on_infiniband("a"), Host::process_on_infiniband("a", 1));
    server.listen(PORT);
    let active = connect(&mut client, PORT);
    exchange(&mut server, &mut client);
    let id = server.expect(CONNECT_REQUEST).id;
    let command = CmAccept { uid: 1, conn_param: parameters(0x42, b""), id, ..CmAccept::new_zeroed() };
    server.write(RDMA_USER_CM_CMD_ACCEPT, &command, 0).unwrap();
    exchange(&mut server, &mut client);
    client.expect(CONNECT_RESPONSE);
    client.write(RDMA_USER_CM_CMD_ACCEPT, &CmAccept { id: active, ..CmAccept::new_zeroed() }, 0).unwrap();
    exchange(&mut server, &mut client);
    server.expect(ESTABLISHED);
}

#[test]
fn an_address_of_no_infiniband_port_is_not_resolved() {
    let mut b = Host::on_infiniband("b");
    let id = b.create(1, RDMA_PS_TCP);
    b.resolve(id, [198, 18, 255, 255], PORT);
    b.pass(99);
    assert_eq!(b.event().err(), Some(Errno::Again));
    b.pass(RESOLUTION);
    assert_eq!(b.expect(ADDRESS_ERROR).status.cast_signed(), -110);
}

#[test]
fn a_group_of_infiniband_has_one_lid_for_everybody() {
    let mut lids = Vec::new();
    for name in ["a", "b"] {
        let mut host = Host::on_infiniband(name);
        let id = host.create(1, RDMA_PS_UDP);
        let command = CmBind { id, addr_size: 16, reserved: 0, addr: address(ip(name), 0) };
        host.write(RDMA_USER_CM_CMD_BIND, &command, 0).unwrap();
        let command = CmJoinMulticast {
            response: BASE,
            uid: 2,
            id,
            addr_size: 16,
            join_flags: 0,
            addr: address([239, 1, 2, 3], 0),
        };
        host.write(RDMA_USER_CM_CMD_JOIN_MCAST, &command, size_of::<CmCreateIdResp>()).unwrap();
        let joined = host.expect(JOINED);
        let given = CmUdParam::read_from_prefix(&joined.param).unwrap().0;
        assert_eq!((given.qp_num, given.ah_attr.is_global), (0xff_ffff, 1));
        assert_eq!(given.ah_attr.grh.dgid[..6], [0xff, 0x12, 0x40, 0x01, 0xff, 0xff]);
        lids.push(given.ah_attr.dlid);
    }
    assert_eq!(lids[0], lids[1]);
    assert!(lids[0] >= 0xc000, "{:#x}", lids[0]);
}
