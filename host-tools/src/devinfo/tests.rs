use super::*;
use serde_json::Value;

fn parse(words: &[&str]) -> Result<DevinfoArguments, clap::Error> {
    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        arguments: DevinfoArguments,
    }
    let line = ["devinfo"].iter().chain(words).copied();
    <Command as clap::Parser>::try_parse_from(line).map(|command| command.arguments)
}

fn shown(words: &[&str]) -> (String, bool) {
    let arguments = parse(words).unwrap_or_else(|error| panic!("{error}"));
    execute(&arguments).unwrap_or_else(|failure| panic!("{failure:?}"))
}

fn object(words: &[&str]) -> Value {
    serde_json::from_str(&shown(words).0).expect("JSON")
}

#[test]
fn the_short_form_has_what_ibv_devinfo_has() {
    let (text, _) = shown(&["--device", "sim"]);
    for line in [
        "hca_id: sim:ethernet",
        "vendor_id:         0x02c9",
        "vendor_part_id:    4119",
        "hw_ver:            0x0",
        "state:        PORT_ACTIVE (4)",
        "phys_state:   LinkUp",
        "link_layer:   Ethernet",
        "rate:         100 Gbit/s (4 lanes)",
        "max_mtu:      4096 (5)",
        "mac:          02:00:00:00:00:01",
        "pause_sent:   false",
        "pfc_obeyed:   off",
        "ecn_roce_rp:  off",
        "ecn_roce_np:  every priority",
    ] {
        assert!(text.contains(line), "{line} is missing:\n{text}");
    }
    assert!(!text.contains("max_qp"), "{text}");
}

#[test]
fn the_long_form_has_every_field_of_the_pages() {
    let (text, _) = shown(&["--device", "sim", "--verbose"]);
    for word in [
        "max_qp_wr:",
        "atomic_cap:                ATOMIC_HCA (1)",
        "hca_core_clock:            1000000 kHz",
        "roce_v2:",
        "log_max_qp_sz:",
        "r_roce_min_src_udp_port:",
        "rss_ind_tbl_cap:",
    ] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
}

#[test]
fn json_holds_numbers_and_its_version() {
    let object = object(&["--device", "sim:infiniband", "--json"]);
    assert_eq!(object["schema"], "bareverbs.devinfo.v1");
    let port = &object["devinfo"]["port"];
    assert_eq!((&port["state"], &port["link_layer"]), (&4.into(), &"InfiniBand".into()));
    assert_eq!((&port["rate_mbps"], &port["active_width"]), (&100_000.into(), &4.into()));
    assert_eq!((&port["port_lid"], &port["max_mtu"]), (&1.into(), &4096.into()));
    assert_eq!(port["max_vl_num"], 1);
    assert_eq!(object["devinfo"]["device"]["vendor_part_id"], 0x1017);
    assert!(port["gid"].as_str().is_some_and(|gid| gid.starts_with("fe80")), "{port}");
    let general = &object["devinfo"]["cmd_hca_cap"];
    // PRM: port_type 0 is InfiniBand.
    assert_eq!((&general["port_type"], &general["num_ports"]), (&0.into(), &1.into()));
    let limits = &object["devinfo"]["limits"];
    assert_eq!(limits["max_mr_size"], "0xffffffffffffffff", "more than a number of JavaScript holds");
    assert_eq!((&limits["gid_tbl_len"], &limits["pkey_tbl_len"]), (&8.into(), &128.into()));
    assert_eq!(limits["max_qp"].as_u64(), general["log_max_qp"].as_u64().map(|log| 1 << log));
}

#[test]
fn a_device_differs_from_itself_in_nothing() {
    let (text, same) = shown(&["--diff", "sim", "sim"]);
    assert!(same && text.ends_with("differ in nothing but their addresses"), "{text}");
}

#[test]
fn link_layers_differ_and_addresses_do_not_count() {
    let (text, same) = shown(&["--diff", "sim:ethernet", "sim:infiniband"]);
    assert!(!same);
    for word in ["link_layer", "Ethernet", "InfiniBand", "roce_v2", "(does not have it)"] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
    assert!(!text.contains("port_lid"), "{text}");
    let object = object(&["--diff", "sim:ethernet", "sim:infiniband", "--json"]);
    let rows = object["devinfo_diff"]["differences"].as_array().expect("rows");
    let lid = rows.iter().find(|row| row["name"] == "port_lid").expect("the LID differs");
    assert_eq!((&lid["a"], &lid["b"], &lid["expected"]), (&0.into(), &1.into(), &true.into()));
}

#[test]
fn what_cannot_be_opened_says_what_was_tried() {
    let arguments = parse(&["--device", "vfio-user:/nowhere/nic.sock"]).expect("a selector");
    let Err(Failure::Input(error)) = execute(&arguments) else { panic!("opened") };
    assert!(format!("{error:#}").starts_with("opening vfio-user:/nowhere/nic.sock: "), "{error:#}");
    assert!(parse(&["--device", "mlx5_0"]).is_err());
    assert!(parse(&["--diff", "sim"]).is_err());
}
