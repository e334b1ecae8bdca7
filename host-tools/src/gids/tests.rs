use super::*;
use crate::place::view_of_test;
use crate::test_arguments::{parse, parsed};
use bareverbs_prm::ids::MacAddress;
use table::RoceRow;

fn shown(words: &[&str]) -> (String, bool) {
    execute(&parsed(words)).unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// The verdict on each entry.
fn verdicts(words: &[&str]) -> (Vec<String>, bool) {
    let (text, reached) = shown(&[words, &["--json"]].concat());
    let object: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(object["schema"], "bareverbs.gids.v1");
    let entries = object["gids"]["entries"].as_array().expect("entries");
    (entries.iter().map(|entry| entry["why"].as_str().unwrap_or("-").to_owned()).collect(), reached)
}

const TWO: [&str; 4] = ["--address", "10.0.0.1/24", "--address", "2001:db8::1/64"];

#[test]
fn the_table_is_in_the_order_of_linux() {
    let (text, _) = shown(&TWO);
    for line in [
        "1     0      fe80:0000:0000:0000:0000:00ff:fe00:0001             v1",
        "1     3      0000:0000:0000:0000:0000:ffff:0a00:0001  10.0.0.1   v2",
        "n_gids_found=6",
    ] {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&text).contains(&words(line)), "{line} is missing:\n{text}");
    }
}

#[test]
fn a_peer_is_reached_by_one_entry_and_each_other_one_says_why_not() {
    let (why, reached) = verdicts(&[&TWO[..], &["--peer", "10.0.0.9"]].concat());
    assert!(reached);
    assert_eq!(
        why,
        [
            "no: it speaks RoCE version 1 only",
            "no: it is IPv6 and the peer is IPv4",
            "no: it speaks RoCE version 1 only",
            "use this",
            "no: it speaks RoCE version 1 only",
            "no: it is IPv6 and the peer is IPv4",
        ]
    );
    let (why, _) = verdicts(&[&TWO[..], &["--peer", "10.0.0.9", "--version", "v1"]].concat());
    assert_eq!(why[2], "use this");
}

#[test]
fn a_peer_elsewhere_needs_a_router() {
    let (why, reached) = verdicts(&[&TWO[..], &["--peer", "10.0.1.9"]].concat());
    assert!(!reached);
    assert_eq!(why[3], "no: no route: the peer is outside 10.0.0.1/24; --routed if a router forwards");
    let two = ["--address", "192.168.0.1/24", "--address", "10.0.0.1/24"];
    let (why, reached) = verdicts(&[&two[..], &["--peer", "10.0.1.9", "--routed"]].concat());
    assert!(reached);
    assert_eq!((&*why[3], &*why[5]), ("would also work; index 5 is nearer to the peer", "use this"));
}

#[test]
fn vlans_are_kept_apart() {
    let tagged = ["--address", "10.0.0.1/24@7", "--peer", "10.0.0.9"];
    let (why, reached) = verdicts(&tagged);
    assert!(!reached);
    assert_eq!(why[3], "no: its frames belong to VLAN 7; those of the peer carry no tag");
    assert!(verdicts(&[&tagged[..], &["--vlan", "7"]].concat()).1);
}

#[test]
fn an_infiniband_port_has_the_gid_of_its_guid() {
    let (why, reached) = verdicts(&["--device", "sim:ib", "--peer", "fe80::1"]);
    assert_eq!((why, reached), (vec!["use this".to_owned()], true));
}

#[test]
fn malformed_addresses_are_refused() {
    for words in [
        ["--address", "10.0.0.300/24"],
        ["--address", "10.0.0.1/33"],
        ["--address", "10.0.0.1/24@4095"],
        ["--peer", "host"],
        ["--vlan", "7"],
    ] {
        assert!(parse::<GidsArguments>(&words).is_err(), "{words:?}");
    }
    // The table of the simulated device has 128 entries, two for each address.
    let many: Vec<String> = (0..70).map(|at| format!("--address=10.0.{at}.1/24")).collect();
    let words: Vec<&str> = many.iter().map(String::as_str).collect();
    let arguments: GidsArguments = parsed(&words);
    let Err(Failure::Input(error)) = execute(&arguments) else { panic!("all fit") };
    assert!(format!("{error:#}").contains("the RoCE address table has"), "{error:#}");
}

/// The kernel's table is read and not filled, and its routes decide.
#[test]
fn a_kernels_routes_decide() {
    let view = view_of_test();
    let fill = Fill { addresses: &[], host: None, kernel: Some(&view) };
    let rows = DeviceSelector::SIMULATED.with_device(fill).expect("a device").expect("a table");
    // A simulated device has one entry from the start, and filling the table would make two of it.
    assert!(rows.len() == 1 && rows[0].roce.is_some_and(|roce| roce.address.is_none()), "{rows:?}");
    let entry = GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 1]));
    let row = GidRow { index: 3, gid: entry.gid, roce: Some(RoceRow { entry, address: None }) };
    let target = TargetPeer {
        peer: IpAddr::from([10, 9, 9, 2]),
        version: RoceVersion::Version2,
        vlan: None,
        routed: false,
    };
    let verdict = |why: Option<&str>| {
        judge(&[row], &target, &|asked: &GidRow, gid: Gid| {
            assert_eq!((asked.index, gid), (3, Gid::from_ipv4([10, 9, 9, 2])));
            why.map(str::to_owned)
        })
    };
    assert_eq!(verdict(None), [Verdict::Used]);
    assert_eq!(verdict(Some("no answer")), [Verdict::Not("no answer".into())]);
}
