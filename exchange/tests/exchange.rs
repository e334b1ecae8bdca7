//! Two ends over TCP: what each learns of the other, and what each reports when the other makes a mistake.

mod common;

use bareverbs_core::RemoteSlice;
use bareverbs_exchange::{
    Awaited, ExchangeCause, ExchangeError, Introduction, Limit, Listener, MessageError, Session,
};
use bareverbs_prm::ids::Mkey;
use bareverbs_prm::numbering::PathMtu;
use common::{introduction, listen};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(150);

/// The results at both ends of a connection, the caller's first.
fn both(caller: &Introduction, called: &Introduction) -> [Result<Session, ExchangeError>; 2] {
    let (listener, address) = listen();
    thread::scope(|scope| {
        let call = scope.spawn(|| Session::connect(&address, caller, LIMIT));
        let answer = listener.accept(called, LIMIT);
        [call.join().unwrap(), answer]
    })
}

/// A listener's error for a caller that sends these bytes, and what the caller receives.
fn called_with(bytes: &[u8]) -> (ExchangeError, Vec<u8>) {
    let (listener, address) = listen();
    thread::scope(|scope| {
        let caller = scope.spawn(|| {
            let (mut stream, mut heard) = (TcpStream::connect(&address).unwrap(), Vec::new());
            stream.write_all(bytes).unwrap();
            // Bytes that nobody read may cause a reset; what arrived before it counts.
            stream.read_to_end(&mut heard).ok();
            heard
        });
        let refused = listener.accept(&introduction(2), LIMIT).unwrap_err();
        (refused, caller.join().unwrap())
    })
}

/// A caller's error for a called end that behaves like this.
fn answered_by(behave: impl FnOnce(TcpStream) + Send, limit: Duration) -> ExchangeError {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::scope(|scope| {
        scope.spawn(move || behave(listener.accept().unwrap().0));
        Session::connect(&address, &introduction(1), limit).unwrap_err()
    })
}

#[test]
fn both_ends_receive_each_others_introduction() {
    let slice = RemoteSlice::from_raw(0x1000, 64, Mkey::new(0x99));
    let caller = Introduction { path_mtu: PathMtu::Mtu4096, ..introduction(1).offering(slice) };
    let called = Introduction { data: vec![7; 64 * 1024], ..introduction(2) };
    let [call, answer] = both(&caller, &called);
    let (mut call, mut answer) = (call.unwrap(), answer.unwrap());
    assert_eq!((call.peer(), answer.peer()), (&called, &caller));
    assert_eq!((call.path_mtu(), answer.path_mtu()), (PathMtu::Mtu1024, PathMtu::Mtu1024));
    thread::scope(|scope| {
        scope.spawn(|| (0..3).for_each(|_| call.ready(LIMIT).unwrap()));
        (0..3).for_each(|_| answer.ready(LIMIT).unwrap());
    });
}

/// Nobody listens yet: the caller retries until somebody does.
#[test]
fn either_end_may_start_first() {
    let (listener, address) = listen();
    drop(listener);
    thread::scope(|scope| {
        let call = scope.spawn(|| Session::connect(&address, &introduction(1), LIMIT));
        thread::sleep(SHORT);
        let listener = Listener::bind(&address).unwrap();
        assert_eq!(listener.accept(&introduction(2), LIMIT).unwrap().peer(), &introduction(1));
        call.join().unwrap().unwrap();
    });
}

#[test]
fn an_absent_peer_is_reported_with_the_number_of_tries() {
    let (listener, address) = listen();
    drop(listener);
    let text = Session::connect(&address, &introduction(1), SHORT).unwrap_err().to_string();
    assert!(text.starts_with(&format!("exchanging endpoints with {address}: not reached in ")), "{text}");
    assert!(text.ends_with("is the other program running and listening there?"), "{text}");
    let text = Session::connect("127.0.0.1", &introduction(1), SHORT).unwrap_err().to_string();
    assert!(text.contains("not an address HOST:PORT"), "{text}");
}

#[test]
fn a_taken_address_and_a_missing_call_are_reported() {
    let (listener, address) = listen();
    assert!(matches!(Listener::bind(&address).unwrap_err().cause, ExchangeCause::Listen(_)));
    let text = listener.accept(&introduction(2), SHORT).unwrap_err().to_string();
    assert_eq!(
        text,
        format!(
            "exchanging endpoints with {address}: no call arrived in 150ms; is the other program running, and does it call this address?"
        )
    );
}

/// A head of version 2 is refused, and both ends learn both version numbers.
#[test]
fn different_versions_are_reported_at_both_ends() {
    let (refused, heard) = called_with(b"BVEX\0\x02\0\x01\0\0\0\0");
    assert!(matches!(refused.cause, ExchangeCause::OtherVersion { theirs: 2 }));
    assert!(refused.to_string().contains("version 2 of the exchange, this end has 1; update this program"));
    assert_eq!(&heard[..8], b"BVEX\0\x01\0\x03");
    assert!(String::from_utf8_lossy(&heard[12..]).contains("version 2 of the exchange"));
}

#[test]
fn garbage_is_quoted_and_gets_no_reply() {
    let (refused, heard) = called_with(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(
        refused.to_string().contains("begins with \"GET \" instead of \"BVEX\"; is the port right?"),
        "{refused}"
    );
    assert_eq!(heard, b"");
    let banner = answered_by(|mut stream| stream.write_all(b"SSH-2.0-OpenSSH_9\r\n").unwrap(), LIMIT);
    assert!(matches!(banner.cause, ExchangeCause::OtherProtocol { found } if found == *b"SSH-"));
}

/// An impossible length is refused before memory is allocated for it.
#[test]
fn a_message_beyond_the_limit_is_refused_at_its_head() {
    let (refused, heard) = called_with(b"BVEX\0\x01\0\x01\xff\xff\xff\xff and more");
    let found = u32::MAX as usize;
    assert!(
        matches!(refused.cause, ExchangeCause::Peer(MessageError::TooMany { limit: Limit::Body, found: is }) if is == found)
    );
    assert!(String::from_utf8_lossy(&heard[12..]).contains("4294967295 bytes of message"));
}

#[test]
fn a_message_out_of_turn_is_refused() {
    let (refused, _) = called_with(b"BVEX\0\x01\0\x02\0\0\0\0");
    assert!(matches!(refused.cause, ExchangeCause::OutOfTurn { awaited: Awaited::Introduction, kind: 2 }));
}

#[test]
fn a_silent_peer_costs_no_more_than_the_limit() {
    let begin = Instant::now();
    let silent = answered_by(|stream| drop((thread::sleep(3 * SHORT), stream)), SHORT);
    let ExchangeCause::TimedOut { awaited: Awaited::Introduction, limit: SHORT, received: 0 } = silent.cause
    else {
        panic!("{silent}");
    };
    assert!(begin.elapsed() >= SHORT);
}

/// A peer that sends a byte now and then does not extend the deadline.
#[test]
fn a_dripping_peer_costs_no_more_than_the_limit() {
    let dripping = answered_by(
        |mut stream| {
            for byte in
                b"BVEX\0\x01\0\x01\0\0\0\x60 and so on, as slowly as one likes".iter().cycle().take(200)
            {
                thread::sleep(Duration::from_millis(10));
                if stream.write_all(&[*byte]).is_err() {
                    return;
                }
            }
            panic!("nobody hung up for two seconds");
        },
        SHORT,
    );
    assert!(matches!(dripping.cause, ExchangeCause::TimedOut { received: 1.., .. }), "{dripping}");
}

#[test]
fn a_hang_up_is_reported_with_the_received_length() {
    let gone = answered_by(
        |mut stream| {
            stream.read_exact(&mut [0; 12]).unwrap();
            let mut rest = Vec::new();
            stream.set_read_timeout(Some(SHORT)).unwrap();
            stream.read_to_end(&mut rest).ok();
            stream.write_all(b"BVEX\0").unwrap();
        },
        LIMIT,
    );
    assert!(
        matches!(gone.cause, ExchangeCause::Closed { awaited: Awaited::Introduction, received: 5 }),
        "{gone}"
    );
}

#[test]
fn different_purposes_are_reported_at_both_ends() {
    let [call, answer] =
        both(&introduction(1), &Introduction { purpose: "test 2".to_owned(), ..introduction(2) });
    let says = "its purpose is \"test 1\", this end's is \"test 2\"; do both run the same program in the same version?";
    assert!(answer.unwrap_err().to_string().ends_with(says));
    let heard = call.unwrap_err();
    assert!(matches!(&heard.cause, ExchangeCause::Refused { reason } if reason == says), "{heard}");
}

#[test]
fn a_program_that_calls_itself_gets_an_explanation() {
    let [_, answer] = both(&introduction(1), &introduction(1));
    assert!(
        answer.unwrap_err().to_string().contains("our own queue pair 0x41; did this program call itself?")
    );
}

#[test]
fn an_introduction_that_cannot_be_sent_is_refused_locally() {
    let own = Introduction { purpose: "p".repeat(256), ..introduction(1) };
    let [call, answer] = both(&own, &introduction(2));
    assert!(matches!(
        call.unwrap_err().cause,
        ExchangeCause::Own(MessageError::TooMany { limit: Limit::Purpose, .. })
    ));
    assert!(matches!(answer.unwrap_err().cause, ExchangeCause::Closed { .. }));
}

/// An end that cannot connect its queue pair says why, and the other end receives the reason where it waits.
#[test]
fn a_refusal_is_heard_with_its_reason() {
    let [call, answer] = both(&introduction(1), &introduction(2));
    answer.unwrap().refuse("no queue pair left\nin this server");
    let text = call.unwrap().ready(LIMIT).unwrap_err().to_string();
    assert!(text.ends_with("it refused: no queue pair left\\nin this server"), "{text}");
    let [call, answer] = both(&introduction(1), &introduction(2));
    drop(answer);
    let gone = call.unwrap().ready(LIMIT).unwrap_err();
    assert!(matches!(gone.cause, ExchangeCause::Closed { awaited: Awaited::Ready, received: 0 }), "{gone}");
}
