//! A program that connects to the exchange of `bareverbs_exchange`, or accepts its connection, over real
//! sockets. It sends messages with valid headers and arbitrary bodies, or just bytes, and hangs up. Each end
//! must finish long before its limit.
#![no_main]

use bareverbs_core::RemoteEndpoint;
use bareverbs_exchange::{Credentials, Introduction, Listener, Session, SharedKey, VERSION};
use bareverbs_fuzz::Bytes;
use bareverbs_prm::ids::{Gid, MacAddress, Qpn};
use bareverbs_prm::psn::Psn;
use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(5);
const KEY: SharedKey = SharedKey::new([7; 32]);

/// A loopback address for each connection; lingering connections would use up the ports of a single one.
fn next_address(port: u16) -> SocketAddr {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let host = COUNT.fetch_add(1, Ordering::Relaxed) % 0xff_fffe + 1;
    (Ipv4Addr::from_bits(0x7f00_0000 | host), port).into()
}

fn own() -> Introduction {
    let (qpn, psn) = (Qpn::from_low_bits(0x42), Psn::new(7));
    let (gid, mac) = (Gid::from_ipv4([10, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 1]));
    Introduction::new("fuzz", RemoteEndpoint { qpn, psn, gid, mac, version: None, lid: 0 })
}

/// Everything that the other program sends.
fn conversation(mut input: Bytes<'_>) -> Vec<u8> {
    let mut said = Vec::new();
    while !input.is_empty() {
        let (kind, length) = (input.u8(), input.u16());
        let body = input.take(usize::from(length) % 1024);
        if kind != 0xff {
            said.extend(b"BVEX");
            said.extend(VERSION.to_be_bytes());
            said.extend(u16::from(kind).to_be_bytes());
            said.extend((body.len() as u32).to_be_bytes());
        }
        said.extend(body);
    }
    said
}

fn speak(mut stream: &TcpStream, said: &[u8]) {
    // The other end may have hung up early, which is a valid answer.
    let _ = stream.write_all(said);
    let _ = stream.shutdown(Shutdown::Write);
}

/// What an end does once it has understood its peer.
fn go_on(session: Session) {
    let mut session = session;
    if session.ready(LIMIT).is_ok() {
        let _ = session.ended(LIMIT);
    }
}

/// The exchange accepts. One listener lives as long as the process; a new one for each case would use up the
/// ports.
fn called(said: &[u8], asks_for_proof: bool) {
    static LISTENER: LazyLock<Listener> =
        LazyLock::new(|| Listener::bind("0.0.0.0:0").expect("it listens"));
    let listener = &*LISTENER;
    let port = listener.local_address().expect("an address").port();
    let stream = TcpStream::connect(next_address(port)).expect("the listener has room");
    speak(&stream, said);
    if asks_for_proof {
        let call = listener.call(LIMIT).expect("somebody called");
        let key_of = |name: &str| (name == "tenant").then_some(KEY);
        assert!(call.prove("fuzz", key_of, LIMIT).is_err(), "nobody can prove a key without the challenge");
    } else if let Ok(session) = listener.accept(&own(), LIMIT) {
        go_on(session);
    }
    drop(stream);
}

/// The exchange connects.
fn calls(said: &[u8], proves: bool) {
    static LISTENER: LazyLock<TcpListener> =
        LazyLock::new(|| TcpListener::bind("0.0.0.0:0").expect("it listens"));
    let listener = &*LISTENER;
    let address = next_address(listener.local_addr().expect("an address").port()).to_string();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut stream, _) = listener.accept().expect("somebody calls");
            speak(&stream, said);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let session = if proves {
            let credentials = Credentials { name: "tenant".to_owned(), key: KEY };
            Session::connect_as(&address, &own(), &credentials, LIMIT)
        } else {
            Session::connect(&address, &own(), LIMIT)
        };
        assert!(!(proves && session.is_ok()), "nobody can prove a key without knowing it");
        if let Ok(session) = session {
            go_on(session);
        }
    });
}

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let role = input.u8();
    let said = conversation(input);
    let begin = Instant::now();
    match role & 1 {
        0 => called(&said, role & 2 != 0),
        _ => calls(&said, role & 2 != 0),
    }
    assert!(begin.elapsed() < LIMIT, "the call kept waiting for a peer that had hung up");
});
