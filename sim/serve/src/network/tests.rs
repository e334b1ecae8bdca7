use super::*;
use std::io::ErrorKind;
use std::os::fd::AsFd;

fn network() -> (tempfile::TempDir, NetworkDirectory) {
    let directory = tempfile::tempdir().unwrap();
    let network = NetworkDirectory::create(directory.path()).unwrap();
    (directory, network)
}

#[test]
fn processes_of_a_host_have_different_numbers_and_the_first_free_one_is_taken() {
    let (_directory, network) = network();
    let [first, second] = [(); 2].map(|()| network.join("a").unwrap());
    assert_eq!([first.number(), second.number(), network.join("b").unwrap().number()], [0, 1, 0]);
    drop(first);
    assert_eq!(network.join("a").unwrap().number(), 0);
    assert_eq!(network.hosts(), ["a", "b"]);
    assert!(
        network.has_host("a") && !network.has_host("c") && !network.has_host("..") && !network.has_host("")
    );
}

#[test]
fn a_process_of_several_hosts_has_one_number_in_all_of_them() {
    let (_directory, network) = network();
    let of_second = network.join("a-mlx5_1").unwrap();
    let joined = network.join_all(&["a", "a-mlx5_1"]).unwrap();
    assert_eq!(joined.iter().map(Membership::number).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(network.processes("a"), [1], "number 0 was given back");
    drop(of_second);
    let further = network.join_all(&["a", "a-mlx5_1"]).unwrap();
    assert_eq!(further.iter().map(Membership::number).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn the_socket_of_a_process_that_was_killed_is_taken_over() {
    let (_directory, network) = network();
    let killed = network.join("a").unwrap();
    // Like a kill: the kernel closes the descriptors and nothing is removed.
    killed.abandon();
    assert_eq!(network.connect("a", 0).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert_eq!(network.join("a").unwrap().number(), 0);
}

#[test]
fn a_greeting_brings_a_file_and_a_hang_up_is_seen() {
    let (_directory, network) = network();
    let member = network.join("a").unwrap();
    assert!(member.accept().unwrap().is_none());
    let caller = network.connect("a", 0).unwrap();
    let called = member.accept().unwrap().unwrap();
    assert_eq!(Greeting::receive(&called).unwrap_err().kind(), ErrorKind::WouldBlock);
    let file = std::fs::File::open("/dev/null").unwrap();
    Greeting::Frames.send(&caller, Some(&file.as_fd().try_clone_to_owned().unwrap())).unwrap();
    let (greeting, file) = Greeting::receive(&called).unwrap();
    assert_eq!((greeting, file.is_some()), (Greeting::Frames, true));
    assert!(!has_hung_up(&called) && !has_hung_up(&caller));
    answer_status(&called, "pid 1\n").unwrap();
    assert_eq!(receive_status(&caller).unwrap(), "pid 1\n");
    drop(caller);
    assert!(has_hung_up(&called));
}

#[test]
fn a_greeting_from_a_stranger_is_invalid() {
    let (_directory, network) = network();
    let member = network.join("a").unwrap();
    let caller = network.connect("a", 0).unwrap();
    let called = member.accept().unwrap().unwrap();
    rustix::net::send(&caller, b"hello", rustix::net::SendFlags::empty()).unwrap();
    assert_eq!(Greeting::receive(&called).unwrap_err().kind(), ErrorKind::InvalidData);
    drop(caller);
    assert_eq!(Greeting::receive(&called).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_network_of_another_version_is_refused_with_what_to_do() {
    let (directory, _network) = network();
    std::fs::write(directory.path().join("version"), "99\n").unwrap();
    let refusal = NetworkDirectory::create(directory.path()).unwrap_err().to_string();
    assert!(refusal.contains("version 99") && refusal.contains("--network"), "{refusal}");
}

#[test]
fn a_path_that_no_socket_can_have_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let network = NetworkDirectory::create(&directory.path().join("x".repeat(100))).unwrap();
    let refusal = network.join("a").unwrap_err().to_string();
    assert!(refusal.contains("XDG_RUNTIME_DIR"), "{refusal}");
}

#[test]
fn names_of_networks_are_names_of_directories() {
    assert!(is_network_name("ci_7.a-b"));
    for name in ["", ".", "..", "a/b", "a b", &"x".repeat(33)] {
        assert!(!is_network_name(name), "{name:?}");
    }
}

#[test]
fn a_cable_stays_as_it_was_left() {
    let (_directory, network) = network();
    network.add_host("a").unwrap();
    network.set_cable("a", true).unwrap();
    assert!(network.has_cable("a"));
    network.set_cable("a", false).unwrap();
    assert!(!network.has_cable("a") && network.has_cable("b"));
    assert_eq!(network.hosts(), ["a"]);
    network.set_cable("a", true).unwrap();
    assert!(network.has_cable("a"));
}

#[test]
fn a_network_has_one_wire_to_the_outside_and_a_killed_one_makes_room() {
    let (_directory, network) = network();
    assert_eq!(network.connect_outside(LinkLayer::Ethernet).unwrap_err().kind(), ErrorKind::NotFound);
    let first = network.join_outside(LinkLayer::Ethernet).unwrap();
    let refusal = network.join_outside(LinkLayer::Ethernet).unwrap_err().to_string();
    assert!(refusal.contains("already has the wire") && refusal.contains("--network"), "{refusal}");
    assert!(network.hosts().is_empty(), "it is no host");
    network.join_outside(LinkLayer::InfiniBand).expect("a wire of its own");
    first.abandon();
    assert_eq!(
        network.connect_outside(LinkLayer::Ethernet).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    network.join_outside(LinkLayer::Ethernet).unwrap();
}

#[test]
fn a_neighbour_request_arrives_unchanged() {
    use bareverbs_prm::ids::{Gid, MacAddress};
    let (_directory, network) = network();
    let member = network.join_outside(LinkLayer::Ethernet).unwrap();
    let (wanted, asker) = (Gid::from_ipv4([10, 0, 0, 1]), Gid::from_ipv4([198, 18, 0, 1]));
    let request = NeighbourRequest { wanted, asker_mac: MacAddress([2, 0, 0, 0, 0, 9]), asker };
    let caller = network.connect_outside(LinkLayer::Ethernet).unwrap();
    Greeting::Neighbour(request).send(&caller, None).unwrap();
    let called = member.accept().unwrap().unwrap();
    assert_eq!(Greeting::receive(&called).unwrap().0, Greeting::Neighbour(request));
}

#[test]
fn an_object_request_is_answered_with_all_bytes_or_none() {
    let (_directory, network) = network();
    network.add_host("a").unwrap();
    let member = network.join("a").unwrap();
    let request = ObjectRequest { kind: 0x1234, from: 0x0300_0041 };
    for objects in [&[][..], &[7; LONGEST_OBJECTS]] {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                network.ask_objects("a", member.number(), request, std::time::Duration::from_secs(10))
            });
            let asker = loop {
                match member.accept().unwrap() {
                    Some(asker) => break asker,
                    None => std::thread::yield_now(),
                }
            };
            let heard = loop {
                match Greeting::receive(&asker) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                    heard => break heard.unwrap().0,
                }
            };
            assert_eq!(heard, Greeting::Objects(request));
            answer_objects(&asker, objects).unwrap();
            assert_eq!(asked.join().unwrap().unwrap(), objects);
        });
    }
}

#[test]
fn partitions_between_hosts_begin_and_end() {
    let (_directory, network) = network();
    network.set_apart("b", "a", true).unwrap();
    network.set_apart("c-1", "a", true).unwrap();
    assert_eq!(network.apart_from("a"), ["b", "c-1"]);
    assert_eq!([network.apart_from("b"), network.apart_from("d")], [vec!["a".to_owned()], vec![]]);
    network.set_apart("a", "b", false).unwrap();
    network.set_apart("a", "b", false).unwrap();
    assert_eq!((network.apart_from("b"), network.apart_from("c-1")), (vec![], vec!["a".to_owned()]));
    network.set_faults("a", "loss=0.5").unwrap();
    network.set_cable("b", false).unwrap();
    assert_eq!((network.faults("a"), network.faults("b")), ("loss=0.5".to_owned(), String::new()));
    assert!(network.has_cable("a") && !network.has_cable("b"));
    assert_eq!(network.end_trouble().unwrap(), ["cut b", "apart a:c-1", "faults a"]);
    assert!(network.has_cable("b") && network.faults("a").is_empty() && network.apart_from("a").is_empty());
    assert_eq!(network.end_trouble().unwrap(), Vec::<String>::new());
}
