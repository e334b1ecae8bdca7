use super::*;
use crate::place::view_of_test;
use crate::test_arguments::{parse, parsed};
use bareverbs_sim::nic::LinkLayer;
use serde_json::{Value, json};

fn shown(words: &[&str]) -> (String, bool) {
    execute(&parsed(words)).unwrap_or_else(|failure| panic!("{failure:?}"))
}

fn object(words: &[&str]) -> Value {
    serde_json::from_str(&shown(words).0).expect("JSON")
}

/// The text with one space in place of each run of white space: columns are as wide as their longest name.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_short_form_has_what_ibv_devinfo_has() {
    let text = squeezed(&shown(&["--device", "sim"]).0);
    for line in [
        "hca_id: sim:ethernet",
        "vendor_id: 0x02c9",
        "vendor_part_id: 4119",
        "hw_ver: 0x0",
        "state: PORT_ACTIVE (4)",
        "phys_state: LinkUp",
        "link_layer: Ethernet",
        "rate: 100 Gbit/s (4 lanes)",
        "max_mtu: 4096 (5)",
        "mac: 02:00:00:00:00:01",
        "pause_sent: false",
        "pfc_obeyed: off",
        "fec: Standard RS-FEC - RS(528,514)",
        "fec_requested: automatic",
        "port_cap_flags: 0x04010000",
        "ecn_roce_rp: off",
        "ecn_roce_np: every priority",
    ] {
        assert!(text.contains(line), "{line} is missing:\n{text}");
    }
    assert!(!text.contains("max_qp"), "{text}");
}

#[test]
fn the_long_form_has_every_field_of_the_pages() {
    let text = squeezed(&shown(&["--device", "sim", "--verbose"]).0);
    for word in [
        "max_qp_wr:",
        "atomic_cap: ATOMIC_HCA (1)",
        "hca_core_clock: 1000000 kHz",
        "max_cq_period: 4095 us",
        "qp_rate_limit_max: 0 kbit/s",
        "device_cap_flags: 0x25321c26: BAD_PKEY_CNTR, BAD_QKEY_CNTR, CHANGE_PHY_PORT",
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

/// What `ibv_devinfo -v` prints above Linux's `mlx5_ib` on the same model (`tests/src/guest/mlx5/device_info.rs`).
#[test]
fn an_ethernet_port_has_what_linux_makes_of_it() {
    let object = object(&["--device", "sim:ethernet", "--json"]);
    let limits = &object["devinfo"]["limits"];
    for (name, value) in [
        ("device_cap_flags", json!(0x2532_1c26_u64)),
        ("device_cap_flags_ex", json!("0x25321c26")),
        ("max_tso", json!(262_144)),
        ("max_rwq_indirection_tables", json!(65_536)),
        ("max_rwq_indirection_table_size", json!(2048)),
        ("rx_hash_function", json!(1)),
        ("rx_hash_fields_mask", json!("0x800000ff")),
        ("max_wq_type_rq", json!(65_536)),
        ("qp_rate_limit_max_kbps", json!(0)),
        ("max_ah", json!(2_147_483_647)),
        ("max_fmr", json!(0)),
        ("max_num_tags", json!(0)),
        ("max_cq_period_us", json!(4095)),
    ] {
        assert_eq!(limits[name], value, "{name}");
    }
    let page = &object["devinfo"]["flow_table_properties_nic_receive"];
    assert_eq!((&page["modify_root"], &page["ft_field_support.outer_dmac"]), (&true.into(), &true.into()));
}

#[test]
fn error_correction_is_named_or_has_a_reason() {
    let port = |device: &str| object(&["--device", device, "--json"])["devinfo"]["port"].clone();
    let ethernet = port("sim:ethernet");
    let rs = "Standard RS-FEC - RS(528,514)";
    assert_eq!((&ethernet["fec"], &ethernet["fec_reason"]), (&rs.into(), &Value::Null));
    assert_eq!((&ethernet["fec_supported"], &ethernet["fec_requested"]), (&json!([rs]), &json!([])));
    let infiniband = port("sim:infiniband");
    assert_eq!((&infiniband["fec"], &infiniband["fec_supported"]), (&Value::Null, &Value::Null));
    assert_eq!(infiniband["fec_reason"], "the register PPLM describes Ethernet ports only");
    let rows = object(&["--diff", "sim:ethernet", "sim:infiniband", "--json"]);
    let rows = rows["devinfo_diff"]["differences"].as_array().expect("rows");
    let fec = rows.iter().find(|row| row["name"] == "fec").expect("FEC differs");
    assert_eq!((&fec["a"], &fec["b"], &fec["expected"]), (&rs.into(), &Value::Null, &false.into()));
}

#[test]
fn an_infiniband_port_says_what_its_manager_set() {
    let object = object(&["--device", "sim:infiniband", "--json"]);
    let port = &object["devinfo"]["port"];
    assert_eq!((&port["subnet_timeout"], &port["sm_sl"]), (&18.into(), &0.into()));
    assert_eq!((&port["port_cap_flags"], &port["bad_pkey_cntr"]), (&0x0240_4848.into(), &0.into()));
    let limits = &object["devinfo"]["limits"];
    assert_eq!((&limits["max_tso"], &limits["device_cap_flags"]), (&0.into(), &0x0132_1c26.into()));
    assert_eq!(object["devinfo"]["flow_table_properties_nic_receive"], Value::Null);
}

#[test]
fn a_device_compared_with_itself_shows_no_difference() {
    let (text, same) = shown(&["--diff", "sim", "sim"]);
    assert!(same && text.ends_with("differ only in their addresses"), "{text}");
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
fn errors_of_open_name_what_was_tried() {
    let arguments: DevinfoArguments = parsed(&["--device", "vfio-user:/nowhere/nic.sock"]);
    let Err(Failure::Input(error)) = execute(&arguments) else { panic!("opened") };
    assert!(format!("{error:#}").starts_with("opening vfio-user:/nowhere/nic.sock: "), "{error:#}");
    assert!(parse::<DevinfoArguments>(&["--device", "mlx5_0"]).is_err());
    assert!(parse::<DevinfoArguments>(&["--diff", "sim"]).is_err());
}

/// The device answers what a kernel passes on; the rest is the kernel's, or has a reason.
#[test]
fn fields_that_the_kernel_hides_have_a_reason() {
    let gather = |selector: DeviceSelector| {
        let sections = selector.with_device(Gather { kernel: Some(view_of_test()) });
        sections.unwrap_or_else(|failure| panic!("{failure:?}"))
    };
    let sections = gather(DeviceSelector::SIMULATED);
    let object = as_json("uverbs:mlx5_0", &sections);
    let port = &object["port"];
    assert_eq!((&port["rate_mbps"], &port["active_width"]), (&json!(25_000), &json!(1)));
    assert_eq!((&port["active_mtu"], &port["max_mtu"]), (&json!(1024), &json!(4096)));
    assert_eq!(object["limits"]["device_cap_flags"].as_u64().map(|flags| flags >> 20 & 1), Some(1), "XRC");
    let unknown = object["unknown"].as_object().expect("reasons");
    for name in ["device.health", "port.fastest_mbps", "port.port_max_mtu", "port.pfc_sent"] {
        let (section, field) = name.split_once('.').expect("a section");
        assert_eq!(object[section][field], Value::Null, "{name}");
        assert!(unknown[name].as_str().is_some_and(|reason| reason.contains("kernel")), "{unknown:?}");
    }
    assert!(text::show("it", &sections, false).contains("which the kernel does not pass on"));
    let own = DeviceSelector::SIMULATED.with_device(Gather { kernel: None }).expect("facts");
    let differences = difference::compare(&sections, &own);
    let fastest = differences.iter().find(|row| format!("{row:?}").contains("fastest_mbps"));
    assert!(fastest.is_some_and(difference::Difference::is_expected), "it is not known whether they differ");
    let infiniband = as_json("it", &gather(DeviceSelector::Simulated(LinkLayer::InfiniBand)));
    assert_eq!(infiniband["port"]["max_vl_num"], 4);
    assert_eq!(infiniband["port"]["gid"], "0707:0707:0707:0707:0707:0707:0707:0707");
    for object in [object, infiniband] {
        assert_eq!(faults(&json!({"schema": "bareverbs.devinfo.v1", "devinfo": object})), [""; 0]);
    }
}

/// What the schema has against an object.
fn faults(object: &Value) -> Vec<String> {
    let schema = include_str!("../../../docs/schemas/bareverbs.devinfo.v1.json");
    let schema = serde_json::from_str(schema).expect("a schema is JSON");
    let validator = jsonschema::validator_for(&schema).expect("a good schema");
    validator.iter_errors(object).map(|error| format!("{}: {error}", error.instance_path())).collect()
}
