//! RDMA CM for a device without a kernel driver: connections by communication management messages over the port's queue
//! pair 1, with IP addresses and ports (IBTA v1.4 chapter 12, annex A11).
//!
//! The peer can be Linux's RDMA CM or a program of `bareverbs run`. On InfiniBand, IP addresses belong to IPoIB, and
//! the subnet administration knows the paths. A `bareverbs run` network reveals both; in other subnets the port is an
//! IPoIB interface itself ([`IpoibPresence`]), which finds peers and can be found (`ways`). `services` has the datagram
//! counterpart of connections.
//!
//! Messages are handled during every call of [`ConnectionManager`], and by [`ConnectionManager::step`]. A caller that
//! waits for something else should call the latter from time to time, because a peer that missed an answer asks again.

mod services;
mod texts;
mod ways;

use crate::Failure;
use crate::general_services::GeneralServices;
use crate::ipoib::{IpoibPresence, IpoibWay};
use crate::seat::Seat;
use anyhow::{Context as _, Result, bail};
use bareverbs_cm::{
    Acceptance, CommunicationId, ConnectionState, Event, Extension, IpEnds, Lids, Manager, Message, News,
    Offer, PORT_SPACE_TCP, PORT_SPACE_UDP, Path, Refusal, Service, ServiceReply, Terms, port_of_service,
    reason, reject, request, service_id,
};
use bareverbs_core::Device;
use bareverbs_core::address_handle::{GENERAL_SERVICES_Q_KEY, GENERAL_SERVICES_QPN};
use bareverbs_core::hal::Hal;
use bareverbs_core::queue_pair::{ConnectOptions, RemoteEndpoint};
use bareverbs_prm::ids::{Gid, Qpn};
use bareverbs_prm::numbering::{PathMtu, PortType, RoceVersion};
use bareverbs_prm::psn::Psn;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::network::Ports;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;
use texts::{NO_ANSWER, NOBODY_ASKS, PEER_LEFT, TOO_MANY, reason_text, silence};

/// Hop limit of messages and connections, as Linux sets it for RoCE.
const HOPS: u8 = 64;
/// Interval between two requests to a peer that does not listen yet, as with perftest.
const NOT_YET: Duration = Duration::from_millis(100);
/// Longest sleep while waiting for a message: the device has to answer its packets.
const REST: Duration = Duration::from_micros(200);
/// Most peers' requests that may wait.
const MOST_REQUESTS: usize = 1024;
/// Retries without limit while the receiver is not ready, as in RDMA CM programs.
const RNR_RETRY: u8 = 7;
/// First of the ports for a program that has none of its own.
const FIRST_EPHEMERAL: u16 = 0xc000;

/// The Q_Key of datagrams under RDMA CM, as in Linux (`RDMA_UDP_QKEY`).
pub(crate) const DATAGRAM_Q_KEY: u32 = 0x0123_4567;

/// The own port.
#[derive(Debug, Clone)]
struct OwnPort {
    gid: Gid,
    /// The addresses by which peers know it.
    ips: Vec<IpAddr>,
    /// Set on InfiniBand.
    subnet: Option<SubnetEnd>,
}

/// An InfiniBand port in its subnet.
#[derive(Debug, Clone, Copy)]
struct SubnetEnd {
    lid: u16,
    partition_key: u16,
}

/// A peer to call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CmPeer {
    path: Path,
    /// The address that the user named.
    ip: IpAddr,
    /// Code of the largest path MTU, if the administration reported it.
    path_mtu: Option<u8>,
}

impl OwnPort {
    /// The port of a seat, with the address at this GID index.
    fn of<H: Hal>(device: &Device<H>, seat: &Seat, gid_index: u8) -> Result<Self> {
        let subnet =
            |lid| -> Result<_> { Ok(Some(SubnetEnd { lid, partition_key: device.partition_key(0)? })) };
        if let Some((host, port)) = seat.infiniband_host() {
            return Ok(Self { gid: port.gid, ips: vec![host.ipv4().into()], subnet: subnet(port.lid)? });
        }
        if device.capabilities().port_type != PortType::Ethernet {
            let ips: Vec<IpAddr> = seat.subnet_addresses.clone();
            if ips.is_empty() {
                bail!(
                    "RDMA CM over InfiniBand needs an IPoIB address: give the port an unused one (--address \
                     10.0.0.9/24), or use a host of `bareverbs run` (--host NAME --link ib), or leave out \
                     -R at both ends"
                );
            }
            return Ok(Self { gid: device.infiniband_gid(0)?, ips, subnet: subnet(device.port()?.lid)? });
        }
        let entry = seat.gids.get(usize::from(gid_index)).with_context(|| {
            format!("the port has no GID at index {gid_index}: choose another with -x (`bareverbs gids` lists them)")
        })?;
        if entry.version != RoceVersion::Version2 {
            bail!(
                "RDMA CM needs RoCE version 2, but GID index {gid_index} has another version: choose another index with -x"
            );
        }
        Ok(Self { gid: entry.gid, ips: vec![ip_of(entry.gid)], subnet: None })
    }

    /// The path to a port; `remote_lid` and `service_level` only matter on InfiniBand.
    fn path_to(&self, remote: Gid, remote_lid: u16, service_level: u8) -> Path {
        let lids = self.subnet.map(|SubnetEnd { lid: local, partition_key }| Lids {
            local,
            remote: remote_lid,
            partition_key,
            service_level,
        });
        Path { local: self.gid, remote, lids }
    }

    /// The own address in the family of another one.
    fn ip_beside(&self, other: IpAddr) -> Option<IpAddr> {
        self.ips.iter().find(|ip| ip.is_ipv4() == other.is_ipv4()).copied()
    }
}

/// A queue pair of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueEnd {
    pub(crate) qpn: Qpn,
    pub(crate) psn: Psn,
}

/// Properties that all connections of a test share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionParameters {
    pub(crate) path_mtu: PathMtu,
    /// READs and atomics at a time, in either direction; a power of two, or 0.
    pub(crate) reads: u8,
    pub(crate) ack_timeout: u8,
    pub(crate) retry_count: u8,
    pub(crate) traffic_class: u8,
}

/// The parameters that both ends agreed on for a queue pair.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Agreement {
    pub(crate) id: CommunicationId,
    pub(crate) remote: RemoteEndpoint,
    pub(crate) options: ConnectOptions,
}

/// The destination of datagrams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DatagramAgreement {
    pub(crate) remote: RemoteEndpoint,
    pub(crate) options: ConnectOptions,
    pub(crate) q_key: u32,
}

/// Peers' requests about services.
#[derive(Debug, Default)]
struct ServiceRequests {
    /// Unanswered requests, each with its transaction at the peer.
    waiting: VecDeque<(CommunicationId, u32)>,
    answered: VecDeque<AnsweredRequest>,
}

/// An answered request. If the peer repeats it because the reply was lost, it gets the same reply.
#[derive(Debug)]
struct AnsweredRequest {
    path: Path,
    request: u32,
    reply: ServiceReply,
}

/// Connection management of a device; see the module's comment.
pub(crate) struct ConnectionManager<'d, H: Hal> {
    services: GeneralServices<'d, H>,
    manager: Manager,
    seat: &'d Seat,
    own: OwnPort,
    /// The port's IPoIB interface, in a subnet that provides IP addresses in no other way.
    presence: Option<IpoibPresence<'d, H>>,
    /// The port at which [`Self::listen`] accepts connections, and the one for datagrams.
    port: Option<u16>,
    datagram_port: Option<u16>,
    /// Ports of the host, if it has other processes.
    ports: Option<Ports>,
    requests: VecDeque<CommunicationId>,
    service_requests: ServiceRequests,
    /// The connection whose answer is awaited, and the answer.
    awaited: Option<(CommunicationId, Option<News>)>,
    /// How long to wait for a peer.
    timeout: Duration,
}

impl<'d, H: Hal> ConnectionManager<'d, H> {
    /// Opens the queue pair of general services.
    ///
    /// # Errors
    /// [`Failure::Input`] on InfiniBand without an address, or if the port is down or has no such GID.
    pub(crate) fn open(
        device: &'d Device<H>,
        seat: &'d Seat,
        gid_index: u8,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let own = OwnPort::of(device, seat, gid_index).map_err(Failure::Input)?;
        let nanos = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_nanos() as u64);
        let identity = device.identity().map_err(anyhow::Error::from)?;
        let is_alone = own.subnet.is_some() && seat.infiniband_host().is_none();
        let presence = is_alone.then(|| IpoibPresence::open(device, own.ips.clone(), nanos)).transpose()?;
        Ok(Self {
            services: GeneralServices::open(device)?,
            manager: Manager::new(identity.guids.node, seat.process_number(), nanos),
            seat,
            own,
            presence,
            port: None,
            datagram_port: None,
            ports: seat.ports()?,
            requests: VecDeque::new(),
            service_requests: ServiceRequests::default(),
            awaited: None,
            timeout,
        })
    }

    fn hal(&self) -> &'d H {
        self.services.device.hal()
    }

    /// Accepts connections to a port from now on.
    pub(crate) fn listen(&mut self, port: u16) -> Result<()> {
        self.claim(PORT_SPACE_TCP, port)?;
        self.port = Some(port);
        Ok(())
    }

    /// Claims a port for this process; the processes of a host share their ports.
    fn claim(&self, space: u16, port: u16) -> Result<()> {
        if let Some(ports) = &self.ports
            && !ports.claim(space, port)?
        {
            bail!(
                "another process of this host has RDMA CM port {port}; choose another with -p at both ends"
            );
        }
        Ok(())
    }

    /// Handles what has arrived and what is due, and sends what is ready.
    pub(crate) fn step(&mut self) -> Result<()> {
        let now = self.hal().now();
        self.step_presence()?;
        for arrived in self.services.take()? {
            let Some(message) = Message::parse(&arrived.datagram) else {
                // Other classes are for services that do not exist here, except for answers of the subnet
                // administration.
                if let Some(presence) = &mut self.presence {
                    presence.handle_response(now, &arrived.datagram);
                }
                continue;
            };
            let Some(path) = self.path_of(&arrived, &message) else { continue };
            self.manager.handle(now, path, &message);
        }
        self.manager.handle_timeout(now);
        while let Some(Event { id, news }) = self.manager.poll_event() {
            match news {
                News::Requested(message) => self.on_request(id, &message),
                News::ServiceRequested(message) => self.on_service_request(id, &message),
                news => self.on_news(id, news),
            }
        }
        self.flush()
    }

    /// Runs the IPoIB interface; its port may get another LID.
    fn step_presence(&mut self) -> Result<()> {
        let Some(presence) = &mut self.presence else { return Ok(()) };
        presence.step(&mut self.services)?;
        if let (Some(port), Some(end)) = (presence.port(), &mut self.own.subnet) {
            *end = SubnetEnd { lid: port.lid, partition_key: port.partition_key };
        }
        Ok(())
    }

    /// Keeps an awaited answer. The fate of other connections is seen in their states.
    fn on_news(&mut self, id: CommunicationId, news: News) {
        if let Some((awaited, answer)) = &mut self.awaited
            && *awaited == id
            && answer.is_none()
        {
            *answer = Some(news);
        }
    }

    fn flush(&mut self) -> Result<()> {
        while self.manager.has_message() && self.services.may_send()? {
            let Some((path, message)) = self.manager.poll_message() else { break };
            // The path to a peer that we call was resolved before; an unreachable stranger gets no answer.
            let Ok(way) = self.way(path) else { continue };
            let destination = way.destination(GENERAL_SERVICES_QPN, GENERAL_SERVICES_Q_KEY);
            self.services.send(message.bytes(), &destination)?;
        }
        Ok(())
    }

    /// Handles a peer's request for a connection: it waits to be taken, or is refused.
    fn on_request(&mut self, id: CommunicationId, message: &Message) {
        // Removes requests that their peers have given up.
        self.requests.retain(|id| self.manager.get(*id).is_some());
        let service = message.get(request::SERVICE_ID);
        let is_reliable =
            self.manager.get(id).is_some_and(|known| known.terms.service == Service::ReliableConnection);
        let is_for_us = self.is_for_us(service);
        if is_for_us && is_reliable && self.requests.len() < MOST_REQUESTS {
            self.manager.acknowledge(id);
            self.requests.push_back(id);
        } else if self.speaks_for(service) {
            let reason = if is_for_us { reason::CONSUMER } else { reason::INVALID_SERVICE_ID };
            // The request has just arrived, so its connection is in the right state.
            let _ = self.manager.reject(id, &Refusal { reason, private: Vec::new() });
        } else {
            self.manager.forget(id);
        }
    }

    /// Whether this process refuses requests for a service: no other process of the host has the port or
    /// takes precedence.
    fn speaks_for(&self, service: u64) -> bool {
        let Some(ports) = &self.ports else { return true };
        let has_owner = port_of_service(service).is_some_and(|(space, port)| ports.has_owner(space, port));
        self.is_for_us(service) || !has_owner && ports.is_first()
    }

    /// Whether a service is one of the ports at which this process listens.
    fn is_for_us(&self, service: u64) -> bool {
        let ours = [(PORT_SPACE_TCP, self.port), (PORT_SPACE_UDP, self.datagram_port)];
        ours.iter().any(|(space, port)| port.is_some_and(|port| service == service_id(*space, port)))
    }

    fn rest(&self) {
        let hal = self.hal();
        hal.relax(hal.now() + REST);
    }

    /// Requests a connection from a peer, and repeats that while nobody listens there. Returns what to
    /// connect the queue pair with; [`Self::ready`] then reports that it is connected.
    pub(crate) fn call(
        &mut self,
        peer: &CmPeer,
        port: u16,
        own: QueueEnd,
        parameters: &ConnectionParameters,
    ) -> Result<Agreement> {
        let deadline = self.hal().now() + self.timeout;
        let offer = self.offer(peer, port, own, parameters);
        self.way(offer.path)?;
        loop {
            let now = self.hal().now();
            let id = self.manager.connect(now, &offer).context(TOO_MANY)?;
            match self.wait_for_answer(id, deadline)? {
                News::Replied(_) => return self.agreement(id, parameters),
                News::Rejected(message) if is_passing(&message) && self.hal().now() < deadline => {
                    self.pause(NOT_YET)?;
                }
                News::Rejected(message) => bail!(
                    "{} refuses the connection to RDMA CM port {port}: {}",
                    peer.ip,
                    reason_text(message.get(reject::REASON))
                ),
                news => bail!("{} at RDMA CM port {port} {}", peer.ip, silence(&news)),
            }
        }
    }

    fn offer(&self, peer: &CmPeer, port: u16, own: QueueEnd, parameters: &ConnectionParameters) -> Offer {
        let path_mtu = parameters.path_mtu.raw();
        Offer {
            service_id: service_id(PORT_SPACE_TCP, port),
            path: peer.path,
            service: Service::ReliableConnection,
            qpn: own.qpn,
            psn: Some(own.psn),
            shared_receives: false,
            responder_resources: parameters.reads,
            initiator_depth: parameters.reads,
            flow_control: false,
            retry_count: parameters.retry_count,
            rnr_retry: RNR_RETRY,
            ack_timeout: parameters.ack_timeout,
            path_mtu: peer.path_mtu.map_or(path_mtu, |most| path_mtu.min(most)),
            traffic_class: parameters.traffic_class,
            extension: Extension::default(),
            private: self.ends(peer, port, own.qpn).write().to_vec(),
        }
    }

    /// Addresses of both ends. A program without a port gets one that is derived from its queue pair.
    fn ends(&self, peer: &CmPeer, port: u16, own: Qpn) -> IpEnds {
        // A peer whose family none of our addresses has cannot be reached anyway.
        let own_ip = self.own.ip_beside(peer.ip).unwrap_or(peer.ip);
        IpEnds {
            source: SocketAddr::new(own_ip, FIRST_EPHEMERAL | own.value() as u16),
            destination: SocketAddr::new(peer.ip, port),
        }
    }

    fn wait_for_answer(&mut self, id: CommunicationId, deadline: Time) -> Result<News> {
        self.awaited = Some((id, None));
        loop {
            self.step()?;
            if let Some(news) = self.awaited.as_mut().and_then(|(_, answer)| answer.take()) {
                return Ok(news);
            }
            let now = self.hal().now();
            if now > deadline {
                self.manager.destroy(now, id);
                self.flush()?;
                bail!("the peer did not answer a request of RDMA CM within {}{NO_ANSWER}", self.timeout);
            }
            self.rest();
        }
    }

    fn pause(&mut self, time: Duration) -> Result<()> {
        let until = self.hal().now() + time;
        while self.hal().now() < until {
            self.step()?;
            self.rest();
        }
        Ok(())
    }

    /// Reports that the queue pair of a call is connected.
    pub(crate) fn ready(&mut self, id: CommunicationId) -> Result<()> {
        if self.manager.ready(id).is_err() {
            bail!("the peer has ended the connection before it began{PEER_LEFT}");
        }
        self.step()
    }

    /// Waits for a peer's request; returns what to connect the queue pair with. [`Self::accept`] then reports
    /// that it is connected.
    pub(crate) fn wait_for_request(&mut self, parameters: &ConnectionParameters) -> Result<Agreement> {
        let deadline = self.hal().now() + self.timeout;
        loop {
            self.step()?;
            if let Some(id) = self.requests.pop_front() {
                // The peer may have given up.
                if self.manager.get(id).is_some() {
                    return self.agreement(id, parameters);
                }
            }
            if self.hal().now() > deadline {
                bail!("no connection request of RDMA CM arrived within {}{NOBODY_ASKS}", self.timeout);
            }
            self.rest();
        }
    }

    /// Answers a request, once its queue pair is connected and has its receives.
    pub(crate) fn accept(
        &mut self,
        agreement: &Agreement,
        own: QueueEnd,
        parameters: &ConnectionParameters,
    ) -> Result<()> {
        let reads = if parameters.reads == 0 { 0 } else { agreement.options.max_reads };
        let acceptance = Acceptance {
            qpn: own.qpn,
            // The PSN that the queue pair was connected with.
            psn: None,
            shared_receives: false,
            responder_resources: reads,
            initiator_depth: reads,
            flow_control: false,
            rnr_retry: RNR_RETRY,
            extension: Extension::default(),
            private: Vec::new(),
        };
        let now = self.hal().now();
        if self.manager.accept(now, agreement.id, &acceptance).is_err() {
            bail!("the peer has given up its request for a connection{PEER_LEFT}");
        }
        self.step()
    }

    fn agreement(&self, id: CommunicationId, parameters: &ConnectionParameters) -> Result<Agreement> {
        let connection = self.manager.get(id);
        let connection = connection
            .with_context(|| format!("the peer has ended the connection before it began{PEER_LEFT}"))?;
        let (Terms { remote_qpn, receive_psn, send_psn, path_mtu, .. }, path) =
            (connection.terms, connection.path);
        let reads =
            [parameters.reads, connection.terms.responder_resources, connection.terms.initiator_depth];
        let reads = reads.into_iter().min().unwrap_or(0).max(1);
        if !(PathMtu::Mtu256.raw()..=parameters.path_mtu.raw()).contains(&path_mtu) {
            bail!(
                "the peer wants the path MTU with code {path_mtu} (IBTA), but this port carries up to {}",
                parameters.path_mtu.raw()
            );
        }
        Ok(Agreement {
            id,
            remote: self.endpoint(path, QueueEnd { qpn: remote_qpn, psn: receive_psn })?,
            options: ConnectOptions {
                gid_index: self.index_of(path)?,
                path_mtu: PathMtu::from_raw(path_mtu),
                ack_timeout: parameters.ack_timeout,
                retry_count: parameters.retry_count,
                rnr_retry: RNR_RETRY,
                max_reads: 1 << reads.ilog2(),
                hop_limit: HOPS,
                traffic_class: connection.terms.traffic_class,
                service_level: path.lids.map_or(0, |lids| lids.service_level),
                send_psn: Some(send_psn),
                ..ConnectOptions::default()
            },
        })
    }

    /// Ends connections, whichever end begins; returns false if a peer has not answered within `limit`.
    pub(crate) fn part(&mut self, ids: &[CommunicationId], limit: Duration) -> Result<bool> {
        let deadline = self.hal().now() + limit;
        loop {
            let now = self.hal().now();
            for id in ids {
                match self.state(*id) {
                    // Data has arrived over it, so the peer has it, and only its RTU is missing.
                    Some(ConnectionState::ReplySent) => {
                        let _ = self.manager.establish(*id);
                    }
                    Some(ConnectionState::Established | ConnectionState::DisconnectReceived) => {
                        let _ = self.manager.disconnect(now, *id);
                    }
                    _ => {}
                }
            }
            self.step()?;
            let has_ended =
                |id: &CommunicationId| matches!(self.state(*id), None | Some(ConnectionState::TimeWait));
            let have_ended = ids.iter().all(has_ended);
            if have_ended && !self.manager.has_message() && self.services.is_idle()? || now > deadline {
                return Ok(have_ended);
            }
            self.rest();
        }
    }

    fn state(&self, id: CommunicationId) -> Option<ConnectionState> {
        self.manager.get(id).map(|connection| connection.state)
    }
}

impl<H: Hal> Drop for ConnectionManager<'_, H> {
    /// Leaves the subnet's groups, so that nobody finds this port by its addresses any more. If the device
    /// has failed, an earlier call has reported that.
    fn drop(&mut self) {
        if let Some(presence) = &mut self.presence {
            let _ = presence.leave(&mut self.services);
        }
    }
}

/// Whether a peer may accept a repeated request: it does not listen yet, or has not forgotten an earlier
/// connection of the same queue pair.
fn is_passing(message: &Message) -> bool {
    let passing = [reason::INVALID_SERVICE_ID, reason::STALE_CONNECTION].map(u64::from);
    passing.contains(&message.get(reject::REASON))
}

/// The IP address of a RoCE GID.
fn ip_of(gid: Gid) -> IpAddr {
    gid.to_ipv4().map_or_else(|| IpAddr::from(gid.0), IpAddr::from)
}
