use super::*;
use crate::place::{DeviceSelector, DeviceTask};

struct Read;

impl DeviceTask for Read {
    type Output = Readings;
    fn run<H: Hal>(self, device: &Device<H>) -> Result<Readings, CommandError> {
        let mut readings = port_counters(device)?;
        let set = bareverbs_core::CounterSet::create(device)?;
        readings.extend(queue_counters(&set.read()?));
        Ok(readings)
    }
}

fn readings(selector: &str) -> Readings {
    let selector: DeviceSelector = selector.parse().expect("a selector");
    selector.with_device(Read).unwrap_or_else(|failure| panic!("{failure:?}"))
}

#[test]
fn every_counter_of_both_link_layers_is_known() {
    let all: Readings = readings("sim:ethernet").into_iter().chain(readings("sim:infiniband")).collect();
    let unknown: Vec<&String> = all.keys().filter(|name| known(name).is_none()).collect();
    assert_eq!(unknown, [""; 0]);
    for entry in KNOWN {
        let priority = entry.name.replace("_prioN_", "_prio0_");
        assert!(all.contains_key(&priority), "{} is in the table, but no port has it", entry.name);
    }
}

#[test]
fn names_are_those_of_linux() {
    let ethernet = readings("sim:ethernet");
    for name in [
        "rx_packets_phy",
        "tx_bytes_phy",
        "rx_prio3_pause",
        "tx_prio0_packets",
        "out_of_sequence",
        "np_cnp_sent",
    ] {
        assert!(ethernet.contains_key(name), "{name}");
    }
    assert_eq!(priority_name(7, "rx_octets"), "rx_prio7_bytes");
    assert_eq!(priority_name(0, "rx_pause_duration"), "rx_prio0_pause_duration");
    let infiniband = readings("sim:infiniband");
    assert!(infiniband.contains_key("link_downed") && infiniband.contains_key("port_xmit_wait"));
}

#[test]
fn an_abnormal_counter_says_what_it_means_and_what_to_do() {
    for entry in KNOWN {
        assert!(!entry.help.is_empty() && !entry.help.ends_with('.'), "{}", entry.name);
        let Some(abnormal) = &entry.abnormal else { continue };
        assert!(!abnormal.says.is_empty() && !abnormal.fix.is_empty(), "{}", entry.name);
    }
}
