//! Datagram services (IBTA v1.4 §12.11): a sender asks for the queue pair behind a port, and learns its
//! number and Q_Key. This makes no connection, so there is nothing to disconnect.

use super::texts::{NOBODY_ASKS, TOO_MANY, silence};
use super::{
    AnsweredRequest, CmPeer, ConnectionManager, ConnectionParameters, DATAGRAM_Q_KEY, DatagramAgreement,
    HOPS, MOST_REQUESTS, NOT_YET, QueueEnd,
};
use anyhow::{Context as _, Result, bail};
use bareverbs_cm::{
    CommunicationId, Message, News, PORT_SPACE_UDP, Path, ServiceOffer, ServiceReply, service_id,
    service_reply, service_request,
};
use bareverbs_core::hal::Hal;
use bareverbs_core::queue_pair::ConnectOptions;
use bareverbs_prm::ids::Qpn;
use bareverbs_prm::psn::Psn;

/// Statuses of a reply (IBTA v1.4 §12.11.2.1).
const SERVED: u8 = 0;
const UNKNOWN_SERVICE: u8 = 1;

impl<H: Hal> ConnectionManager<'_, H> {
    /// Serves datagrams for a port from now on.
    pub(crate) fn listen_for_datagrams(&mut self, port: u16) -> Result<()> {
        self.claim(PORT_SPACE_UDP, port)?;
        self.datagram_port = Some(port);
        Ok(())
    }

    /// Handles a peer's request for a service: it waits to be answered, or is told that nobody has the
    /// service.
    pub(super) fn on_service_request(&mut self, id: CommunicationId, message: &Message) {
        let Some(path) = self.manager.get(id).map(|known| known.path) else { return };
        let (request, service) =
            (message.get32(service_request::REQUEST_ID), message.get(service_request::SERVICE_ID));
        let known = &self.service_requests.answered;
        let repeated = known.iter().find(|known| (known.path, known.request) == (path, request));
        let has_room = self.service_requests.waiting.len() < MOST_REQUESTS;
        let reply = match repeated {
            Some(known) => known.reply.clone(),
            None if self.is_for_us(service) && has_room => {
                return self.service_requests.waiting.push_back((id, request));
            }
            None if self.is_for_us(service) || !self.speaks_for(service) => return self.manager.forget(id),
            None => service_reply_of(UNKNOWN_SERVICE, Qpn::from_low_bits(0)),
        };
        // The request has just arrived, and the peer expects nothing else.
        let _ = self.manager.answer_service(id, &reply);
    }

    /// Asks a peer for the queue pair behind a port, and repeats that while nobody has it.
    pub(crate) fn resolve(
        &mut self,
        peer: &CmPeer,
        port: u16,
        own: Qpn,
        parameters: &ConnectionParameters,
    ) -> Result<DatagramAgreement> {
        let deadline = self.hal().now() + self.timeout;
        let path = peer.path;
        let private = self.ends(peer, port, own).write().to_vec();
        let offer = ServiceOffer { service_id: service_id(PORT_SPACE_UDP, port), path, private };
        self.way(path)?;
        loop {
            let now = self.hal().now();
            let id = self.manager.resolve_service(now, &offer).context(TOO_MANY)?;
            let message = match self.wait_for_answer(id, deadline)? {
                News::ServiceResolved(message) => message,
                news => bail!("{} at RDMA CM port {port} of datagrams {}", peer.ip, silence(&news)),
            };
            match message.get8(service_reply::STATUS) {
                SERVED => {
                    let qpn = Qpn::from_low_bits(message.get32(service_reply::QPN));
                    return self.datagrams_to(path, qpn, message.get32(service_reply::Q_KEY), parameters);
                }
                UNKNOWN_SERVICE if self.hal().now() < deadline => self.pause(NOT_YET)?,
                status => bail!(
                    "{} refuses datagrams at RDMA CM port {port} with status {status} (IBTA v1.4 §12.11.2.1)",
                    peer.ip
                ),
            }
        }
    }

    /// Waits for a peer that asks for the port, and tells it our queue pair, which must be able to receive by
    /// then. Returns the path to the peer.
    pub(crate) fn serve(&mut self, own: Qpn) -> Result<Path> {
        let deadline = self.hal().now() + self.timeout;
        loop {
            self.step()?;
            if let Some((id, request)) = self.service_requests.waiting.pop_front()
                && let Some(path) = self.manager.get(id).map(|known| known.path)
            {
                let reply = service_reply_of(SERVED, own);
                if self.manager.answer_service(id, &reply).is_ok() {
                    let answered = &mut self.service_requests.answered;
                    answered.truncate(MOST_REQUESTS - 1);
                    answered.push_front(AnsweredRequest { path, request, reply });
                    self.step()?;
                    return Ok(path);
                }
            }
            if self.hal().now() > deadline {
                bail!("no service request of RDMA CM arrived within {}{NOBODY_ASKS}", self.timeout);
            }
            self.rest();
        }
    }

    /// The path to a queue pair of a peer.
    pub(crate) fn datagrams_to(
        &self,
        path: Path,
        qpn: Qpn,
        q_key: u32,
        parameters: &ConnectionParameters,
    ) -> Result<DatagramAgreement> {
        let remote = self.endpoint(path, QueueEnd { qpn, psn: Psn::new(0) })?;
        let options = ConnectOptions {
            gid_index: self.index_of(path)?,
            path_mtu: parameters.path_mtu,
            hop_limit: HOPS,
            traffic_class: parameters.traffic_class,
            service_level: path.lids.map_or(0, |lids| lids.service_level),
            ..ConnectOptions::default()
        };
        Ok(DatagramAgreement { remote, options, q_key })
    }
}

fn service_reply_of(status: u8, qpn: Qpn) -> ServiceReply {
    ServiceReply { status, qpn, q_key: DATAGRAM_Q_KEY, private: Vec::new() }
}
