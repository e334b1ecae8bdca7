//! Queries of an identifier: addresses, GIDs and the path.

use super::address::{SocketAddress, Storage};
use super::call::{CmCall, ResponseBuffer};
use crate::Errno;
use crate::connection_names::ConnectionFileId;
use crate::process::Process;
use crate::uapi::*;
use bareverbs_cm::{Lids, Path};
use zerocopy::{FromZeros, IntoBytes};

/// The device is identified by its GUID instead.
const NO_INDEX: u32 = u32::MAX;
const PORT: u8 = 1;
const PARTITION: u16 = 0xffff;
/// `IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL`.
const PATH_FLAGS: u32 = 1 | 2 | 8 | 32;
/// LIDs on RoCE, which has none.
const NO_LIDS: Lids = Lids { local: 0, remote: 0, partition_key: 0, service_level: 0 };
/// The selector "exactly".
const EXACTLY: u8 = 2;
/// Code of the packet lifetime that Linux assumes for RoCE, and of the rate, 100 Gb/s.
const PACKET_LIFE: u8 = 16;
const RATE: u8 = 16;
/// `AF_IB` and the bytes of a `sockaddr_ib`.
const IB: u16 = 27;
const IB_SIZE: u16 = 48;

/// An address, or none.
fn storage(address: Option<SocketAddress>) -> Storage {
    address.map_or(Storage::NONE, |address| address.write())
}

fn in6(address: Option<SocketAddress>) -> [u8; SOCKADDR_IN6] {
    let mut bytes = [0; SOCKADDR_IN6];
    bytes.copy_from_slice(&storage(address).bytes[..SOCKADDR_IN6]);
    bytes
}

impl<P: Process> CmCall<'_, P> {
    pub(super) fn query_route(
        &mut self,
        file: ConnectionFileId,
        command: &CmQuery,
        room: usize,
    ) -> Result<(), Errno> {
        let least = core::mem::offset_of!(CmQueryRouteResp, ibdev_index);
        let place = ResponseBuffer { address: command.response, room }.needs(least)?;
        let (mtu, guid) = (self.path_mtu(command.id), self.port_of(command.id).guid);
        let known = self.identifier(file, command.id)?;
        let mut response = CmQueryRouteResp::new_zeroed();
        (response.src_addr, response.dst_addr) = (in6(known.source), in6(known.destination));
        if let Some(path) = known.path {
            (response.node_guid, response.port_num, response.ibdev_index) = (guid.to_be(), PORT, NO_INDEX);
            if known.destination.is_some() {
                response.num_paths = 1;
                response.ib_route[0] = user_record(path, mtu, known.traffic_class);
            }
        }
        self.put(place, &response)
    }

    pub(super) fn query(
        &mut self,
        file: ConnectionFileId,
        command: &CmQuery,
        room: usize,
    ) -> Result<(), Errno> {
        let place = ResponseBuffer { address: command.response, room };
        match command.option {
            RDMA_USER_CM_QUERY_ADDR => self.query_address(file, command.id, place),
            RDMA_USER_CM_QUERY_PATH => self.query_path(file, command.id, place),
            RDMA_USER_CM_QUERY_GID => self.query_gid(file, command.id, place),
            _ => Err(Errno::NoCommand),
        }
    }

    fn query_address(&mut self, file: ConnectionFileId, id: u32, place: ResponseBuffer) -> Result<(), Errno> {
        let place = place.needs(core::mem::offset_of!(CmQueryAddrResp, ibdev_index))?;
        let known = self.identifier(file, id)?;
        let (source, destination) = (storage(known.source), storage(known.destination));
        let response = self.addresses(file, id, source, destination)?;
        self.put(place, &response)
    }

    /// The same with GIDs in place of addresses.
    fn query_gid(&mut self, file: ConnectionFileId, id: u32, place: ResponseBuffer) -> Result<(), Errno> {
        let place = place.needs(core::mem::offset_of!(CmQueryAddrResp, ibdev_index))?;
        let known = self.identifier(file, id)?;
        let path = known.path;
        let has_peer = known.destination.is_some();
        let port = |address: Option<SocketAddress>| address.map_or(0, |address| address.port());
        let ports = (port(known.source), port(known.destination));
        let space = known.space;
        let source = path.map(|path| native(path.local.0, space, ports.0));
        let destination = path.filter(|_| has_peer).map(|path| native(path.remote.0, space, ports.1));
        let none = Storage::NONE;
        let response = self.addresses(file, id, source.unwrap_or(none), destination.unwrap_or(none))?;
        self.put(place, &response)
    }

    fn addresses(
        &mut self,
        file: ConnectionFileId,
        id: u32,
        source: Storage,
        destination: Storage,
    ) -> Result<CmQueryAddrResp, Errno> {
        let guid = self.port_of(id).guid;
        let mut response = CmQueryAddrResp::new_zeroed();
        (response.src_addr, response.src_size) = (source.bytes, source.size);
        (response.dst_addr, response.dst_size) = (destination.bytes, destination.size);
        if self.identifier(file, id)?.path.is_some() {
            (response.node_guid, response.port_num, response.pkey) = (guid.to_be(), PORT, PARTITION);
            response.ibdev_index = NO_INDEX;
        }
        Ok(response)
    }

    fn query_path(&mut self, file: ConnectionFileId, id: u32, place: ResponseBuffer) -> Result<(), Errno> {
        let head = size_of::<CmQueryPathResp>();
        let place = place.needs(head)?;
        let mtu = self.path_mtu(id);
        let known = self.identifier(file, id)?;
        let (path, traffic_class) = (known.path.filter(|_| known.destination.is_some()), known.traffic_class);
        let num_paths = u32::from(path.is_some());
        self.put(place, &CmQueryPathResp { num_paths, reserved: 0 })?;
        let record = path.map(|path| PathRecordData {
            flags: PATH_FLAGS,
            reserved: 0,
            path_rec: subnet_record(path, mtu, traffic_class),
        });
        match record {
            Some(record) if place.room >= head + size_of::<PathRecordData>() => {
                let rest = ResponseBuffer { address: place.address + head as u64, room: place.room - head };
                self.put(rest, &record)
            }
            _ => Ok(()),
        }
    }
}

/// A `sockaddr_ib` with a GID and a service ID.
fn native(gid: [u8; 16], space: u16, port: u16) -> Storage {
    let mut bytes = [0; SOCKADDR_STORAGE];
    bytes[..2].copy_from_slice(&IB.to_ne_bytes());
    bytes[2..4].copy_from_slice(&PARTITION.to_be_bytes());
    bytes[8..24].copy_from_slice(&gid);
    let service = u64::from(space) << 16 | u64::from(port);
    bytes[24..32].copy_from_slice(&service.to_be_bytes());
    bytes[32..40].copy_from_slice(&u64::MAX.to_be_bytes());
    Storage { bytes, size: IB_SIZE }
}

fn user_record(path: Path, mtu: u8, traffic_class: u8) -> UserPathRecord {
    let lids = path.lids.unwrap_or(NO_LIDS);
    UserPathRecord {
        dgid: path.remote.0,
        sgid: path.local.0,
        reversible: 1_u32.to_be(),
        mtu: mtu.into(),
        pkey: PARTITION.to_be(),
        dlid: lids.remote.to_be(),
        slid: lids.local.to_be(),
        hop_limit: path.hop_limit(),
        traffic_class,
        mtu_selector: EXACTLY,
        rate_selector: EXACTLY,
        rate: RATE,
        packet_life_time_selector: EXACTLY,
        packet_life_time: PACKET_LIFE,
        ..UserPathRecord::new_zeroed()
    }
}

/// A path record in the subnet administration's format (IBTA v1.4 §15.2.5.16).
fn subnet_record(path: Path, mtu: u8, traffic_class: u8) -> [u8; 64] {
    let mut record = [0; 64];
    record[8..24].copy_from_slice(&path.remote.0);
    record[24..40].copy_from_slice(&path.local.0);
    let Lids { local, remote, .. } = path.lids.unwrap_or(NO_LIDS);
    record[40..42].copy_from_slice(&remote.to_be_bytes());
    record[42..44].copy_from_slice(&local.to_be_bytes());
    // Flow label 20 bits and hop limit; then class, and "reversible" before the number of paths.
    record[47] = path.hop_limit();
    record[48] = traffic_class;
    record[49] = 1 << 7 | 1;
    record[50..52].copy_from_slice(PARTITION.to_be_bytes().as_bytes());
    record[54] = EXACTLY << 6 | mtu;
    record[55] = EXACTLY << 6 | RATE;
    record[56] = EXACTLY << 6 | PACKET_LIFE;
    record
}
