//! Connects queue pairs: what the two ends exchange, and the transitions from INIT to RTS.

use super::address_error::AddressError;
use super::attributes::QueuePairAttributes;
use super::diagnosis::Suspect;
use super::{ConnectError, Connected, ModifyError, PreparedQueuePair, QueuePair};
use crate::address_vector::AddressVector;
use crate::device::DeviceRef;
use crate::gid::GidEntry;
use crate::work_completion::WorkCompletionOpcode;
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::numbering::{PathMtu, PortType, QpState, RoceVersion};
use bareverbs_prm::psn::Psn;
use core::marker::PhantomData;

/// One end of a connection, as the other end needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteEndpoint {
    /// Queue pair number.
    pub qpn: Qpn,
    /// First PSN that this end sends.
    pub psn: Psn,
    /// GID of this end.
    pub gid: Gid,
    /// MAC address of this end, or of the router in between; zero on InfiniBand.
    pub mac: MacAddress,
    /// RoCE version, if known. Ends with different versions cannot communicate.
    pub version: Option<RoceVersion>,
    /// LID of this end on InfiniBand; zero on Ethernet. On InfiniBand a zero GID means a peer in our subnet that wants
    /// no global route header.
    pub lid: u16,
}

/// Parameters of a connection. The defaults suit two peers with one switch between them. Unreliable connections have
/// neither acknowledgements nor READs, and ignore the options about them.
///
/// ```
/// use bareverbs_core::queue_pair::ConnectError;
/// use bareverbs_core::{ConnectOptions, DeviceRef, PreparedQueuePair, QueuePair, Rc, RemoteEndpoint};
/// use bareverbs_prm::numbering::PathMtu;
///
/// /// A peer in the same rack: large packets, and 3 retries after 4.096 µs · 2^8, about 1 ms each.
/// fn connect<D: DeviceRef>(
///     own: PreparedQueuePair<D, Rc>,
///     peer: &RemoteEndpoint,
/// ) -> Result<QueuePair<D, Rc>, ConnectError> {
///     let options = ConnectOptions {
///         path_mtu: PathMtu::Mtu4096,
///         ack_timeout: 8,
///         retry_count: 3,
///         ..ConnectOptions::default()
///     };
///     own.connect(peer, options)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Index of our own address in the RoCE address table, or in the GID table of an InfiniBand port.
    pub gid_index: u8,
    /// Path MTU. Both ends must agree, and the port must support it.
    pub path_mtu: PathMtu,
    /// ACK timeout: 4.096 µs · 2^n, n up to 31; 0 means infinite.
    pub ack_timeout: u8,
    /// Retries after a timeout or a sequence error, up to 7.
    pub retry_count: u8,
    /// Retries after an RNR NAK; 7 means unlimited.
    pub rnr_retry: u8,
    /// How long the peer waits after an RNR NAK, encoded (IBTA v1.4 §9.7.5.2.8, table 45); up to 31.
    pub min_rnr_timer: u8,
    /// Outstanding RDMA READs and atomics in each direction; a power of two.
    pub max_reads: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Traffic class: differentiated services and congestion bits.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Service level, on Ethernet the priority; up to 15.
    pub service_level: u8,
    /// UDP source port. Default: derived from both queue pair numbers.
    pub udp_source_port: Option<u16>,
    /// First PSN to send. Default: that of [`PreparedQueuePair::endpoint`]. With RDMA CM, the peer chooses it.
    pub send_psn: Option<Psn>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl ConnectOptions {
    /// The defaults as a constant.
    pub const DEFAULT: Self = Self {
        gid_index: 0,
        path_mtu: PathMtu::Mtu1024,
        ack_timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        max_reads: 16,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        service_level: 0,
        udp_source_port: None,
        send_psn: None,
    };

    /// The path to a peer under these options. The UDP source port is zero unless they set one.
    pub fn address_vector(&self, remote: &RemoteEndpoint) -> AddressVector {
        AddressVector {
            gid_index: self.gid_index,
            gid: remote.gid,
            mac: remote.mac,
            hop_limit: self.hop_limit,
            traffic_class: self.traffic_class,
            flow_label: self.flow_label,
            service_level: self.service_level,
            udp_source_port: self.udp_source_port.unwrap_or(0),
            lid: remote.lid,
        }
    }

    fn log_reads(&self) -> u8 {
        self.max_reads.max(1).ilog2() as u8
    }
}

impl<D: DeviceRef, S: Connected> PreparedQueuePair<D, S> {
    /// Our end, to be sent to the peer. On InfiniBand it contains the current LID, so exchange it only once the port is
    /// active.
    pub fn endpoint(&self, gid_index: u8) -> Result<RemoteEndpoint, ConnectError> {
        let (parts, device) = (&self.core.parts, self.core.device.device());
        let (qpn, psn) = (parts.qpn, parts.psn);
        if device.capabilities().port_type == PortType::Ethernet {
            let entry = device.gid(gid_index.into()).ok_or(ConnectError::NoAddress { gid_index })?;
            let GidEntry { gid, mac, version, .. } = entry;
            return Ok(RemoteEndpoint { qpn, psn, gid, mac, version: Some(version), lid: 0 });
        }
        let (port, gid) = (device.port(), device.infiniband_gid(gid_index.into()));
        let port = port.map_err(ConnectError::Port)?;
        let (gid, mac) = (gid.map_err(ConnectError::Port)?, MacAddress::default());
        Ok(RemoteEndpoint { qpn, psn, gid, mac, version: None, lid: port.lid })
    }

    /// Connects to `remote`: INIT to RTR to RTS. On failure, the queue pair is destroyed.
    pub fn connect(
        mut self,
        remote: &RemoteEndpoint,
        options: ConnectOptions,
    ) -> Result<QueuePair<D, S>, ConnectError> {
        self.check(&options)?;
        self.check_address(&self.path(remote, &options), remote.version)?;
        let (to_receive, to_send) = (self.to_receive(remote, &options), self.to_send(&options));
        self.prepare_to_receive(&to_receive)?;
        self.core.modify(QpState::Rts, &to_send)?;
        Ok(QueuePair { core: self.core, service: PhantomData })
    }

    /// Connects to itself through entry 0 of its own address table: it receives what it sends. For tests of a single
    /// device, which then needs no cable.
    ///
    /// # Errors
    /// Those of [`Self::endpoint`] and [`Self::connect`].
    pub fn connect_to_itself(self) -> Result<QueuePair<D, S>, ConnectError> {
        let itself = self.endpoint(0)?;
        self.connect(&itself, ConnectOptions::default())
    }

    /// The attributes of INIT to RTR. Those that serve the peer's READs are set only if the service has READs.
    fn to_receive(&self, remote: &RemoteEndpoint, options: &ConnectOptions) -> QueuePairAttributes {
        let set = QueuePairAttributes {
            path: Some(self.path(remote, options)),
            path_mtu: Some(options.path_mtu),
            remote_qpn: Some(remote.qpn),
            receive_psn: Some(remote.psn),
            ..QueuePairAttributes::default()
        };
        if !S::serves(WorkCompletionOpcode::RdmaRead) {
            return set;
        }
        QueuePairAttributes {
            log_max_responder_reads: Some(options.log_reads()),
            min_rnr_timer: Some(options.min_rnr_timer),
            ..set
        }
    }

    /// The attributes of RTR to RTS. Those of our own requests are set only if the queue pair sends any.
    fn to_send(&self, options: &ConnectOptions) -> QueuePairAttributes {
        let set = QueuePairAttributes {
            send_psn: Some(options.send_psn.unwrap_or(self.core.parts.psn)),
            ack_timeout: S::ACKNOWLEDGED.then_some(options.ack_timeout),
            ..QueuePairAttributes::default()
        };
        if !S::offers(WorkCompletionOpcode::RdmaRead) {
            return set;
        }
        QueuePairAttributes {
            retry_count: Some(options.retry_count),
            rnr_retry: Some(options.rnr_retry),
            log_max_requester_reads: Some(options.log_reads()),
            ..set
        }
    }

    fn check(&self, options: &ConnectOptions) -> Result<(), ConnectError> {
        let limits = [
            ("ack_timeout", options.ack_timeout as u32, 31),
            ("retry_count", options.retry_count as u32, 7),
            ("rnr_retry", options.rnr_retry as u32, 7),
            ("min_rnr_timer", options.min_rnr_timer as u32, 31),
            ("flow_label", options.flow_label, 0xf_ffff),
            ("service_level", options.service_level as u32, 15),
        ];
        if let Some(&(name, asked, limit)) = limits.iter().find(|(_, asked, limit)| asked > limit) {
            return Err(ConnectError::Limit { name, asked, limit });
        }
        if !(PathMtu::Mtu256.raw()..=PathMtu::Mtu4096.raw()).contains(&options.path_mtu.raw()) {
            return Err(ConnectError::PathMtu { raw: options.path_mtu.raw() });
        }
        self.check_reads(options)
    }

    /// Checked here, because an excess would only show later, as a NAK for an invalid request.
    fn check_reads(&self, options: &ConnectOptions) -> Result<(), ConnectError> {
        let limits = self.core.device.device().capabilities();
        let limit = 1 << limits.log_max_reads_as_requester.min(limits.log_max_reads_as_responder);
        let asked = options.max_reads;
        let good = !S::ACKNOWLEDGED || asked.is_power_of_two() && asked <= limit;
        if good { Ok(()) } else { Err(ConnectError::Reads { asked, limit }) }
    }

    /// Reports what is wrong with the peer's address; firmware would only answer "bad parameter".
    fn check_address(
        &self,
        vector: &AddressVector,
        version: Option<RoceVersion>,
    ) -> Result<(), ConnectError> {
        let device = self.core.device.device();
        let own = device.gid(vector.gid_index.into());
        let checked = AddressError::check(device.capabilities().port_type, vector, own)
            .and_then(|()| AddressError::check_version(vector, own, version));
        checked.map_err(|error| match error {
            AddressError::NoOwnAddress { gid_index } => ConnectError::NoAddress { gid_index },
            error => ConnectError::Address(error),
        })
    }

    /// INIT to RTR. If firmware refuses, the attributes are diagnosed.
    fn prepare_to_receive(&mut self, attributes: &QueuePairAttributes) -> Result<(), ConnectError> {
        let error = match self.core.modify(QpState::Rtr, attributes) {
            Err(ModifyError::Command(error)) => error,
            other => return other.map_err(ConnectError::Modify),
        };
        let asked = attributes.path_mtu.unwrap_or(PathMtu::Mtu256);
        let port = self.core.device.device().port();
        Err(match port {
            Ok(port) if asked.raw() > port.active_mtu.raw() => {
                let (fits, operational) = (port.active_mtu, port.operational_mtu);
                ConnectError::Refused { suspect: Suspect::PathMtu { asked, fits, operational }, error }
            }
            Ok(port) if port.state.is_down() => {
                ConnectError::Refused { suspect: Suspect::PortDown(port.state), error }
            }
            _ => ConnectError::Modify(ModifyError::Command(error)),
        })
    }

    fn path(&self, remote: &RemoteEndpoint, options: &ConnectOptions) -> AddressVector {
        let (first, last) = self.core.device.device().capabilities().roce_source_ports;
        let derived = source_port(first, last, self.core.parts.qpn, remote.qpn);
        let udp_source_port = options.udp_source_port.unwrap_or(derived);
        AddressVector { udp_source_port, ..options.address_vector(remote) }
    }
}

/// The UDP source port from `first` to `last` for the flow between two queue pairs, the same at both ends. RoCEv2 A17.3.2.1 requires
/// one port per flow, so that switches can spread flows and keep each in order.
fn source_port(first: u16, last: u16, a: Qpn, b: Qpn) -> u16 {
    let mixed = (a.value() ^ b.value()).wrapping_mul(0x9e37_79b1) >> 16;
    let (first, last) = (first.min(last), first.max(last));
    let span = u32::from(last - first) + 1;
    first + ((mixed * span) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_stay_in_their_range() {
        for n in (0..0xff_ffff).step_by(977) {
            let (a, b) = (Qpn::from_low_bits(n), Qpn::from_low_bits(n / 3));
            let port = source_port(0xc000, 0xc0ff, a, b);
            assert!((0xc000..=0xc0ff).contains(&port));
            assert_eq!(port, source_port(0xc000, 0xc0ff, b, a));
        }
    }
}
