//! A program without an operating system: memory at a fixed address, and hand-made requests.
#![allow(dead_code, reason = "every test uses a part of it")]

pub mod libmlx5;

use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::{DmaFault, HostMemory};
use bareverbs_uverbs::uapi::{
    IoctlAttribute, IoctlHeader, MLX5_LIB_CAP_DYN_UAR, RDMA_DRIVER_MLX5, UVERBS_ATTR_F_MANDATORY,
    UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT, UVERBS_METHOD_GET_CONTEXT, UVERBS_OBJECT_DEVICE,
};
use bareverbs_uverbs::{
    ConnectionFileId, Errno, EventFileId, EventFileKind, EventRecord, FileId, Port, Process, SubnetPort,
    Uverbs, VirtualHost,
};
use std::collections::VecDeque;
use zerocopy::IntoBytes;

/// First address of the program's memory.
pub const BASE: u64 = 0x1000_0000;
/// Time of the wall clock.
pub const WALL_CLOCK: u64 = 1_000_000_007;
/// Number of the first event file.
pub const FIRST_EVENT_FILE: i32 = 7;

#[derive(Debug)]
pub struct Program {
    pub bytes: Vec<u8>,
    pub event_files: Vec<EventFile>,
    /// Time of the device's clock.
    pub now: Time,
    /// Hosts with InfiniBand ports.
    pub subnet: Vec<VirtualHost>,
    /// Whether resolving a neighbour takes time.
    pub is_slow_to_find: bool,
    /// GIDs at the other end of a wire.
    pub outside: Vec<Gid>,
}

impl Default for Program {
    fn default() -> Self {
        let (bytes, now) = (vec![0; 1 << 20], Time::ZERO);
        let (event_files, subnet, outside) = (Vec::new(), Vec::new(), Vec::new());
        Self { bytes, event_files, now, subnet, is_slow_to_find: false, outside }
    }
}

impl Program {
    fn place(&self, iova: u64, length: usize, write: bool) -> Result<usize, DmaFault> {
        let start = iova.checked_sub(BASE).and_then(|start| usize::try_from(start).ok());
        let inside = start.filter(|start| start.saturating_add(length) <= self.bytes.len());
        inside.ok_or(DmaFault { iova, length, write })
    }

    /// Puts every event into its file.
    pub fn take_events(&mut self, uverbs: &mut Uverbs) {
        while let Some(record) = uverbs.poll_event() {
            let file = self.event_files.iter_mut().find(|known| known.id == record.file).unwrap();
            assert_eq!(record.bytes().len(), file.kind.record_size());
            file.records.push_back(record);
        }
    }

    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        self.write(address, bytes).unwrap();
    }
}

/// The MAC address of the host that has a GID.
fn mac_of(gid: Gid) -> Option<MacAddress> {
    let hosts = ["a", "b", "a-mlx5_1", "b-mlx5_1"].map(|name| VirtualHost::of_port(name).unwrap());
    hosts.iter().find(|host| host.gids().contains(&gid)).map(VirtualHost::mac)
}

impl HostMemory for Program {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        let at = self.place(iova, buffer.len(), false)?;
        buffer.copy_from_slice(&self.bytes[at..at + buffer.len()]);
        Ok(())
    }

    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        let at = self.place(iova, bytes.len(), true)?;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

impl Process for Program {
    fn now(&mut self) -> Time {
        self.now
    }

    fn open_event_file(&mut self, file: EventFileId, kind: EventFileKind) -> Result<i32, Errno> {
        self.event_files.push(EventFile { id: file, kind, records: VecDeque::new(), hung_up: false });
        Ok(FIRST_EVENT_FILE + self.event_files.len() as i32 - 1)
    }

    fn event_file(&mut self, descriptor: i32) -> Option<EventFileId> {
        let place = usize::try_from(descriptor - FIRST_EVENT_FILE).ok()?;
        self.event_files.get(place).map(|file| file.id)
    }

    fn discard_events(&mut self, file: EventFileId, element: u64) -> u32 {
        let file = self.event_files.iter_mut().find(|known| known.id == file).unwrap();
        let before = file.records.len();
        file.records.retain(|record| record.element() != element);
        (before - file.records.len()) as u32
    }

    fn hang_up(&mut self, file: EventFileId) {
        self.event_files.iter_mut().find(|known| known.id == file).unwrap().hung_up = true;
    }

    fn has_memory(&mut self, address: u64, length: u64, _write: bool) -> bool {
        usize::try_from(length).is_ok_and(|length| self.place(address, length, false).is_ok())
    }

    fn resolve(&mut self, gid: Gid) -> Result<MacAddress, Errno> {
        if self.is_slow_to_find { Err(Errno::Again) } else { mac_of(gid).ok_or(Errno::TimedOut) }
    }

    fn is_reachable(&mut self, gid: Gid) -> bool {
        mac_of(gid).is_some()
    }

    fn is_outside(&mut self, gid: Gid) -> bool {
        self.outside.contains(&gid)
    }

    fn find_subnet_port(&mut self, address: Gid) -> Option<SubnetPort> {
        self.subnet.iter().find(|host| host.has_address(address))?.subnet_port()
    }

    fn gid_of_lid(&mut self, lid: u16) -> Option<Gid> {
        let ports = self.subnet.iter().filter_map(VirtualHost::subnet_port);
        ports.filter(|port| port.lid == lid).map(|port| port.gid).next()
    }

    fn claim_port(&mut self, _: Port) -> Result<(), Errno> {
        Ok(())
    }

    fn release_port(&mut self, _: Port) {}

    fn has_owner(&mut self, _: Port) -> bool {
        false
    }

    fn is_first(&mut self) -> bool {
        true
    }

    fn connection_file(&mut self, descriptor: i32) -> Option<ConnectionFileId> {
        u32::try_from(descriptor).ok().map(ConnectionFileId::from_raw)
    }

    fn seed(&mut self) -> u64 {
        1
    }

    fn wall_clock(&mut self) -> u64 {
        WALL_CLOCK
    }

    fn inode(&mut self, descriptor: i32) -> Option<(u64, u64)> {
        u64::try_from(descriptor).ok().map(|inode| (1, inode))
    }
}

/// An event file and its unread records.
#[derive(Debug)]
pub struct EventFile {
    pub id: EventFileId,
    pub kind: EventFileKind,
    pub records: VecDeque<EventRecord>,
    pub hung_up: bool,
}

/// A mandatory attribute, which the kernel must understand.
pub fn attribute(attr_id: u16, len: usize, data: u64) -> IoctlAttribute {
    IoctlAttribute { attr_id, len: len as u16, flags: UVERBS_ATTR_F_MANDATORY, attr_data: [0; 2], data }
}

/// A request in bytes.
pub fn request(object_id: u16, method_id: u16, attributes: &[IoctlAttribute]) -> Vec<u8> {
    let header = IoctlHeader {
        length: (size_of::<IoctlHeader>() + size_of_val(attributes)) as u16,
        object_id,
        method_id,
        num_attrs: attributes.len() as u16,
        reserved1: 0,
        driver_id: RDMA_DRIVER_MLX5,
        reserved2: 0,
    };
    [header.as_bytes(), attributes.as_bytes()].concat()
}

/// The device of virtual host `a`, booted.
pub fn device(program: &mut Program) -> Uverbs {
    device_of("a", program)
}

/// The device of a virtual host, booted.
pub fn device_of(name: &str, program: &mut Program) -> Uverbs {
    let host = VirtualHost::new(name).unwrap();
    Uverbs::boot(host.nic_config(0), &host.port_addresses(), program).unwrap()
}

/// Opens the device file and creates its context as libmlx5 does. The response is at [`BASE`] + 0x100.
pub fn open(uverbs: &mut Uverbs, program: &mut Program) -> FileId {
    let file = uverbs.open();
    get_context(uverbs, program, file, MLX5_LIB_CAP_DYN_UAR).unwrap();
    file
}

pub fn get_context(
    uverbs: &mut Uverbs,
    program: &mut Program,
    file: FileId,
    lib_caps: u64,
) -> Result<(), Errno> {
    let mut requested = [0; 32];
    requested[16] = 1;
    requested[24..].copy_from_slice(&lib_caps.to_ne_bytes());
    program.put(BASE, &requested);
    let attributes =
        [attribute(UVERBS_ATTR_UHW_IN, 32, BASE), attribute(UVERBS_ATTR_UHW_OUT, 72, BASE + 0x100)];
    let mut bytes = request(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, &attributes);
    uverbs.ioctl(program, file, &mut bytes)
}
