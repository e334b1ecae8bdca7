//! Two ends that prove to each other that they know a key, and ends that cannot.

mod common;

use bareverbs_exchange::{
    Credentials, ExchangeCause, ExchangeError, Introduction, Listener, ProvenCall, Session, SharedKey,
};
use common::{introduction, listen};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);

fn key(byte: u8) -> SharedKey {
    SharedKey::new([byte; 32])
}

fn shop(byte: u8) -> Credentials {
    Credentials { name: "shop".into(), key: key(byte) }
}

/// The listener knows one caller, "shop" with key 1.
fn prove(listener: &Listener) -> Result<ProvenCall, ExchangeError> {
    let known = |name: &str| (name == "shop").then(|| key(1));
    listener.call(LIMIT).unwrap().prove("test 1", known, LIMIT)
}

/// The results at both ends of a call.
fn call(own: &Introduction, credentials: &Credentials) -> [Result<Session, ExchangeError>; 2] {
    let (listener, address) = listen();
    thread::scope(|scope| {
        let caller = scope.spawn(|| Session::connect_as(&address, own, credentials, LIMIT));
        let called = prove(&listener).and_then(|call| {
            assert_eq!((call.name(), call.peer()), ("shop", own));
            call.answer(&introduction(2), LIMIT)
        });
        [caller.join().unwrap(), called]
    })
}

#[test]
fn both_ends_of_a_proven_session_learn_each_other() {
    let [caller, called] = call(&introduction(1), &shop(1));
    let (mut caller, mut called) = (caller.unwrap(), called.unwrap());
    assert_eq!((caller.peer(), called.peer()), (&introduction(2), &introduction(1)));
    assert!(caller.secret().is_some() && caller.secret() == called.secret());
    let [other, _] = call(&introduction(1), &shop(1));
    assert_ne!(other.unwrap().secret(), caller.secret(), "another session has another secret");
    thread::scope(|scope| {
        scope.spawn(|| caller.ready(LIMIT).unwrap());
        called.ready(LIMIT).unwrap();
    });
    assert!(called.ended(Duration::from_millis(1)).is_none(), "the caller is still there");
    caller.refuse("enough");
    let end = called.ended(LIMIT).unwrap();
    assert!(matches!(&end.cause, ExchangeCause::Refused { reason } if reason == "enough"), "{end}");
}

#[test]
fn a_wrong_key_and_an_unknown_name_look_the_same_to_the_caller() {
    let other = Credentials { name: "shoq".into(), key: key(1) };
    let [wrong_key, unknown] = [shop(2), other].map(|credentials| {
        let [caller, called] = call(&introduction(1), &credentials);
        (caller.unwrap_err().to_string(), called.unwrap_err().cause)
    });
    assert!(matches!(&wrong_key.1, ExchangeCause::WrongKey { name } if name == "shop"));
    assert!(matches!(&unknown.1, ExchangeCause::UnknownName { name } if name == "shoq"));
    let told = |(text, _): (String, _)| text[text.find("it refused").expect(&text)..].to_owned();
    let (wrong_key, unknown) = (told(wrong_key), told(unknown));
    assert!(wrong_key.contains("no \\\"shop\\\" with this key"), "{wrong_key}");
    assert_eq!(wrong_key.replace("shop", "shoq"), unknown);
}

#[test]
fn only_a_peer_with_the_key_learns_the_purpose() {
    let own = Introduction { purpose: "test 2".into(), ..introduction(1) };
    let [caller, called] = call(&own, &shop(1));
    assert!(matches!(called.unwrap_err().cause, ExchangeCause::OtherPurpose { .. }));
    assert!(caller.unwrap_err().to_string().contains("test 1"));
    let [caller, _] = call(&own, &shop(2));
    assert!(!caller.unwrap_err().to_string().contains("test 1"));
}

/// One end expects a key and the other has none.
#[test]
fn a_call_between_ends_with_and_without_a_key_names_the_missing_message() {
    let (listener, address) = listen();
    thread::scope(|scope| {
        let caller = scope.spawn(|| Session::connect(&address, &introduction(1), LIMIT).unwrap_err());
        let called = prove(&listener).unwrap_err().to_string();
        assert!(called.contains("we waited for its name"), "{called}");
        assert!(caller.join().unwrap().to_string().contains("we waited for its name"));
        let caller =
            scope.spawn(|| Session::connect_as(&address, &introduction(1), &shop(1), LIMIT).unwrap_err());
        let called = listener.accept(&introduction(2), LIMIT).unwrap_err().to_string();
        assert!(called.contains("we waited for its introduction"), "{called}");
        caller.join().unwrap();
    });
}

/// A byte that somebody in between changes in the listener's answer is detected, wherever it is.
#[test]
fn a_changed_reply_proves_nothing() {
    // After the challenge (44 bytes): the last byte of the introduction's purpose, and a byte of the proof.
    let introduction_length = 12 + 52 + "test 1".len();
    for at in [44 + introduction_length - 1, 44 + introduction_length + 12 + 3] {
        let (listener, address) = listen();
        let between = TcpListener::bind("127.0.0.1:0").unwrap();
        let front = between.local_addr().unwrap().to_string();
        thread::scope(|scope| {
            let caller = scope.spawn(move || Session::connect_as(&front, &introduction(1), &shop(1), LIMIT));
            scope.spawn(move || relay(between.accept().unwrap().0, &address, at));
            prove(&listener).unwrap().answer(&introduction(2), LIMIT).unwrap();
            let error = caller.join().unwrap().unwrap_err();
            assert!(matches!(error.cause, ExchangeCause::Impostor { .. }), "{at}: {error}");
        });
    }
}

/// Relays bytes both ways and changes one of those sent to the caller.
fn relay(caller: TcpStream, address: &str, at: usize) {
    let called = TcpStream::connect(address).unwrap();
    let (mut up_from, mut up_to) = (caller.try_clone().unwrap(), called.try_clone().unwrap());
    let up = thread::spawn(move || std::io::copy(&mut up_from, &mut up_to));
    let (mut from, mut to, mut carried, mut buffer) = (called, caller, 0, [0; 256]);
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        if (carried..carried + length).contains(&at) {
            buffer[at - carried] ^= 1;
        }
        carried += length;
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    drop(up.join());
}
