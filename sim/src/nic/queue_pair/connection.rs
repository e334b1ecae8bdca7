//! Starts the requester and the responder of a connection and sets its path.

use super::path::{Path, path_mtu};
use super::{Bus, Effects, QueuePair};
use crate::nic::config::NicConfig;
use crate::nic::shared_parts::SharedParts;
use crate::nic::wqe::Format;
use crate::transport::{ConnectionParameters, ConnectionRequester, ConnectionResponder};
use crate::wire::{HeaderTemplate, ServiceClass};

/// The smallest path MTU, which every port supports (IBTA v1.4 §9.7.2). This is only a fallback: INIT2RTR
/// refuses unknown MTU codes.
const SMALLEST_MTU: u32 = 256;

impl QueuePair {
    /// INIT2RTR: creates the responder and sets the path.
    pub(crate) fn connect<M: ?Sized>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        self.responder = Some(ConnectionResponder::new(self.is_acknowledged(), &self.parameters(bus.config)));
        self.set_path(bus);
        Effects::NONE
    }

    /// RTR2RTS: creates the requester, which then sends what was posted earlier.
    pub(crate) fn start_sending(&mut self, config: &NicConfig) -> Effects {
        if self.format == Format::Connected {
            self.requester = Some(ConnectionRequester::new(self.is_acknowledged(), &self.parameters(config)));
        }
        Effects::TURN
    }

    /// SQD2SQD: applies the changed context to the requester, the responder and the path.
    pub(crate) fn change_connection<M: ?Sized>(&mut self, bus: &mut Bus<'_, M>) -> Effects {
        let parameters = self.parameters(bus.config);
        if let Some(requester) = &mut self.requester {
            requester.change(&parameters);
        }
        if let Some(responder) = &mut self.responder {
            responder.set_max_remembered_reads(parameters.max_remembered_reads);
        }
        self.set_path(bus);
        Effects::NONE
    }

    fn is_acknowledged(&self) -> bool {
        self.class != ServiceClass::UnreliableConnection
    }

    /// Sets the path that the context describes. There is none while the GID table entry it names is empty.
    fn set_path<M: ?Sized>(&mut self, bus: &mut Bus<'_, M>) {
        let (context, number) = (&self.context, self.accessor.qpn.value());
        let SharedParts { port, routes, .. } = &mut *bus.shared;
        let route = port.route(context, number, bus.features.software_source_port);
        self.path = route.map(|route| {
            let destination = context.remote_qpn();
            let key = port.partition_key(context.primary_address_path().pkey_index());
            let headers =
                HeaderTemplate::on_route(routes.find(&route), route.udp_source_port, destination, key);
            Path { headers: headers.of_service(self.class), loops_back: port.is_ours(&route, destination) }
        });
    }

    /// The parameters of the transport, read from the context.
    fn parameters(&self, config: &NicConfig) -> ConnectionParameters {
        let context = &self.context;
        ConnectionParameters {
            path_mtu: path_mtu(context.mtu()).unwrap_or(SMALLEST_MTU),
            send_psn: context.next_send_psn(),
            receive_psn: context.next_rcv_psn(),
            ack_timeout: context.primary_address_path().ack_timeout(),
            ack_timeout_factor: config.ack_timeout_factor,
            retry_count: context.retry_count(),
            rnr_retry: context.rnr_retry(),
            min_rnr_timer: context.min_rnr_nak(),
            max_outstanding_reads: 1 << context.log_sra_max(),
            max_remembered_reads: 1 << context.log_rra_max(),
        }
    }
}
