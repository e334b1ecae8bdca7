//! ServiceRecord: what ports offer, by name and number, for as long as a lease runs (IBTA v1.4 §15.2.5.14).

use super::components;
use crate::net::subnet::directory::Directory;
use crate::net::subnet::end_port::EndPort;
use crate::wire::management::administration::{ServiceRecord, status};
use bareverbs_prm::time::{Duration, Time};
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// Services that there can be.
const SERVICES: usize = 1024;
/// A lease without end.
const FOR_EVER: u32 = u32::MAX;
/// What names a service: ServiceID, ServiceGID and ServiceP_Key, and their bits of the component mask.
const NAMED: u64 = 0b111;
const LEASE: u64 = 1 << 4;

/// What names a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ServiceName {
    id: u64,
    gid: [u8; 16],
    partition_key: u16,
}

#[derive(Debug)]
struct Service {
    record: ServiceRecord,
    /// `None` without end.
    expires: Option<Time>,
}

/// A request about services, and who has sent it.
pub(super) struct ServiceRequest<'a> {
    pub(super) record: &'a ServiceRecord,
    pub(super) mask: u64,
    pub(super) requester: EndPort<'a>,
}

/// All services; see the module.
#[derive(Debug, Default)]
pub(super) struct Services(BTreeMap<ServiceName, Service>);

impl Services {
    /// SubnAdmSet: the service is offered, or its lease begins again.
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

    /// SubnAdmDelete: the service is offered no more.
    pub(super) fn remove(
        &mut self,
        now: Time,
        request: &ServiceRequest<'_>,
        directory: &Directory<'_>,
    ) -> Result<ServiceRecord, u16> {
        let name = self.name(now, request, directory)?;
        self.0.remove(&name).map(|service| service.record).ok_or(status::NO_RECORDS)
    }

    /// Services in partitions of who asks. The key of a service is shown to nobody without the SM_Key.
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
            request.requester.hears(record.partition_key())
                && components::agree(&places, request.record.as_bytes(), record.as_bytes())
        };
        shown.filter(matches).collect()
    }

    /// What names the service of a request, if its sender may offer it and has its key.
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
        let is_heard = port.hears(name.partition_key) && request.requester.hears(name.partition_key);
        self.end_leases(now);
        let has_key = self.0.get(&name).is_none_or(|service| service.record.key() == record.key());
        if is_heard && has_key { Ok(name) } else { Err(status::REQUEST_INVALID) }
    }

    fn end_leases(&mut self, now: Time) {
        self.0.retain(|_, service| service.expires.is_none_or(|expires| expires > now));
    }
}

impl Service {
    /// The record as it is now: with what is left of the lease.
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

/// Place and width in bits of the component of a bit of the mask: the data are sixteen bytes, and three times as many again as numbers
/// of 16, 32 and 64 bits.
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
