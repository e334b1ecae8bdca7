//! Where a wire leads that leaves this process.

use super::{FrameIo, TapIo, UdpIo, UnixDatagramIo};
use bareverbs_sim::nic::LinkLayer;
use core::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;

/// Frames from and to somebody outside, for whom one can wait beside other things.
pub trait OutsideIo: FrameIo + AsFd + Debug + Send {}

impl<T: FrameIo + AsFd + Debug + Send> OutsideIo for T {}

/// Who is at the other end of a wire.
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
        /// Path of the socket of this end.
        own: PathBuf,
        /// Path of the other side's.
        peer: PathBuf,
    },
    /// A process of this or another machine, over UDP; see [`UdpIo::bind`].
    Udp {
        /// Address of this end.
        own: SocketAddr,
        /// Address of the other side.
        peer: SocketAddr,
    },
    /// This machine, by its TAP interface of that name; see [`TapIo::open`].
    Tap(String),
}

impl Outside {
    /// Another process, over Unix datagram sockets at these paths.
    pub fn datagram(own: impl Into<PathBuf>, peer: impl Into<PathBuf>) -> Self {
        Self::Datagram { own: own.into(), peer: peer.into() }
    }

    /// Takes the end of the wire, which carries frames of this link layer.
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
