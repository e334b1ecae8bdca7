//! Queries device and port about a connection.

use super::QueuePair;
use super::core::Core;
use super::diagnosis::Diagnosis;
use super::service::Connected;
use crate::address_vector::AddressVector;
use crate::command::{CommandError, Request};
use crate::device::DeviceRef;
use bareverbs_prm::command::qp::{QueryQpIn, QueryQpOut};
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::CommandOpcode;

impl<D: DeviceRef, S: Connected> QueuePair<D, S> {
    /// Looks for what keeps the connection from working, for failures like "transport retry counter exceeded". Takes
    /// two commands for the port and one for the queue pair.
    pub fn diagnose(&mut self) -> Result<Diagnosis, CommandError> {
        self.core.diagnose()
    }
}

impl<D: DeviceRef> Core<D> {
    pub(crate) fn diagnose(&mut self) -> Result<Diagnosis, CommandError> {
        let device = self.device.device();
        let mut input = QueryQpIn::new();
        input.set_opcode(CommandOpcode::QueryQp).set_qpn(self.parts.qpn);
        let output: QueryQpOut = device.call(&Request::new(&input))?;
        let sends_outstanding = self.parts.send.poster.outstanding(device.ledgers());
        let (context, port) = (output.qpc(), device.port()?);
        let path = vector_of(context);
        Ok(Diagnosis {
            state: context.state(),
            port,
            path_mtu: context.mtu(),
            qpn: self.parts.qpn,
            remote_qpn: context.remote_qpn(),
            next_send_psn: context.next_send_psn(),
            next_receive_psn: context.next_rcv_psn(),
            path,
            own: device.gid(path.gid_index.into()),
            ack_timeout: context.primary_address_path().ack_timeout(),
            retry_count: context.retry_count(),
            rnr_retry: context.rnr_retry(),
            sends_outstanding,
        })
    }
}

/// The path to the peer, as the context holds it.
fn vector_of(context: &QueuePairContext) -> AddressVector {
    let path = context.primary_address_path();
    AddressVector {
        gid_index: path.src_addr_index(),
        gid: Gid(path.rgid_rip()),
        mac: MacAddress::from_parts(path.rmac_47_32(), path.rmac_31_0()),
        hop_limit: path.hop_limit(),
        traffic_class: path.tclass(),
        flow_label: path.flow_label(),
        service_level: path.sl(),
        udp_source_port: path.udp_sport(),
        lid: path.rlid(),
    }
}
