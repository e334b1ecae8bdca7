//! ServiceRecord: services that ports advertise by name and ID for the duration of a lease (IBTA v1.4 §15.2.5.14).

use super::components;
use crate::net::subnet::directory::Directory;
use crate::net::subnet::end_port::EndPort;
use crate::wire::management::administration::{ServiceRecord, status};
use bareverbs_prm::time::{Duration, Time};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// Maximum number of services.
const SERVICES: usize = 1024;
/// A lease that never expires.
const FOR_EVER: u32 = u32::MAX;
/// Component mask bits of what identifies a service: ServiceID, ServiceGID and ServiceP_Key.
const NAMED: u64 = 0b111;
const LEASE: u64 = 1 << 4;

/// What identifies a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ServiceName {
    id: u64,
    gid: [u8; 16],
    partition_key: u16,
}

#[derive(Debug)]
struct Service {
    record: ServiceRecord,
    /// `None` if it never expires.
    expires: Option<Time>,
}

/// A request about services, and its sender.
pub(super) struct ServiceRequest<'a> {
    pub(super) record: &'a ServiceRecord,
    pub(super) mask: u64,
    pub(super) requester: EndPort<'a>,
}

/// All services; see the module.
#[derive(Debug, Default)]
pub(super) struct Services(BTreeMap<ServiceName, Service>);

impl Services {
    /// SubnAdmSet: registers a service or renews its lease.
    pub(super) fn register(
        &mut self,
        now: Time,
        request: &ServiceRequest<'_>,
        directory: &Directory<'_>,
    ) -> Result<ServiceRecord, u16> {
        let name = self.name(now, request, directory)?;
        if self.0.len() >= SERVICES && !self.0.contains_key(&name) {
            return Err(status::NO_RESOURCES);
        }
        let mut record = *request.record;
        if request.mask & LEASE == 0 {
            record.set_lease(FOR_EVER);
        }
        let lease = Duration::from_secs(record.lease().into());
        let expires = (record.lease() != FOR_EVER).then(|| now + lease);
        self.0.insert(name, Service { record, expires });
        Ok(record)
    }

    /// SubnAdmDelete: removes a service.
    pub(super) fn remove(
        &mut self,
        now: Time,
        request: &ServiceRequest<'_>,
        directory: &Directory<'_>,
    ) -> Result<ServiceRecord, u16> {
        let name = self.name(now, request, directory)?;
        self.0.remove(&name).map(|service| service.record).ok_or(status::NO_RECORDS)
    }

    /// Finds services in the requester's partitions. Without the SM_Key, the requester does not see their ServiceKeys.
    pub(super) fn find(
        &mut self,
        now: Time,
        request: &ServiceRequest<'_>,
        is_trusted: bool,
    ) -> Vec<ServiceRecord> {
        self.end_leases(now);
        let places: Vec<_> =
            (0..u64::BITS).filter(|bit| request.mask >> bit & 1 != 0).filter_map(place).collect();
        let shown = self.0.values().map(|service| service.shown(now, is_trusted));
        let matches = |record: &ServiceRecord| {
            request.requester.accepts_key(record.partition_key())
                && components::agree(&places, request.record.as_bytes(), record.as_bytes())
        };
        shown.filter(matches).collect()
    }

    /// Identifies the service of a request, if the sender may register it and has its key.
    fn name(
        &mut self,
        now: Time,
        request: &ServiceRequest<'_>,
        directory: &Directory<'_>,
    ) -> Result<ServiceName, u16> {
        if request.mask & NAMED != NAMED {
            return Err(status::INSUFFICIENT_COMPONENTS);
        }
        let record = request.record;
        let name =
            ServiceName { id: record.service_id(), gid: record.gid(), partition_key: record.partition_key() };
        let port = directory.by_gid(&name.gid).ok_or(status::INVALID_GID)?;
        let is_accepted =
            port.accepts_key(name.partition_key) && request.requester.accepts_key(name.partition_key);
        self.end_leases(now);
        let has_key = self.0.get(&name).is_none_or(|service| service.record.key() == record.key());
        if is_accepted && has_key { Ok(name) } else { Err(status::REQUEST_INVALID) }
    }

    fn end_leases(&mut self, now: Time) {
        self.0.retain(|_, service| service.expires.is_none_or(|expires| expires > now));
    }
}

impl Service {
    /// The record with the remaining lease.
    fn shown(&self, now: Time, is_trusted: bool) -> ServiceRecord {
        let mut record = self.record;
        if let Some(expires) = self.expires {
            let left = expires.as_nanos().saturating_sub(now.as_nanos()).div_ceil(1_000_000_000);
            record.set_lease(u32::try_from(left).unwrap_or(FOR_EVER));
        }
        if !is_trusted {
            record.set_key([0; 16]);
        }
        record
    }
}

/// Offset and width in bits of a mask bit's component. The data are sixteen bytes, followed by as many bytes each in
/// 16-, 32- and 64-bit numbers.
const fn place(bit: u32) -> Option<(u32, u32)> {
    match bit {
        0 => Some((0, 64)),
        1 => Some((64, 128)),
        2 => Some((192, 16)),
        4 => Some((224, 32)),
        5 => Some((256, 128)),
        6 => Some((384, 512)),
        7..=22 => Some((896 + (bit - 7) * 8, 8)),
        23..=30 => Some((1024 + (bit - 23) * 16, 16)),
        31..=34 => Some((1152 + (bit - 31) * 32, 32)),
        35..=36 => Some((1280 + (bit - 35) * 64, 64)),
        _ => None,
    }
}
