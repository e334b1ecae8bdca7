use super::*;
use proptest::prelude::*;
use std::thread;

const LIMIT: Duration = Duration::from_millis(500);

fn version(id: u16) -> Vec<u8> {
    let mut bytes = encode(id, 1, HEADER + 7, REPLY, 0).to_vec();
    bytes.extend(b"\0\0\x01\0{}\0");
    bytes
}

/// A client whose server sends these bytes, whatever it is asked, and disconnects.
fn told(bytes: Vec<u8>) -> Result<(Client, Reply), ClientError> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&bytes).unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let mut client = Client::over(ours, LIMIT)?;
    client.posted = 1;
    let reply = client.call(Command::RegionRead, &[1, 2, 3], &[])?;
    Ok((client, reply))
}

fn after_version(message: &[u8]) -> Result<(Client, Reply), ClientError> {
    told([&version(1), message].concat())
}

#[test]
fn replies_refusals_and_strays_are_distinguished() {
    let answer = [&encode(2, 9, HEADER + 2, REPLY, 0)[..], b"ab"].concat();
    assert_eq!(after_version(&answer).unwrap().1.body, b"ab");
    let refused = encode(2, 9, HEADER, REPLY | ERROR, 22);
    assert!(matches!(after_version(&refused), Err(ClientError::Refused { errno: 22, .. })));
    let stray = encode(1, 10, HEADER, REPLY | ERROR, 0);
    let (client, _) = after_version(&[&stray[..], &answer].concat()).unwrap();
    assert_eq!(client.refused_writes, 1);
    let other = encode(7, 9, HEADER, REPLY, 0);
    assert!(matches!(after_version(&other), Err(ClientError::Garbage { .. })));
    let question = encode(0x50, 11, HEADER + 4, 0, 0);
    assert!(after_version(&[&question[..], &[0; 4], &answer].concat()).is_ok());
}

#[test]
fn the_client_gives_up_a_server_that_never_answers() {
    let stray = encode(1, 10, HEADER, REPLY | ERROR, 0);
    let error = after_version(&[stray, stray].concat()).unwrap_err();
    assert!(error.to_string().contains("refuses a write that was never sent"), "{error}");
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let question = [&encode(0x50, 11, HEADER + 4, 0, 0)[..], &[0; 4]].concat();
        theirs.write_all(&version(1)).unwrap();
        let mut ignored = [0; 1 << 12];
        // Loops until the client hangs up.
        while theirs.write_all(&question).is_ok() {
            let _ = std::io::Read::read(&mut theirs, &mut ignored);
        }
    });
    let mut client = Client::over(ours, LIMIT).unwrap();
    let error = client.call(Command::RegionRead, &[1, 2, 3], &[]).unwrap_err();
    assert!(error.to_string().contains("sends requests"), "{error}");
    drop(client);
    server.join().unwrap();
}

#[test]
fn replies_that_are_too_long_too_short_or_too_late_are_errors() {
    for size in [0, 15, u32::MAX as usize, HEADER + LONGEST + 1] {
        let error = after_version(&encode(2, 9, size, REPLY, 0)).unwrap_err();
        assert!(matches!(error, ClientError::Garbage { .. }), "{error}");
    }
    assert!(matches!(after_version(&[1, 2]), Err(ClientError::Broken { .. })));
    assert!(matches!(told(Vec::new()), Err(ClientError::Broken { .. })));
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let error = Client::over(ours, Duration::from_millis(5)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server did not answer VERSION in time: a served card takes one client at a time, end the other"
    );
    let error = Client::connect(Path::new("/nonexistent/socket"), LIMIT).unwrap_err();
    assert!(error.to_string().contains("bareverbs serve"), "{error}");
}

#[test]
fn failures_name_the_memory_and_the_bytes_of_their_command() {
    let refusal = encode(2, Command::DmaMap as u16, HEADER, REPLY | ERROR, libc::ENOMEM as u32);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    theirs.write_all(&[&version(1), &refusal[..]].concat()).unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    let mut client = Client::over(ours, LIMIT).unwrap();
    let numbers = [0x2000_0003_u64, 0, 0x4000, 0x1000].map(u64::to_ne_bytes).concat();
    let error = client.call(Command::DmaMap, &numbers, &[]).unwrap_err().to_string();
    assert!(error.starts_with("the server refuses DMA_MAP of 4096 bytes at 0x4000: "), "{error}");
    let bytes = [0x18_u64, 2 << 32].map(u64::to_ne_bytes).concat();
    let error = client.call(Command::RegionRead, &bytes, &[]).unwrap_err().to_string();
    assert!(
        error.starts_with("the connection broke at REGION_READ of 2 bytes at 0x18 of region 0: "),
        "{error}"
    );
}

#[test]
fn a_socket_without_permission_is_not_called_absent() {
    let error = ClientError::Connect { path: "nic".into(), error: ErrorKind::PermissionDenied.into() };
    let text = error.to_string();
    assert!(text.starts_with("this user may not use the vfio-user socket nic: "), "{text}");
}

#[test]
fn a_new_major_version_is_refused() {
    let mut bytes = version(1);
    bytes[HEADER] = 1;
    assert!(matches!(told(bytes), Err(ClientError::Garbage { command: "VERSION", .. })));
}

#[test]
fn files_travel_with_messages() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = thread::spawn(move || {
        let mut theirs = Client { stream: theirs, next: 0, refused_writes: 0, posted: 0, limit: LIMIT };
        let (_, asked) = theirs.receive(Command::Version).unwrap();
        assert!(asked.files.is_empty());
        theirs.stream.write_all(&version(1)).unwrap();
        let (_, asked) = theirs.receive(Command::DmaMap).unwrap();
        theirs.stream.write_all(&encode(2, 2, HEADER, REPLY, 0)).unwrap();
        (asked.body, asked.files.len())
    });
    let mut client = Client::over(ours, LIMIT).unwrap();
    let file = tempfile::tempfile().unwrap();
    client.call(Command::DmaMap, b"body", &[std::os::fd::AsFd::as_fd(&file)]).unwrap();
    assert_eq!(server.join().unwrap(), (b"body".to_vec(), 1));
}

#[test]
fn a_call_that_a_signal_interrupts_is_made_again_until_its_limit() {
    let mut calls = 0;
    let third = restarted(LIMIT, || {
        calls += 1;
        if calls < 3 { Err(Errno::INTR) } else { Ok(calls) }
    });
    assert_eq!(third, Ok(3));
    assert_eq!(restarted::<()>(Duration::ZERO, || Err(Errno::INTR)), Err(Errno::AGAIN));
    assert_eq!(restarted::<()>(LIMIT, || Err(Errno::PIPE)), Err(Errno::PIPE));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever a server sends, the client returns a reply or an error.
    #[test]
    fn arbitrary_answers_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = told(bytes.clone());
        let _ = after_version(&bytes);
    }
}
