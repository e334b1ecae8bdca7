//! The far end of a wire that leaves this process.

use super::{FrameIo, TapIo, UdpIo, UnixDatagramIo};
use bareverbs_sim::nic::LinkLayer;
use core::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;

/// A frame interface to the outside that can be polled together with other descriptors.
pub trait OutsideIo: FrameIo + AsFd + Debug + Send {}

impl<T: FrameIo + AsFd + Debug + Send> OutsideIo for T {}

/// The far end of a wire.
///
/// ```
/// use bareverbs_serve::real_time::Outside;
/// use bareverbs_sim::nic::LinkLayer;
///
/// let wire = Outside::Udp { own: "10.0.0.1:9000".parse().unwrap(), peer: "10.0.0.2:9000".parse().unwrap() };
/// assert_ne!(wire, Outside::datagram("/run/near.socket", "/run/far.socket"));
/// let tap = Outside::Tap("bv0".to_owned());
/// assert!(tap.open(LinkLayer::InfiniBand).is_err(), "a TAP interface carries Ethernet frames");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outside {
    /// Another process, over Unix datagram sockets; see [`UnixDatagramIo::bind`].
    Datagram {
        /// Path of this end's socket.
        own: PathBuf,
        /// Path of the peer's socket.
        peer: PathBuf,
    },
    /// A process on this or another machine, over UDP; see [`UdpIo::bind`].
    Udp {
        /// Address of this end.
        own: SocketAddr,
        /// Address of the peer.
        peer: SocketAddr,
    },
    /// This machine's network stack, through the TAP interface of this name; see [`TapIo::open`].
    Tap(String),
}

impl Outside {
    /// Another process, through Unix datagram sockets at these paths.
    pub fn datagram(own: impl Into<PathBuf>, peer: impl Into<PathBuf>) -> Self {
        Self::Datagram { own: own.into(), peer: peer.into() }
    }

    /// Opens this end of the wire for frames of a link layer.
    pub fn open(&self, layer: LinkLayer) -> io::Result<Box<dyn OutsideIo>> {
        Ok(match (self, layer) {
            (Self::Datagram { own, peer }, _) => Box::new(UnixDatagramIo::bind(own, peer)?),
            (Self::Udp { own, peer }, _) => Box::new(UdpIo::bind(*own, *peer)?),
            (Self::Tap(name), LinkLayer::Ethernet) => Box::new(TapIo::open(name)?),
            (Self::Tap(name), LinkLayer::InfiniBand) => {
                let why =
                    format!("the TAP interface {name} carries Ethernet frames, the ports are InfiniBand");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        })
    }
}
