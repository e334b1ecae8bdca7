use super::*;
use proptest::prelude::*;

#[test]
fn reads_what_the_program_prints() {
    let line = b"000b:0080:000012:0a1b2c:00000f2a:00007f2b0c0d1000:\
        00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01:00000000:\0";
    let destination = Destination::parse(line).expect("a line");
    assert_eq!((destination.lid, destination.outstanding_reads), (11, 128));
    assert_eq!(destination.rkey, 0xf2a);
    assert_eq!(destination.address, 0x7f2b_0c0d_1000);
    assert_eq!(destination.gid, Gid::from_ipv4([10, 0, 0, 1]));
    assert_eq!(destination.encode(), *line);
    assert_eq!(destination.shared_queue, None);
}

#[test]
fn without_gid_the_line_is_shorter() {
    let line = b"0001:0010:000047:f80198:00001708:000055568156f001:00000000\0";
    let destination = Destination::parse(line).expect("a line");
    assert_eq!((destination.lid, destination.outstanding_reads, destination.gid), (1, 16, Gid::default()));
    assert_eq!((destination.encode_local(), destination.address), (*line, 0x5556_8156_f001));
}

#[test]
fn a_record_has_its_numbers_where_the_programs_have_them() {
    let own = Destination {
        outstanding_reads: 16,
        qpn: Qpn::from_low_bits(0x12_3456),
        psn: Psn::new(0xabcdef),
        rkey: 0x1122_3344,
        address: 0x7f2b_0c0d_1000,
        gid: Gid::from_ipv4([10, 0, 0, 1]),
        lid: 11,
        shared_queue: Srqn::new(0x77),
    };
    let record = own.encode_record();
    assert_eq!(
        record[..20],
        [0, 0, 0, 11, 0, 0, 0, 16, 0, 0x12, 0x34, 0x56, 0, 0xab, 0xcd, 0xef, 0x11, 0x22, 0x33, 0x44]
    );
    assert_eq!(record[24..32], 0x7f2b_0c0d_1000_u64.to_be_bytes());
    assert_eq!((&record[42..48], record[51]), (&[0xff, 0xff, 10, 0, 0, 1][..], 0x77));
    assert_eq!(Destination::parse_record(&record), Some(own));
}

#[test]
fn path_mtus_have_ibtas_numbers() {
    for bytes in [256, 512, 1024, 2048, 4096] {
        assert_eq!(mtu_code(bytes).and_then(mtu_bytes), Some(bytes));
    }
    assert_eq!((mtu_code(1500), mtu_bytes(0), mtu_bytes(6)), (None, None, None));
}

#[test]
fn a_version_is_its_leading_number() {
    assert_eq!(leading_number("6.24\0\0\0"), Some(6.24));
    assert_eq!(leading_number("\0"), None);
    assert_eq!(leading_number("5.7"), Some(5.7));
}

fn rest() -> Result<()> {
    std::thread::yield_now();
    Ok(())
}

/// The error of an end that gets `version` as the peer's version.
fn refusal_of(version: [u8; 16]) -> String {
    let listener = Listener::bind().expect("a port");
    let address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, listener.port().expect("a port")));
    let limit = Duration::from_secs(10);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut line = listener.accept(limit, &mut rest).expect("a client");
            line.receive::<16>(&mut rest).expect("a version");
            line.send(&version).expect("sent");
        });
        let refused = Session::connect(address, 4096, limit, &mut rest).expect_err("refused");
        format!("{refused:#}")
    })
}

#[test]
fn a_peer_that_is_too_old_or_no_perftest_is_named() {
    assert!(refusal_of(*b"5.60\0\0\0\0\0\0\0\0\0\0\0\0").contains("5.6, which is older"));
    let refused = refusal_of(*b"HTTP/1.1 400 Bad");
    assert!(
        refused.contains("version \"HTTP/1.1 400 Bad\"") && refused.contains("something else"),
        "{refused}"
    );
    // It may close before or after it has our message; either way the peer hung up.
    for _ in 0..20 {
        let refused = refusal_of(*b"6.06\0\0\0\0\0\0\0\0\0\0\0\0");
        assert!(refused.contains("the peer hung up"), "{refused}");
    }
}

#[test]
fn a_port_where_nobody_listens_is_named() {
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    let refused = Session::connect(address, 4096, Duration::from_millis(20), &mut rest);
    let refused = format!("{:#}", refused.expect_err("refused"));
    assert!(refused.starts_with("nobody listens at 127.0.0.1:1 (TCP), "), "{refused}");
    assert!(refused.ends_with("; start the end that listens first, or name its port with -p"), "{refused}");
}

/// A stranger connects and does this, then a program connects. Returns what the listening end reports about the stranger.
fn told_of(stranger: impl Fn(std::net::TcpStream) + Send) -> String {
    static TOLD: std::sync::Mutex<Vec<(u16, String)>> = std::sync::Mutex::new(Vec::new());
    let listener = Listener::bind().expect("a port").telling(|stranger| {
        let port = stranger.address.map_or(0, |address| address.port());
        TOLD.lock().expect("a list").push((port, stranger.to_string()));
    });
    let address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, listener.port().expect("a port")));
    let limit = Duration::from_secs(20);
    let called = std::net::TcpStream::connect(address).expect("the listener");
    let from = called.local_addr().expect("an address").port();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            stranger(called);
            let client = Session::connect(address, 4096, limit, &mut rest).expect("the program is met");
            assert_eq!(client.mtu(), 1024);
        });
        let server = Session::accept(&listener, 1024, limit, &mut rest).expect("the program is met");
        assert!(server.peer_is_ours());
    });
    let told = TOLD.lock().expect("a list");
    let of_it: Vec<&String> = told.iter().filter(|(port, _)| *port == from).map(|(_, text)| text).collect();
    assert_eq!(of_it.len(), 1, "{told:?}");
    of_it[0].clone()
}

#[test]
fn a_stranger_is_refused_and_the_program_behind_it_is_met() {
    use std::io::Write as _;
    let told = told_of(|mut stream| {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    });
    let wanted =
        "it says \"GET / HTTP/1.1\\r\\n\", which is not a version of perftest; still waiting for the peer";
    assert!(told.starts_with("refused the connection of 127.0.0.1:") && told.ends_with(wanted), "{told}");
    let told = told_of(|mut stream| stream.write_all(b"6.0").expect("sent"));
    assert!(told.contains("the peer hung up after 3 of 16 bytes"), "{told}");
    let told = told_of(|mut stream| stream.write_all(&[0xff; 16]).expect("sent"));
    assert!(told.contains("which is not a version of perftest"), "{told}");
}

#[test]
fn strangers_are_counted_when_nobody_else_comes() {
    use std::io::Write as _;
    let listener = Listener::bind().expect("a port");
    let address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, listener.port().expect("a port")));
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(address).expect("the listener");
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").expect("sent");
            stream
        })
        .collect();
    let refused = Session::accept(&listener, 4096, Duration::from_millis(500), &mut rest);
    let refused = format!("{:#}", refused.expect_err("nobody is met"));
    let wanted = "20 connections were refused, because the callers were not perftest: nobody connected, and the time limit has passed";
    assert!(refused.starts_with(wanted), "{refused}");
    drop(calls);
}

#[test]
fn a_local_failure_while_accepting_is_reported_as_it_is() {
    let listener = Listener::bind().expect("a port");
    let address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, listener.port().expect("a port")));
    let silent = std::net::TcpStream::connect(address).expect("the listener");
    let gone = Session::accept(&listener, 4096, Duration::from_secs(20), &mut || bail!("no device"));
    assert_eq!(gone.expect_err("the device is gone").to_string(), "no device");
    drop(silent);
}

fn report(size: u64) -> BandwidthReport {
    BandwidthReport { size, iterations: 1000, peak: 12.5, average: 10.25, message_rate: 0.125 }
}

#[test]
fn client_and_server_agree() {
    let own = |qpn| Destination {
        outstanding_reads: 16,
        qpn: Qpn::from_low_bits(qpn),
        psn: Psn::new(5),
        rkey: 7,
        address: 1 << 40,
        gid: Gid::from_ipv4([10, 0, 0, 1]),
        lid: 5,
        shared_queue: Srqn::new(qpn + 40),
    };
    let (limit, meanwhile) = (Duration::from_secs(10), &mut rest);
    let listener = Listener::bind().expect("a port");
    let address = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, listener.port().expect("a port")));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut client = Session::connect(address, 4096, limit, &mut rest).expect("a session");
            assert_eq!(client.hand_shake(&own(1), &mut rest).expect("a peer"), own(2));
            assert_eq!(client.exchange_reports(&report(1), &mut rest).expect("reports"), report(2));
            assert_eq!((client.mtu(), client.peer_is_ours()), (1024, true));
        });
        let mut server = Session::accept(&listener, 1024, limit, meanwhile).expect("a session");
        assert_eq!(server.hand_shake(&own(2), meanwhile).expect("a peer"), own(1));
        assert_eq!(server.exchange_reports(&report(2), meanwhile).expect("reports"), report(1));
        assert_eq!((server.mtu(), server.peer_version().as_str()), (1024, "6.20"));
    });
}

proptest! {
    #[test]
    fn encoded_values_are_parsed(
        (outstanding_reads, qpn, psn, shared) in (any::<u8>(), 0u32..1 << 24, 0u32..1 << 24, 0u32..1 << 24),
        rkey: u32, address: u64, gid: [u8; 16], lid: u16,
    ) {
        let qpn = Qpn::new(qpn).expect("24 bits");
        let shared_queue = Srqn::new(shared).filter(|queue| queue.value() != 0);
        let own =
            Destination { outstanding_reads, qpn, psn: Psn::new(psn), rkey, address, gid: Gid(gid), lid, shared_queue };
        prop_assert_eq!(Destination::parse(&own.encode()), Some(own));
        prop_assert_eq!(Destination::parse_record(&own.encode_record()), Some(own));
        let local = Destination { gid: Gid::default(), ..own };
        prop_assert_eq!(Destination::parse(&own.encode_local()), Some(local));
    }

    #[test]
    fn arbitrary_lines_are_refused_or_parsed(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Destination::parse(&line);
    }
}
