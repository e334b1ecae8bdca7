//! Sessions: one introduction each way, then a word from each end that it is ready.
//!
//! The caller speaks first in every step, so the two ends never both wait for room to write.

use crate::error::{Awaited, ExchangeCause, ExchangeError};
use crate::line::{Deadline, Line};
use crate::message::{Introduction, Kind};
use crate::proof::SessionSecret;
use bareverbs_prm::numbering::PathMtu;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

/// Pause between two polls of a listener, and between two attempts of a caller.
const REST: Duration = Duration::from_millis(5);

/// An exchange whose two ends have introduced themselves.
///
/// ```
/// use bareverbs_core::{DeviceRef, PreparedQueuePair, QueuePair};
/// use bareverbs_exchange::{Introduction, Session};
/// use std::error::Error;
/// use std::time::Duration;
///
/// fn call<D: DeviceRef>(prepared: PreparedQueuePair<D>) -> Result<QueuePair<D>, Box<dyn Error>> {
///     let own = Introduction::new("key-value store 1", prepared.endpoint(0)?);
///     let mut session = Session::connect("server:18515", &own, Duration::from_secs(10))?;
///     let queue_pair = prepared.connect(&session.peer().endpoint, Default::default())?;
///     session.ready(Duration::from_secs(10))?; // now the server's queue pair receives
///     Ok(queue_pair)
/// }
/// ```
#[derive(Debug)]
pub struct Session {
    pub(crate) line: Line,
    pub(crate) address: String,
    pub(crate) peer: Introduction,
    pub(crate) path_mtu: PathMtu,
    pub(crate) secret: Option<SessionSecret>,
}

/// Waits for calls.
///
/// ```
/// use bareverbs_core::{DeviceRef, PreparedQueuePair, QueuePair};
/// use bareverbs_exchange::{Introduction, Listener};
/// use std::error::Error;
/// use std::time::Duration;
///
/// /// The other end is the example of [`Session`](bareverbs_exchange::Session).
/// fn serve<D: DeviceRef>(prepared: PreparedQueuePair<D>) -> Result<QueuePair<D>, Box<dyn Error>> {
///     let listener = Listener::bind("0.0.0.0:18515")?;
///     let own = Introduction::new("key-value store 1", prepared.endpoint(0)?);
///     let mut session = listener.accept(&own, Duration::from_secs(60))?;
///     let queue_pair = prepared.connect(&session.peer().endpoint, Default::default())?;
///     session.ready(Duration::from_secs(10))?;
///     Ok(queue_pair)
/// }
/// ```
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    pub(crate) address: String,
}

impl Session {
    /// Calls a program that listens at `address` (`HOST:PORT`). It retries while nobody listens there, so either end
    /// may start first. Resolving a host name takes as long as the operating system allows.
    ///
    /// # Errors
    /// Nobody answers within `limit`, or the peer has another version or purpose.
    pub fn connect(address: &str, own: &Introduction, limit: Duration) -> Result<Self, ExchangeError> {
        let deadline = Deadline::after(limit);
        let stream = dial(address, deadline).map_err(|cause| failed(address, cause))?;
        let introduce = |line: &mut Line| {
            send_introduction(line, own, deadline)?;
            receive_introduction(line, own, deadline)
        };
        Self::begin(stream, address.to_owned(), deadline, own, introduce)
    }

    pub(crate) fn begin(
        stream: TcpStream,
        address: String,
        deadline: Deadline,
        own: &Introduction,
        introduce: impl FnOnce(&mut Line) -> Result<Introduction, ExchangeCause>,
    ) -> Result<Self, ExchangeError> {
        let mut line = Line(stream);
        let peer = introduce(&mut line).map_err(|cause| hang_up(&mut line, &address, cause, deadline))?;
        let path_mtu = smaller(own.path_mtu, peer.path_mtu);
        Ok(Self { line, address, peer, path_mtu, secret: None })
    }

    /// The peer's introduction.
    pub fn peer(&self) -> &Introduction {
        &self.peer
    }

    /// The smaller path MTU of the two ends. Both should connect with it.
    pub fn path_mtu(&self) -> PathMtu {
        self.path_mtu
    }

    /// A secret that this end and its peer have made of the key that they share, and that was never sent: as the access key of memory, say.
    /// `None` if they did not prove to each other that they know a key ([`Session::connect_as`], [`ProvenCall`](crate::ProvenCall)).
    pub fn secret(&self) -> Option<&SessionSecret> {
        self.secret.as_ref()
    }

    /// Says that this end is ready (its queue pair is connected and its receives are posted) and waits until the peer
    /// says so too. May be called again for each later step that both ends take together; the last one precedes tearing
    /// down the queue pairs.
    ///
    /// # Errors
    /// The peer is not ready within `limit`, has hung up, or refused.
    pub fn ready(&mut self, limit: Duration) -> Result<(), ExchangeError> {
        let deadline = Deadline::after(limit);
        let answer = self.line.send(Kind::Ready, &[], deadline).and_then(|()| {
            let message = self.line.receive(Awaited::Ready, deadline)?;
            expect(Kind::Ready, message.kind, Awaited::Ready)
        });
        answer.map_err(|cause| hang_up(&mut self.line, &self.address, cause, deadline))
    }

    /// Waits up to `limit` for the peer to hang up, by which a program says that it no longer needs the other. `None`
    /// means that the peer is still there.
    pub fn ended(&mut self, limit: Duration) -> Option<ExchangeError> {
        let cause = match self.line.receive(Awaited::End, Deadline::after(limit)) {
            Err(ExchangeCause::TimedOut { received: 0, .. }) => return None,
            Err(cause) => cause,
            Ok(message) => ExchangeCause::OutOfTurn { awaited: Awaited::End, kind: message.kind.value() },
        };
        Some(failed(&self.address, cause))
    }

    /// Tells the peer why and hangs up. The peer fails with [`ExchangeCause::Refused`]. At most 1,024 bytes of the
    /// reason are sent.
    pub fn refuse(mut self, reason: &str) {
        self.line.refuse(reason, Deadline::after(Duration::from_secs(1)));
    }
}

impl Listener {
    /// Listens at `address` (`HOST:PORT`; port 0 selects any free port).
    ///
    /// # Errors
    /// The address does not belong to this machine or is in use.
    pub fn bind(address: &str) -> Result<Self, ExchangeError> {
        let listen = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            let own = listener.local_addr()?.to_string();
            Ok(Self { listener, address: own })
        };
        listen().map_err(|error| failed(address, ExchangeCause::Listen(error)))
    }

    /// The address that this listener is bound to.
    ///
    /// # Errors
    /// The operating system does not report it.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Takes the next call. A caller's mistake is reported to the caller and returned as an error; a server that keeps
    /// running calls this again.
    ///
    /// # Errors
    /// Nobody calls within `limit`, or the caller has another version or purpose.
    pub fn accept(&self, own: &Introduction, limit: Duration) -> Result<Session, ExchangeError> {
        let deadline = Deadline::after(limit);
        let (stream, address) = self.take(deadline).map_err(|cause| failed(&self.address, cause))?;
        let introduce = |line: &mut Line| {
            let peer = receive_introduction(line, own, deadline)?;
            send_introduction(line, own, deadline)?;
            Ok(peer)
        };
        Session::begin(stream, address.to_string(), deadline, own, introduce)
    }

    pub(crate) fn take(&self, deadline: Deadline) -> Result<(TcpStream, SocketAddr), ExchangeCause> {
        let awaited = Awaited::Call;
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => {
                    let set = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
                    set.map_err(|error| ExchangeCause::Connection { awaited, error })?;
                    return Ok((stream, address));
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // A caller that disconnects before it is accepted is not our error.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(ExchangeCause::Connection { awaited, error }),
            }
            let Some(left) = deadline.left() else {
                return Err(ExchangeCause::TimedOut { awaited, limit: deadline.limit, received: 0 });
            };
            thread::sleep(left.min(REST));
        }
    }
}

/// Connects to the first address of a name that answers, retrying until the deadline.
pub(crate) fn dial(address: &str, deadline: Deadline) -> Result<TcpStream, ExchangeCause> {
    let places: Vec<SocketAddr> = address.to_socket_addrs().map_err(ExchangeCause::Address)?.collect();
    let mut attempts = 0;
    let mut last = io::Error::from(ErrorKind::TimedOut);
    while let Some(mut left) = deadline.left() {
        for place in &places {
            attempts += 1;
            match TcpStream::connect_timeout(place, left) {
                Ok(stream) => {
                    stream
                        .set_nodelay(true)
                        .map_err(|error| ExchangeCause::Connection { awaited: Awaited::Room, error })?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
            let Some(rest) = deadline.left() else { break };
            left = rest;
        }
        thread::sleep(left.min(REST * 10));
    }
    Err(ExchangeCause::Unreachable { attempts, error: last })
}

fn send_introduction(line: &mut Line, own: &Introduction, deadline: Deadline) -> Result<(), ExchangeCause> {
    line.send(Kind::Introduction, &own.encode().map_err(ExchangeCause::Own)?, deadline)
}

fn receive_introduction(
    line: &mut Line,
    own: &Introduction,
    deadline: Deadline,
) -> Result<Introduction, ExchangeCause> {
    let message = line.receive(Awaited::Introduction, deadline)?;
    expect(Kind::Introduction, message.kind, Awaited::Introduction)?;
    understand(&message.body, own)
}

/// The smaller of two path MTUs.
pub(crate) fn smaller(a: PathMtu, b: PathMtu) -> PathMtu {
    if a.raw() < b.raw() { a } else { b }
}

/// Decodes the peer's introduction and checks that its purpose is ours.
pub(crate) fn understand(body: &[u8], own: &Introduction) -> Result<Introduction, ExchangeCause> {
    let peer = Introduction::decode(body).map_err(ExchangeCause::Peer)?;
    if peer.purpose != own.purpose {
        return Err(ExchangeCause::OtherPurpose { ours: own.purpose.clone(), theirs: peer.purpose });
    }
    if peer.endpoint == own.endpoint {
        return Err(ExchangeCause::Ourselves { qpn: own.endpoint.qpn });
    }
    Ok(peer)
}

pub(crate) fn expect(expected: Kind, found: Kind, awaited: Awaited) -> Result<(), ExchangeCause> {
    if expected == found { Ok(()) } else { Err(ExchangeCause::OutOfTurn { awaited, kind: found.value() }) }
}

/// Tells the peer about its mistake, if it made one.
pub(crate) fn hang_up(
    line: &mut Line,
    address: &str,
    cause: ExchangeCause,
    deadline: Deadline,
) -> ExchangeError {
    if let Some(reason) = cause.for_the_peer() {
        line.refuse(&reason, deadline);
    }
    failed(address, cause)
}

pub(crate) fn failed(address: &str, cause: ExchangeCause) -> ExchangeError {
    ExchangeError { address: address.to_owned(), cause }
}
