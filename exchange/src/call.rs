//! Calls in which each end proves to the other that it knows a key.
//!
//! ```text
//! caller                      the end that is called
//! name, number          ->
//!                       <-    number
//! introduction, proof   ->    the proof holds: only now the introduction is read
//!                       <-    introduction, proof
//! ready                 <->   ready
//! ```
//! A listener answers in two steps, so that it can create its queue pair after the caller has been authenticated.

use crate::error::{Awaited, ExchangeCause, ExchangeError};
use crate::line::{Deadline, Line};
use crate::message::{Introduction, Kind};
use crate::proof::{Credentials, Name, Nonce, SessionSecret, SharedKey, Transcript, decode_challenge};
use crate::session::{Listener, Session, dial, expect, failed, hang_up, smaller, understand};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// A call that has not been authenticated: only the caller's address is known.
#[derive(Debug)]
pub struct IncomingCall {
    line: Line,
    address: String,
}

/// Ends an incoming call from another thread: a thread that waits for the caller gets an error that it hung up.
#[derive(Debug)]
pub struct CallEnd(TcpStream);

impl CallEnd {
    /// Ends the call.
    pub fn end(self) {
        // A call that has ended already needs no end.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A call whose caller proved that it knows the key for its name.
///
/// ```
/// use bareverbs_core::{DeviceRef, PreparedQueuePair, QueuePair};
/// use bareverbs_exchange::{Introduction, Listener, SharedKey};
/// use std::error::Error;
/// use std::time::Duration;
///
/// /// The other end calls with `Session::connect_as`.
/// fn serve<D: DeviceRef>(prepared: PreparedQueuePair<D>, key: &SharedKey) -> Result<QueuePair<D>, Box<dyn Error>> {
///     let (listener, limit) = (Listener::bind("0.0.0.0:18515")?, Duration::from_secs(10));
///     let known = |name: &str| (name == "shop").then(|| key.clone());
///     let call = listener.call(Duration::from_secs(60))?.prove("key-value store 1", known, limit)?;
///     let own = Introduction::new("key-value store 1", prepared.endpoint(0)?);
///     let queue_pair = prepared.connect(&call.peer().endpoint, Default::default())?;
///     call.answer(&own, limit)?.ready(limit)?;
///     Ok(queue_pair)
/// }
/// ```
#[derive(Debug)]
pub struct ProvenCall {
    line: Line,
    address: String,
    name: String,
    key: SharedKey,
    nonces: [Nonce; 2],
    introduction: Vec<u8>,
    peer: Introduction,
}

impl Session {
    /// Calls a listener that requires a name and a key, and verifies that the listener knows the key too. Otherwise
    /// like [`Session::connect`].
    ///
    /// # Errors
    /// Those of [`Session::connect`]; the listener does not know the name or the key, or did not prove that it does.
    pub fn connect_as(
        address: &str,
        own: &Introduction,
        credentials: &Credentials,
        limit: Duration,
    ) -> Result<Self, ExchangeError> {
        let deadline = Deadline::after(limit);
        let stream = dial(address, deadline).map_err(|cause| failed(address, cause))?;
        let mut secret = None;
        let introduce = |line: &mut Line| {
            let (peer, agreed) = introduce(line, own, credentials, deadline)?;
            secret = Some(agreed);
            Ok(peer)
        };
        let session = Self::begin(stream, address.to_owned(), deadline, own, introduce)?;
        Ok(Self { secret, ..session })
    }
}

/// The caller's side of the handshake.
fn introduce(
    line: &mut Line,
    own: &Introduction,
    credentials: &Credentials,
    deadline: Deadline,
) -> Result<(Introduction, SessionSecret), ExchangeCause> {
    let Credentials { name, key } = credentials;
    let said = Name { nonce: number()?, name: name.clone() };
    line.send(Kind::Name, &said.encode().map_err(ExchangeCause::Own)?, deadline)?;
    let challenge = receive(line, Kind::Challenge, Awaited::Challenge, deadline)?;
    let called_nonce = decode_challenge(&challenge).map_err(ExchangeCause::Peer)?;
    let introduction = own.encode().map_err(ExchangeCause::Own)?;
    let transcript = Transcript {
        name,
        caller_nonce: &said.nonce,
        called_nonce: &called_nonce,
        introduction: &introduction,
    };
    line.send(Kind::Introduction, &introduction, deadline)?;
    line.send(Kind::Proof, &transcript.of_caller(key), deadline)?;
    let theirs = receive(line, Kind::Introduction, Awaited::Introduction, deadline)?;
    let proof = receive(line, Kind::Proof, Awaited::Proof, deadline)?;
    if !transcript.is_of_called(key, &theirs, &proof) {
        return Err(ExchangeCause::Impostor { name: name.clone() });
    }
    Ok((understand(&theirs, own)?, transcript.secret(key, &theirs)))
}

impl Listener {
    /// Takes the next call without sending anything. Several calls can be answered concurrently, one thread each.
    ///
    /// # Errors
    /// No call arrives within `limit`.
    pub fn call(&self, limit: Duration) -> Result<IncomingCall, ExchangeError> {
        let taken = self.take(Deadline::after(limit)).map_err(|cause| failed(&self.address, cause));
        taken.map(|(stream, address)| IncomingCall { line: Line(stream), address: address.to_string() })
    }
}

impl IncomingCall {
    /// The caller's address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// How another thread ends this call, for a listener that has more callers than it wants to wait for.
    ///
    /// # Errors
    /// The operating system has no more descriptors.
    pub fn ending(&self) -> io::Result<CallEnd> {
        self.line.0.try_clone().map(CallEnd)
    }

    /// Sends `reason` to the caller and hangs up.
    pub fn refuse(mut self, reason: &str) {
        self.line.refuse(reason, Deadline::after(Duration::from_secs(1)));
    }

    /// Asks the caller for its name and for a proof that it knows the key that `key_of` returns for that name. Both
    /// ends must state the same `purpose`.
    ///
    /// # Errors
    /// The caller does not prove it within `limit`. The caller is told so in the same words for an unknown name and for
    /// a wrong key.
    pub fn prove(
        mut self,
        purpose: &str,
        key_of: impl FnOnce(&str) -> Option<SharedKey>,
        limit: Duration,
    ) -> Result<ProvenCall, ExchangeError> {
        let deadline = Deadline::after(limit);
        match ask(&mut self.line, key_of, deadline) {
            Ok(asked) if asked.peer.purpose == purpose => Ok(asked.of(self)),
            Ok(asked) => {
                let cause = ExchangeCause::OtherPurpose { ours: purpose.into(), theirs: asked.peer.purpose };
                Err(hang_up(&mut self.line, &self.address, cause, deadline))
            }
            Err(cause) => Err(hang_up(&mut self.line, &self.address, cause, deadline)),
        }
    }
}

/// What an authenticated caller sent.
struct Asked {
    name: String,
    key: SharedKey,
    nonces: [Nonce; 2],
    introduction: Vec<u8>,
    peer: Introduction,
}

impl Asked {
    fn of(self, call: IncomingCall) -> ProvenCall {
        let (Self { name, key, nonces, introduction, peer }, IncomingCall { line, address }) = (self, call);
        ProvenCall { line, address, name, key, nonces, introduction, peer }
    }
}

/// The called end's side of the handshake, up to the caller's proof.
fn ask(
    line: &mut Line,
    key_of: impl FnOnce(&str) -> Option<SharedKey>,
    deadline: Deadline,
) -> Result<Asked, ExchangeCause> {
    let said = receive(line, Kind::Name, Awaited::Name, deadline)?;
    let Name { nonce, name } = Name::decode(&said).map_err(ExchangeCause::Peer)?;
    let nonces = [nonce, number()?];
    line.send(Kind::Challenge, &nonces[1], deadline)?;
    let introduction = receive(line, Kind::Introduction, Awaited::Introduction, deadline)?;
    let proof = receive(line, Kind::Proof, Awaited::Proof, deadline)?;
    let [caller_nonce, called_nonce] = &nonces;
    let transcript = Transcript { name: &name, caller_nonce, called_nonce, introduction: &introduction };
    let known = key_of(&name);
    // An unknown name must take as long as a wrong key, so its proof is checked against a random key.
    let key = known.clone().map_or_else(|| number().map(SharedKey::new), Ok)?;
    let proven = transcript.is_of_caller(&key, &proof);
    match known {
        None => Err(ExchangeCause::UnknownName { name }),
        Some(_) if !proven => Err(ExchangeCause::WrongKey { name }),
        Some(key) => {
            let peer = Introduction::decode(&introduction).map_err(ExchangeCause::Peer)?;
            Ok(Asked { name, key, nonces, introduction, peer })
        }
    }
}

impl ProvenCall {
    /// The caller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The caller's address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The caller's introduction.
    pub fn peer(&self) -> &Introduction {
        &self.peer
    }

    /// Introduces this end and proves that it knows the key.
    ///
    /// # Errors
    /// The caller does not receive it within `limit`, or introduced itself with this end's own queue pair.
    pub fn answer(mut self, own: &Introduction, limit: Duration) -> Result<Session, ExchangeError> {
        let deadline = Deadline::after(limit);
        match self.say(own, deadline) {
            Err(cause) => Err(hang_up(&mut self.line, &self.address, cause, deadline)),
            Ok(secret) => {
                let path_mtu = smaller(own.path_mtu, self.peer.path_mtu);
                let secret = Some(secret);
                Ok(Session { line: self.line, address: self.address, peer: self.peer, path_mtu, secret })
            }
        }
    }

    fn say(&mut self, own: &Introduction, deadline: Deadline) -> Result<SessionSecret, ExchangeCause> {
        understand(&self.introduction, own)?;
        let theirs = own.encode().map_err(ExchangeCause::Own)?;
        let [caller_nonce, called_nonce] = &self.nonces;
        let introduction = &self.introduction;
        let transcript = Transcript { name: &self.name, caller_nonce, called_nonce, introduction };
        let proof = transcript.of_called(&self.key, &theirs);
        self.line.send(Kind::Introduction, &theirs, deadline)?;
        self.line.send(Kind::Proof, &proof, deadline)?;
        Ok(transcript.secret(&self.key, &theirs))
    }

    /// Sends `reason` to the caller and hangs up.
    pub fn refuse(mut self, reason: &str) {
        self.line.refuse(reason, Deadline::after(Duration::from_secs(1)));
    }
}

fn receive(
    line: &mut Line,
    kind: Kind,
    awaited: Awaited,
    deadline: Deadline,
) -> Result<Vec<u8>, ExchangeCause> {
    let message = line.receive(awaited, deadline)?;
    expect(kind, message.kind, awaited)?;
    Ok(message.body)
}

/// A nonce from the operating system's random number generator.
fn number() -> Result<Nonce, ExchangeCause> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| ExchangeCause::Random(error.into()))?;
    Ok(bytes)
}
