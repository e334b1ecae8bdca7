//! Multicast groups and their members: MCMemberRecord (IBTA v1.4 §15.2.5.17).
//!
//! A port joins by SubnAdmSet, which creates the group if needed, and leaves by SubnAdmDelete. A group is deleted with
//! its last full member, except for permanent ones: the IPoIB broadcast group of each partition (RFC 4391, section 5).

use super::rate;
use super::selector::{EXACTLY, Selector};
use crate::net::subnet::directory::Directory;
use crate::net::subnet::end_port::{EndPort, full_member};
use crate::net::subnet::forwarding_plan::GroupPort;
use crate::wire::infiniband::{FIRST_MULTICAST_LID, PERMISSIVE_LID};
use crate::wire::is_same_partition;
use crate::wire::management::administration::{McMemberRecord, status};
use crate::wire::management::values::SUBNET_TIMEOUT;
use core::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of groups: the capacity of a switch's multicast table.
pub(super) const GROUPS: usize = 1024;
/// Bits of `JoinState`.
const FULL_MEMBER: u8 = 1;
const NON_MEMBER: u8 = 2;
const SEND_ONLY_FULL_MEMBER: u8 = 8;
/// Members with one of these states receive packets; a group lives while it has such members.
const RECEIVES: u8 = FULL_MEMBER | NON_MEMBER;
const KEEPS: u8 = FULL_MEMBER | SEND_ONLY_FULL_MEMBER;
/// Q_Key, MTU and rate of the IPoIB broadcast groups: 2048 bytes and 10 Gb/s, which every port supports.
const BROADCAST_Q_KEY: u32 = 0x0b1b;
const MTU_2048: u8 = 4;
const RATE_10_GBPS: u8 = 3;
const LINK_LOCAL_SCOPE: u8 = 2;
/// Signature of MGIDs that the SA generates (IBTA v1.4 §15.2.5.17).
const OWN_SIGNATURE: [u8; 2] = [0xa0, 0x1b];

/// Bits of the component mask.
pub(super) mod component {
    pub(super) const MGID: u64 = 1;
    pub(super) const PORT_GID: u64 = 1 << 1;
    pub(super) const Q_KEY: u64 = 1 << 2;
    pub(super) const MLID: u64 = 1 << 3;
    pub(super) const MTU_SELECTOR: u64 = 1 << 4;
    pub(super) const MTU: u64 = 1 << 5;
    pub(super) const TRAFFIC_CLASS: u64 = 1 << 6;
    pub(super) const PARTITION_KEY: u64 = 1 << 7;
    pub(super) const RATE_SELECTOR: u64 = 1 << 8;
    pub(super) const RATE: u64 = 1 << 9;
    pub(super) const LIFE_TIME_SELECTOR: u64 = 1 << 10;
    pub(super) const LIFE_TIME: u64 = 1 << 11;
    pub(super) const SERVICE_LEVEL: u64 = 1 << 12;
    pub(super) const FLOW_LABEL: u64 = 1 << 13;
    pub(super) const HOP_LIMIT: u64 = 1 << 14;
    pub(super) const SCOPE: u64 = 1 << 15;
    pub(super) const JOIN_STATE: u64 = 1 << 16;
    pub(super) const PROXY_JOIN: u64 = 1 << 17;
}

/// Required components of a join or leave, and of a request that creates a group.
const JOIN: u64 = component::MGID | component::PORT_GID | component::JOIN_STATE;
const CREATE: u64 = JOIN
    | component::Q_KEY
    | component::TRAFFIC_CLASS
    | component::PARTITION_KEY
    | component::FLOW_LABEL
    | component::SERVICE_LEVEL;

#[derive(Debug)]
struct MulticastGroup {
    /// The part of the record that all members share.
    record: McMemberRecord,
    /// Whether it exists from the start and stays without members.
    is_permanent: bool,
    /// Members by port GUID.
    members: BTreeMap<u64, Membership>,
}

#[derive(Debug, Clone, Copy)]
struct Membership {
    gid: [u8; 16],
    state: u8,
    is_proxy: bool,
}

/// A request about groups, and its sender.
pub(super) struct GroupRequest<'a> {
    pub(super) record: &'a McMemberRecord,
    pub(super) mask: u64,
    pub(super) requester: EndPort<'a>,
}

/// All groups; see the module.
#[derive(Debug)]
pub(super) struct MulticastGroups {
    by_gid: BTreeMap<[u8; 16], MulticastGroup>,
    /// MGID of each group by its MLID.
    by_lid: BTreeMap<u16, [u8; 16]>,
    /// Groups whose members changed since the switch last asked.
    changed: BTreeSet<u16>,
    /// Counter for generated MGIDs.
    made: u32,
    /// Created and deleted groups.
    events: VecDeque<GroupEvent>,
}

/// A group was created or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::net::subnet) struct GroupEvent {
    pub(in crate::net::subnet) gid: [u8; 16],
    pub(in crate::net::subnet) partition_key: u16,
    pub(in crate::net::subnet) is_made: bool,
}

impl MulticastGroups {
    /// Starts with the IPoIB broadcast group of each of these partitions.
    pub(super) fn new(ip_keys: impl Iterator<Item = u16>) -> Self {
        let mut groups = Self {
            by_gid: BTreeMap::new(),
            by_lid: BTreeMap::new(),
            changed: BTreeSet::new(),
            made: 0,
            events: VecDeque::new(),
        };
        let keys: BTreeSet<u16> = ip_keys.collect();
        // The default partition has the highest P_Key and gets the first MLID.
        for (key, lid) in keys.into_iter().rev().zip(FIRST_MULTICAST_LID..) {
            let record = broadcast(key, lid);
            let group = MulticastGroup { record, is_permanent: true, members: BTreeMap::new() };
            groups.by_gid.insert(record.mgid(), group);
            groups.by_lid.insert(lid, record.mgid());
        }
        groups
    }

    /// SubnAdmSet: joins a port and creates the group if there is none. `is_free` tells whether the switch does not use
    /// a LID.
    pub(super) fn join(
        &mut self,
        request: &GroupRequest<'_>,
        directory: &Directory<'_>,
        is_free: impl Fn(u16) -> bool,
    ) -> Result<McMemberRecord, u16> {
        let port = joining_port(request, directory)?;
        let (record, mask) = (request.record, request.mask);
        let is_nowhere = mask & component::PARTITION_KEY != 0 && record.partition_key() & 0x7fff == 0;
        if record.join_state() == 0 || is_nowhere {
            return Err(status::REQUEST_INVALID);
        }
        let common = match self.by_gid.get(&record.mgid()) {
            Some(group) => {
                group.check_modify(request, port.guid())?;
                group.record
            }
            None => self.plan(request, &port, is_free)?,
        };
        if !agrees(&common, record, mask) || !is_reached(&common, &port) {
            return Err(status::REQUEST_INVALID);
        }
        let is_proxy = port.guid() != request.requester.guid();
        let new = || MulticastGroup { record: common, is_permanent: false, members: BTreeMap::new() };
        if !self.by_gid.contains_key(&common.mgid()) {
            self.events.push_back(GroupEvent::of(&common, true));
            self.by_lid.insert(common.mlid(), common.mgid());
        }
        let group = self.by_gid.entry(common.mgid()).or_insert_with(new);
        let membership =
            group.members.entry(port.guid()).or_insert(Membership { gid: port.gid(), state: 0, is_proxy });
        membership.state |= record.join_state();
        self.changed.insert(common.mlid());
        Ok(membership.record(&common))
    }

    /// SubnAdmDelete: a port leaves a group (o15-0.1.14).
    pub(super) fn leave(
        &mut self,
        request: &GroupRequest<'_>,
        directory: &Directory<'_>,
    ) -> Result<McMemberRecord, u16> {
        let (record, guid) = (request.record, joining_port(request, directory)?.guid());
        let group = self.by_gid.get_mut(&record.mgid()).ok_or(status::REQUEST_INVALID)?;
        group.check_modify(request, guid)?;
        let membership = group.members.get_mut(&guid).ok_or(status::REQUEST_INVALID)?;
        let leaves = record.join_state();
        if leaves == 0 || leaves & !membership.state != 0 {
            return Err(status::REQUEST_INVALID);
        }
        membership.state &= !leaves;
        let response = membership.record(&group.record);
        if membership.state == 0 {
            group.members.remove(&guid);
        }
        self.changed.insert(response.mlid());
        self.end_empty();
        Ok(response)
    }

    /// Removes a port that has left the subnet.
    pub(super) fn forget(&mut self, guid: u64) {
        for group in self.by_gid.values_mut() {
            if group.members.remove(&guid).is_some() {
                self.changed.insert(group.record.mlid());
            }
        }
        self.end_empty();
    }

    /// Finds matching records. Requesters without the SM_Key see groups but not their members (IBTA v1.4 §15.2.5.17).
    pub(super) fn find(&self, request: &GroupRequest<'_>, is_trusted: bool) -> Vec<McMemberRecord> {
        let heard = self.by_gid.values().filter(|group| {
            request.requester.accepts_key(full_member(group.record.partition_key()))
                && is_chosen(&group.record, request.record, request.mask)
        });
        let mut found = Vec::new();
        for group in heard {
            let members = || group.members.values().filter(|member| member.is_chosen(request));
            if is_trusted {
                found.extend(members().map(|member| member.record(&group.record)));
            } else if members().next().is_some() || !asks_for_member(request.mask) {
                found.push(group.record);
            }
        }
        found
    }

    /// The shared record of a group, if the requester may know about it.
    pub(super) fn group(&self, gid: &[u8; 16], requester: &EndPort<'_>) -> Option<&McMemberRecord> {
        let record = &self.by_gid.get(gid)?.record;
        requester.accepts_key(full_member(record.partition_key())).then_some(record)
    }

    /// The next group whose members have changed, with its member ports.
    pub(super) fn poll_change(&mut self, directory: &Directory<'_>) -> Option<(u16, Vec<GroupPort>)> {
        let lid = self.changed.pop_first()?;
        let group = self.by_lid.get(&lid).and_then(|gid| self.by_gid.get(gid));
        Some((lid, group.map(|group| group.ports(directory)).unwrap_or_default()))
    }

    /// The next group that was created or deleted.
    pub(super) fn poll_event(&mut self) -> Option<GroupEvent> {
        self.events.pop_front()
    }

    /// Deletes groups without a member that keeps them alive.
    fn end_empty(&mut self) {
        let (by_lid, changed, events) = (&mut self.by_lid, &mut self.changed, &mut self.events);
        self.by_gid.retain(|_, group| {
            let lives = group.is_permanent || group.members.values().any(|member| member.state & KEEPS != 0);
            if !lives {
                by_lid.remove(&group.record.mlid());
                changed.insert(group.record.mlid());
                events.push_back(GroupEvent::of(&group.record, false));
            }
            lives
        });
    }

    /// Plans a group that the request creates, if it may (o15-0.2.3).
    fn plan(
        &mut self,
        request: &GroupRequest<'_>,
        port: &EndPort<'_>,
        is_free: impl Fn(u16) -> bool,
    ) -> Result<McMemberRecord, u16> {
        let (requested, mask) = (request.record, request.mask);
        if requested.join_state() & KEEPS == 0 {
            return Err(status::REQUEST_INVALID);
        }
        if mask & CREATE != CREATE {
            return Err(status::INSUFFICIENT_COMPONENTS);
        }
        let mut record = *requested;
        record.set_mgid(self.group_gid(requested, mask, &request.requester.gid())?);
        record
            .set_scope(record.mgid()[1] & 0xf)
            .set_port_gid([0; 16])
            .set_join_state(0)
            .set_proxy_join(false);
        let mtu = planned_mtu(requested, mask, port).ok_or(status::REQUEST_INVALID)?;
        let rate = planned_rate(requested, mask, port).ok_or(status::REQUEST_INVALID)?;
        record.set_mtu_selector(EXACTLY).set_mtu(mtu).set_rate_selector(EXACTLY).set_rate(rate);
        let life_time = planned_life_time(requested, mask).ok_or(status::REQUEST_INVALID)?;
        record.set_life_time_selector(EXACTLY).set_life_time(life_time);
        if mask & component::HOP_LIMIT == 0 {
            record.set_hop_limit(0);
        }
        record.set_mlid(self.free_lid(is_free).ok_or(status::NO_RESOURCES)?);
        Ok(record)
    }

    /// The requested MGID, or a generated one if the request has none.
    fn group_gid(
        &mut self,
        requested: &McMemberRecord,
        mask: u64,
        requester: &[u8; 16],
    ) -> Result<[u8; 16], u16> {
        let requested_mgid = requested.mgid();
        if requested_mgid != [0; 16] {
            return if is_group_gid(&requested_mgid) {
                Ok(requested_mgid)
            } else {
                Err(status::REQUEST_INVALID)
            };
        }
        let scope = if mask & component::SCOPE != 0 { requested.scope() } else { LINK_LOCAL_SCOPE };
        // There are more numbers than groups, so the loop terminates.
        loop {
            self.made = self.made.wrapping_add(1);
            let mut gid = [0; 16];
            (gid[0], gid[1]) = (0xff, 0x10 | scope);
            gid[2..4].copy_from_slice(&OWN_SIGNATURE);
            gid[4..12].copy_from_slice(&requester[..8]);
            gid[12..].copy_from_slice(&self.made.to_be_bytes());
            if !self.by_gid.contains_key(&gid) {
                return Ok(gid);
            }
        }
    }

    /// Whether a LID is that of a group.
    pub(super) fn has_lid(&self, lid: u16) -> bool {
        self.by_lid.contains_key(&lid)
    }

    fn free_lid(&self, is_free: impl Fn(u16) -> bool) -> Option<u16> {
        if self.by_gid.len() >= GROUPS {
            return None;
        }
        (FIRST_MULTICAST_LID..PERMISSIVE_LID).find(|lid| !self.has_lid(*lid) && is_free(*lid))
    }
}

impl GroupEvent {
    fn of(record: &McMemberRecord, is_made: bool) -> Self {
        Self { gid: record.mgid(), partition_key: full_member(record.partition_key()), is_made }
    }
}

impl MulticastGroup {
    /// Switch ports of the members, in the order of their GUIDs. Looks at each end port once, whatever the number of
    /// members; of ports with the same GUID the first counts.
    fn ports(&self, directory: &Directory<'_>) -> Vec<GroupPort> {
        let mut places = BTreeMap::new();
        for end in directory.ends.iter().filter(|end| self.members.contains_key(&end.guid())) {
            places.entry(end.guid()).or_insert(end.at);
        }
        let port = |(guid, at)| {
            let receives = self.members.get(&guid)?.state & RECEIVES != 0;
            Some(GroupPort { at, receives })
        };
        places.into_iter().filter_map(port).collect()
    }

    /// Only the port itself may change a membership that it created; any port in the partition may change one
    /// that another port created (o15-0.2.1).
    fn check_modify(&self, request: &GroupRequest<'_>, guid: u64) -> Result<(), u16> {
        let Some(membership) = self.members.get(&guid) else { return Ok(()) };
        let may = match membership.is_proxy {
            true => request.requester.accepts_key(full_member(self.record.partition_key())),
            false => request.requester.guid() == guid,
        };
        if may { Ok(()) } else { Err(status::REQUEST_INVALID) }
    }
}

impl Membership {
    fn record(&self, common: &McMemberRecord) -> McMemberRecord {
        let mut record = *common;
        record.set_port_gid(self.gid).set_join_state(self.state).set_proxy_join(self.is_proxy);
        record
    }

    fn is_chosen(&self, request: &GroupRequest<'_>) -> bool {
        let (record, asks) = (request.record, |component: u64| request.mask & component != 0);
        (!asks(component::PORT_GID) || record.port_gid() == self.gid)
            && (!asks(component::JOIN_STATE) || record.join_state() == self.state)
            && (!asks(component::PROXY_JOIN) || record.proxy_join() == self.is_proxy)
    }
}

/// Whether a mask selects components of a member rather than of its group.
const fn asks_for_member(mask: u64) -> bool {
    mask & (component::PORT_GID | component::JOIN_STATE | component::PROXY_JOIN) != 0
}

/// The port that joins or leaves, if the request is complete and its sender may act for that port.
fn joining_port<'a>(request: &GroupRequest<'_>, directory: &Directory<'a>) -> Result<EndPort<'a>, u16> {
    if request.mask & JOIN != JOIN {
        return Err(status::INSUFFICIENT_COMPONENTS);
    }
    let gid = request.record.port_gid();
    let Some(port) = directory.by_gid(&gid) else {
        let is_foreign = gid[..8] != request.requester.gid()[..8];
        return Err(if is_foreign { status::INVALID_GID } else { status::REQUEST_INVALID });
    };
    let is_own = port.guid() == request.requester.guid();
    if is_own || port.common_key(&request.requester).is_some() {
        Ok(port)
    } else {
        Err(status::REQUEST_INVALID)
    }
}

/// Whether a port can be in a group: it accepts the P_Key, and its MTU and rate suffice.
fn is_reached(group: &McMemberRecord, port: &EndPort<'_>) -> bool {
    let info = &port.attributes.port;
    port.accepts_key(full_member(group.partition_key()))
        && info.neighbor_mtu() >= group.mtu()
        && rate::rank(rate::of_port(info)) >= rate::rank(group.rate())
}

/// Whether a group matches a join request. Scope and MLID are not the sender's choice.
fn agrees(group: &McMemberRecord, requested: &McMemberRecord, mask: u64) -> bool {
    let asks = |component: u64| mask & component != 0;
    (!asks(component::Q_KEY) || requested.q_key() == group.q_key())
        && (!asks(component::PARTITION_KEY)
            || is_same_partition(requested.partition_key(), group.partition_key()))
        && (!asks(component::TRAFFIC_CLASS) || requested.traffic_class() == group.traffic_class())
        && (!asks(component::SERVICE_LEVEL) || requested.service_level() == group.service_level())
        && (!asks(component::FLOW_LABEL) || requested.flow_label() == group.flow_label())
        && (!asks(component::HOP_LIMIT) || requested.hop_limit() == group.hop_limit())
        && quantities_suit(group, requested, mask)
}

fn quantities_suit(group: &McMemberRecord, requested: &McMemberRecord, mask: u64) -> bool {
    let asks = |component: u64| mask & component == component;
    let suits = |selector: u8, order: Ordering| Selector::from_raw(selector).suits(order);
    let rates = rate::rank(group.rate()).cmp(&rate::rank(requested.rate()));
    (!asks(component::MTU_SELECTOR | component::MTU)
        || suits(requested.mtu_selector(), group.mtu().cmp(&requested.mtu())))
        && (!asks(component::RATE_SELECTOR | component::RATE) || suits(requested.rate_selector(), rates))
        && (!asks(component::LIFE_TIME_SELECTOR | component::LIFE_TIME)
            || suits(requested.life_time_selector(), group.life_time().cmp(&requested.life_time())))
}

/// Whether a query selects a group.
fn is_chosen(group: &McMemberRecord, requested: &McMemberRecord, mask: u64) -> bool {
    let asks = |component: u64| mask & component != 0;
    (!asks(component::MGID) || requested.mgid() == group.mgid())
        && (!asks(component::MLID) || requested.mlid() == group.mlid())
        && (!asks(component::SCOPE) || requested.scope() == group.scope())
        && agrees(group, requested, mask)
}

/// MTU of a new group; `None` if the port does not support it.
fn planned_mtu(requested: &McMemberRecord, mask: u64, port: &EndPort<'_>) -> Option<u8> {
    let asks = mask & component::MTU_SELECTOR != 0 && mask & component::MTU != 0;
    let selector = if asks { Selector::from_raw(requested.mtu_selector()) } else { Selector::Largest };
    selector.choose(requested.mtu(), port.attributes.port.neighbor_mtu()).filter(|mtu| *mtu > 0)
}

/// Rate of a new group; `None` if the port does not support it.
fn planned_rate(requested: &McMemberRecord, mask: u64, port: &EndPort<'_>) -> Option<u8> {
    let most = rate::of_port(&port.attributes.port);
    if mask & component::RATE_SELECTOR == 0 || mask & component::RATE == 0 {
        return Some(most);
    }
    let selector = Selector::from_raw(requested.rate_selector());
    selector.choose(rate::rank(requested.rate())?, rate::rank(most)?).and_then(rate::of_rank)
}

/// Packet lifetime of a new group; `None` if no lifetime suits the request's selector.
fn planned_life_time(requested: &McMemberRecord, mask: u64) -> Option<u8> {
    if mask & component::LIFE_TIME_SELECTOR == 0 || mask & component::LIFE_TIME == 0 {
        return Some(SUBNET_TIMEOUT);
    }
    Selector::from_raw(requested.life_time_selector()).choose(requested.life_time(), SUBNET_TIMEOUT)
}

/// Whether a port may choose this MGID: it must be multicast, without reserved flags, and not have the signature of
/// generated MGIDs (o15-0.1.5). MGIDs of IP groups have their own rules (RFC 4391, section 4).
fn is_group_gid(gid: &[u8; 16]) -> bool {
    let (flags, scope) = (gid[1] >> 4, gid[1] & 0xf);
    gid[0] == 0xff && flags & 0xe == 0 && !(gid[2..4] == OWN_SIGNATURE && scope == LINK_LOCAL_SCOPE)
}

/// The IPoIB broadcast group of a partition.
fn broadcast(key: u16, lid: u16) -> McMemberRecord {
    let [high, low] = key.to_be_bytes();
    let mut record = McMemberRecord::new();
    record.set_mgid([0xff, 0x12, 0x40, 0x1b, high, low, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    record.set_q_key(BROADCAST_Q_KEY).set_mlid(lid).set_partition_key(key).set_scope(LINK_LOCAL_SCOPE);
    record.set_mtu_selector(EXACTLY).set_mtu(MTU_2048);
    record.set_rate_selector(EXACTLY).set_rate(RATE_10_GBPS);
    record.set_life_time_selector(EXACTLY).set_life_time(SUBNET_TIMEOUT);
    record
}
