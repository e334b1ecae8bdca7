//! `bareverbs perf` as two processes on two hosts of a network.

use crate::support;

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStderr};
use support::{Hosts, Served, bareverbs, free_port, object_of, output_of, wait_for};

/// The output of client and server of a test.
fn both(arguments: &[&str]) -> [Value; 2] {
    let port = free_port();
    let server = [&["perf"], arguments, &["-p", &port, "--json", "--timeout", "30"]].concat();
    let client = [&server[..], &["a"]].concat();
    Hosts::new().both(&server, &client).map(|output| {
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        object_of("perf", &output)
    })
}

#[test]
fn both_ends_agree_and_every_byte_is_compared() {
    for arguments in [
        &["write", "bw", "-n", "100"][..],
        &["read", "bw", "-n", "100", "-b", "-q", "2", "-s", "3000"],
        &["send", "lat", "-n", "20", "-c", "UD"],
        &["write", "lat", "-n", "20", "-c", "UC", "-s", "5000"],
        &["atomic", "bw", "-n", "100"],
        &["send", "bw", "-n", "100", "-b", "-e"],
        &["send", "bw", "-n", "100", "-b", "-q", "2", "-c", "XRC"],
        &["send", "bw", "-n", "100", "--use-srq", "-q", "3", "-r", "7"],
        &["write", "bw", "-n", "100", "--write_with_imm", "-q", "2"],
        &["write", "bw", "-n", "100", "--write_with_imm", "-b", "-s", "3000"],
        &["write", "lat", "-n", "20", "--write_with_imm"],
        &["write", "bw", "-n", "100", "-R", "-q", "3"],
        &["read", "lat", "-n", "20", "-R", "-o", "5"],
        &["send", "bw", "-n", "100", "-R", "-b"],
        &["send", "bw", "-n", "100", "-R", "-c", "UD", "-s", "1024", "-q", "2"],
        &["send", "bw", "-n", "100", "-R", "-c", "UD", "-s", "1024", "-b"],
        &["send", "lat", "-n", "20", "-R", "-c", "UD"],
        &["write", "bw", "-n", "100", "--reversed", "--mr_per_qp", "-q", "2"],
        &["read", "lat", "-n", "20", "--reversed", "--latency_gap", "10"],
        &["send", "bw", "-n", "100", "--reversed", "--recv_post_list", "10"],
        &["write", "bw", "-n", "100", "--perform_warm_up", "--ipv6-addr"],
    ] {
        let [client, server] = both(arguments);
        assert_eq!((client["role"].as_str(), server["role"].as_str()), (Some("client"), Some("server")));
        assert_eq!(client["local"], server["remote"], "{arguments:?}");
        assert_eq!(client["remote"], server["local"], "{arguments:?}");
        let compared = |end: &Value| {
            assert_eq!(end["data"]["wrong_bytes"], 0, "{arguments:?}: {end}");
            end["data"]["compared_bytes"].as_u64().expect("data was known")
        };
        assert!(compared(&client) + compared(&server) >= 8, "{arguments:?}");
        // The receiver of messages measures on its own, and gets no report.
        let options = &client["options"];
        let is_told =
            arguments[0] != "send" && options["bidirectional"] == false && options["immediate"] == false;
        // The listening end does the client's part, and reports to it.
        let (active, passive) = match options["reversed"] == true {
            true => (&server, &client),
            false => (&client, &server),
        };
        if client["measure"] == "bandwidth" && is_told {
            let [own, told] = [&active["results"][0]["local"], &passive["results"][0]["remote"]];
            let rate = |end: &Value| end["average_bytes_per_s"].as_f64().expect("a rate");
            assert!((rate(own) / rate(told) - 1.0).abs() < 1e-9, "{arguments:?}: {own} {told}");
        }
    }
}

/// Waits until a server listens at an RDMA CM port, and returns the rest of what it says. A client that came earlier
/// would wait a second before it asks again who has the server's address.
fn await_listener(server: &mut Child) -> BufReader<ChildStderr> {
    let mut said = BufReader::new(server.stderr.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("waiting for the client at RDMA CM port") {
        line.clear();
        assert!(said.read_line(&mut line).expect("text") > 0, "the server has ended");
    }
    said
}

/// RDMA CM over InfiniBand where nothing else maps addresses to ports: both ports answer ARP and neighbour
/// discovery of IPoIB, and the subnet administration knows the paths.
#[test]
fn ports_of_a_subnet_find_each_other_by_addresses_of_ipoib() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let _served = Served::start(here, &["--socket", "other", "--link", "ib"]);
    wait_for(&here.join("other"), "the second device is not served");
    for (test, ips) in [
        (&["write", "bw", "-n", "50", "-q", "2"][..], ["10.7.0.1", "10.7.0.2"]),
        (&["send", "lat", "-n", "20", "-c", "UD"], ["fd07::1", "fd07::2"]),
    ] {
        let test = [&["perf"], test, &["-R", "--json", "--timeout", "30"]].concat();
        let server = [&test[..], &["--device", "vfio-user:nic", "--address", ips[0]]].concat();
        let mut server = bareverbs(here, &server).spawn().expect("the program");
        let mut said = await_listener(&mut server);
        let client = [&test[..], &["--device", "vfio-user:other", "--address", ips[1], ips[0]]].concat();
        let client = output_of(here, &client);
        let mut server = server.wait_with_output().expect("the program");
        said.read_to_end(&mut server.stderr).expect("a pipe");
        let [client, server] = [client, server].map(|output| {
            assert!(output.status.success(), "{ips:?}: {}", String::from_utf8_lossy(&output.stderr));
            object_of("perf", &output)
        });
        assert_eq!((&client["local"], &client["remote"]), (&server["remote"], &server["local"]), "{ips:?}");
        assert_eq!((&client["data"]["wrong_bytes"], &server["data"]["wrong_bytes"]), (&0.into(), &0.into()));
    }
    let refused = |words: &[&str], reason: &str| {
        let test = ["perf", "write", "bw", "-R", "--timeout", "1", "--device", "vfio-user:nic"];
        let output = output_of(here, &[&test[..], words].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(reason), "{words:?}: {said}");
    };
    refused(&["10.7.0.2"], "--address 10.0.0.9/24");
    refused(&["--address", "10.7.0.1", "fd07::2"], "another address with --address");
    refused(&["--address", "10.7.0.1", "10.7.0.9"], "no IPoIB interface answered for 10.7.0.9 within 1s");
}

#[test]
fn a_frame_that_was_lost_is_seen_in_the_counters_of_both_ends() {
    let (hosts, port) = (Hosts::new(), free_port());
    let server = ["perf", "write", "bw", "-n", "100", "-s", "5000", "-p", &port, "--json", "--timeout", "30"];
    let client = [&server[..], &["--faults", "out:30=drop", "a"]].concat();
    let [client, server] = hosts.both(&server, &client).map(|output| {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        object_of("perf", &output)["counters"].take()
    });
    let count = |end: &Value, name: &str| end[name].as_u64().unwrap_or_else(|| panic!("{name} in {end}"));
    assert_eq!((count(&server, "rx_write_requests"), count(&client, "rx_write_requests")), (100, 0));
    assert!(count(&server, "out_of_sequence") > 0, "{server}");
    assert!(count(&client, "packet_seq_err") + count(&client, "local_ack_timeout_err") > 0, "{client}");
}

#[test]
fn a_missing_peer_is_reported_with_the_place_of_the_search() {
    let hosts = Hosts::new();
    let refusal = |arguments: &[&str]| {
        let arguments = [&["perf", "write", "bw", "-p", "9", "--timeout", "1"], arguments].concat();
        let output = hosts.on("b", &arguments).output().expect("the program");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        said
    };
    assert!(refusal(&["--timeout", "1", "b"]).contains("--timeout"), "given twice");
    assert!(refusal(&["no-such-host.invalid"]).contains("neither a host of the network"));
    assert!(refusal(&["127.0.0.1"]).contains("nobody listens at 127.0.0.1:9"));
}

/// A test that cannot begin has exit status 2, also when the device is open already.
#[test]
fn a_test_beyond_the_device_is_refused_before_the_first_message() {
    let here = std::env::temp_dir();
    for (words, reason) in [
        ("send lat -c UD -s 5000", "a datagram holds at most a path MTU"),
        ("write bw -e --vector 9999", "interrupt vector 9999 (-X)"),
        ("write bw -s 1073741824 -q 64", "choose a smaller -s or -q"),
        ("write bw --rate_limit -1", "invalid value '-1'"),
    ] {
        let output = output_of(&here, &[&["perf"], &words.split(' ').collect::<Vec<_>>()[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(reason), "{words}: {said}");
    }
}

/// A test that cannot begin has exit status 2, and an unwritable output is reported before the test.
#[test]
fn impossible_tests_are_refused_before_they_start() {
    let hosts = Hosts::new();
    let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("a port").port().to_string();
    let other = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().expect("a client");
        client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("sent");
        // Reads until the client has hung up, because a reset would discard our words.
        let _ = client.read_to_end(&mut Vec::new());
    });
    let output =
        hosts.on("b", &["perf", "write", "bw", "-p", &port, "127.0.0.1"]).output().expect("the program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("\"HTTP/1.1 400 Bad\" is not one of perftest"), "{said}");
    other.join().expect("no fault");
    for option in ["--plot", "--out_json_file"] {
        let words = ["perf", "write", "bw", "-n", "5", option, "no/such/file"];
        let output = output_of(hosts.home(), &words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.starts_with("error: cannot write no/such/file: "), "{said}");
    }
}

/// A port scan does not end a server that waits for its client.
#[test]
fn a_stranger_at_the_port_of_a_server_is_refused_and_its_client_is_served() {
    let (hosts, port) = (Hosts::new(), free_port());
    let server = ["perf", "write", "bw", "-n", "50", "-p", &port, "--timeout", "30"];
    let client = [&server[..], &["a"]].concat();
    let server = hosts.on("a", &server).spawn().expect("the program");
    wait_for(&hosts.home().join("bareverbs/networks/default/hosts/a"), "the server is in no network");
    let address = format!("127.0.0.1:{port}");
    let mut stranger = loop {
        match std::net::TcpStream::connect(&address) {
            Ok(stream) => break stream,
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
        }
    };
    stranger.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
    let client = hosts.on("b", &client).output().expect("the program");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let server = server.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&server.stderr);
    assert!(server.status.success(), "{said}");
    let from = stranger.local_addr().expect("an address");
    let wanted = format!("refused the connection of {from}: it says \"GET /metrics HTT\"");
    assert!(said.contains(&wanted), "{said}");
}

/// Client and server of an endless test. The client is interrupted after two rows, one of which has moved data, and with `both` so is
/// the server.
fn interrupted(arguments: &[&str], both: bool) -> [String; 2] {
    let (hosts, port) = (Hosts::new(), free_port());
    let server =
        [&["perf"], arguments, &["-p", &port, "-D", "0.2", "--run_infinitely", "--timeout", "30"]].concat();
    let client = [&server[..], &["a"]].concat();
    let server = hosts.on("a", &server).spawn().expect("the program");
    wait_for(&hosts.home().join("bareverbs/networks/default/hosts/a"), "the server is in no network");
    let mut client = hosts.on("b", &client).spawn().expect("the program");
    let mut said = String::new();
    let mut lines = BufReader::new(client.stdout.take().expect("its output")).lines();
    while rates(&said).len() < 2 || !has_moved(&said) {
        let line = lines.next().unwrap_or_else(|| panic!("it has ended: {said}")).expect("text");
        said.push_str(&line);
        said.push('\n');
    }
    let interrupt = |process: &std::process::Child| {
        let pid = process.id().to_string();
        let ended = std::process::Command::new("kill").args(["-INT", &pid]).status().expect("kill");
        assert!(ended.success());
    };
    interrupt(&client);
    if both {
        interrupt(&server);
    }
    lines.for_each(|line| said.push_str(&(line.expect("text") + "\n")));
    assert!(client.wait().expect("it ends").success(), "{said}");
    let server = server.wait_with_output().expect("it ends");
    assert!(server.status.success(), "{}", String::from_utf8_lossy(&server.stderr));
    [said, String::from_utf8_lossy(&server.stdout).into_owned()]
}

/// Averages of the rows.
fn rates(said: &str) -> Vec<f64> {
    let rows = said.lines().filter_map(|line| line.strip_prefix(" 65536 "));
    rows.filter_map(|row| row.split_whitespace().nth(2)?.parse().ok()).collect()
}

/// Whether any row has a rate. In a whole period a busy machine may complete no message.
fn has_moved(said: &str) -> bool {
    rates(said).iter().any(|rate| *rate > 0.0)
}

#[test]
fn an_endless_test_prints_a_row_for_each_period_until_interrupted() {
    let [client, server] = interrupted(&["write", "bw"], false);
    assert!(client.matches("#bytes").count() == 1 && client.contains(" Data "), "{client}");
    let (own, told) = (rates(&client), rates(&server));
    assert!(own.len() >= 2 && has_moved(&client), "{client}");
    assert_eq!(told, own[own.len() - 1..], "the server receives the last row: {server}");
}

#[test]
fn the_receiver_of_an_endless_test_prints_rows_of_its_own() {
    let [client, server] = interrupted(&["send", "bw", "--use-srq"], true);
    assert!(has_moved(&client) && has_moved(&server), "{client}{server}");
    assert_eq!(server.matches("#bytes").count(), 1, "{server}");
}

#[test]
fn an_endless_test_ends_when_its_output_is_closed() {
    let (hosts, port) = (Hosts::new(), free_port());
    let server = ["perf", "write", "bw", "-p", &port, "-D", "0.2", "--run_infinitely", "--timeout", "30"];
    let client = [&server[..], &["a"]].concat();
    let server = hosts.on("a", &server).spawn().expect("the program");
    wait_for(&hosts.home().join("bareverbs/networks/default/hosts/a"), "the server is in no network");
    let mut client = hosts.on("b", &client).spawn().expect("the program");
    let mut lines = BufReader::new(client.stdout.take().expect("its output")).lines();
    assert!(lines.next().is_some_and(|line| line.is_ok()), "the lines before the rows");
    drop(lines);
    let client = client.wait_with_output().expect("it ends by itself");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let server = server.wait_with_output().expect("it is told");
    assert!(server.status.success(), "{}", String::from_utf8_lossy(&server.stderr));
    assert!(rates(&String::from_utf8_lossy(&server.stdout)).iter().all(|rate| *rate > 0.0));
}

/// JSON is only printed at the end, so no write fails before.
#[test]
fn an_endless_test_with_json_ends_when_its_output_is_closed() {
    let (hosts, port) = (Hosts::new(), free_port());
    let server = ["perf", "write", "bw", "-p", &port, "-D", "0.2", "--run_infinitely", "--timeout", "30"];
    let client = [&server[..], &["--json", "a"]].concat();
    let server = hosts.on("a", &server).spawn().expect("the program");
    wait_for(&hosts.home().join("bareverbs/networks/default/hosts/a"), "the server is in no network");
    let mut client = hosts.on("b", &client).spawn().expect("the program");
    drop(client.stdout.take());
    let client = client.wait_with_output().expect("it ends by itself");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let server = server.wait_with_output().expect("it is told");
    assert!(server.status.success(), "{}", String::from_utf8_lossy(&server.stderr));
}

#[test]
fn times_in_cycles_and_how_busy_the_processors_were() {
    let (hosts, port) = (Hosts::new(), free_port());
    let words = ["perf", "send", "lat", "-D", "0.3", "-p", &port, "-C", "--cpu_util", "--timeout", "30"];
    let ended = hosts.both(&words, &[&words[..], &["a"]].concat());
    let has_rate = std::fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains("cpu MHz"));
    for output in ended {
        let (said, complaint) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !has_rate {
            assert!(complaint.contains("leave -C out"), "{complaint}");
            continue;
        }
        assert!(said.contains("t_avg[cycles]    tps average    CPU_Util[%]"), "{said}{complaint}");
        let row = said.lines().find_map(|line| line.strip_prefix(" 2 ")).expect("a row");
        let numbers: Vec<f64> = row.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [_, cycles, per_second, busy] = numbers[..] else { panic!("{said}") };
        // Half a round trip takes this many cycles, and there are this many round trips per second.
        let rate = cycles * 2.0 * per_second;
        assert!((1e8..2e10).contains(&rate), "{rate} cycles in a second: {said}");
        assert!(busy > 0.0 && busy <= 100.0, "{said}");
    }
}
