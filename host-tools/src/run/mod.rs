//! `bareverbs run`: gives an unmodified program an RDMA device on a machine without one.
//!
//! Writes the files that describe the device, points the program's environment at them and at the library that
//! implements the device (`bareverbs-preload`), and executes the program.

mod bridge;
mod export;
mod files;
mod network;
mod program;

use crate::network::{HostLink, HostRequest};
use crate::outside_wire::WireArguments;
use crate::{Failure, network as networks};
use anyhow::{Context, anyhow, bail};
use bareverbs_network::Neighbour;
use bareverbs_serve::network::environment;
use bareverbs_serve::real_time::FaultScript;
use bareverbs_sim::nic::{LinkLayer, NicConfig, PortSpeed};
use bareverbs_sim::wire::infiniband::FIRST_MULTICAST_LID;
use bareverbs_uverbs::sysfs::DescribedDevice;
use bareverbs_uverbs::{HostSettings, MOST_DEVICES, NullProcess, Uverbs, VirtualHost, sysfs};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use export::EnvironmentFormat;

/// How UCX learns of the program's mappings. By default it overwrites the library's `mmap` with its own, and
/// device files can no longer be mapped.
const UCX_HOOKS: &str = "UCX_MEM_MMAP_HOOK_MODE";
/// Variables with a sanitizer's options, and the option that each needs.
///
/// * A program that gcc built with AddressSanitizer exits at once if anything is loaded before the sanitizer's runtime, unless that check is
///   disabled; everything works in either order.
/// * ThreadSanitizer sees what the library copies, but not its locks, since it has not instrumented them, and would report races that are none.
const SANITIZERS: [(&str, &str); 2] =
    [("ASAN_OPTIONS", "verify_asan_link_order=0"), ("TSAN_OPTIONS", "ignore_noninstrumented_modules=1")];
/// The library to load into the program.
const LIBRARY: &str = "libbareverbs_preload.so";

/// Run an unmodified program with a simulated RDMA device. Programs on different hosts of the same network can reach
/// each other: `bareverbs run --host a -- ib_write_bw`, and in another terminal `bareverbs run --host b -- ib_write_bw
/// a`. With --wire it runs no program but carries frames between the network and the outside.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Virtual host of the program. Its name determines the addresses of its device.
    #[arg(long, default_value = "host", value_parser = networks::parse_host, conflicts_with = "wire")]
    pub host: VirtualHost,
    /// Network of the host. Programs in different networks do not see each other.
    #[arg(long, default_value = "default", value_parser = networks::parse_name)]
    pub network: String,
    /// Fraction of the program's sent and received frames to lose, from 0 to 1; the same as --faults loss=…
    #[arg(long, value_parser = parse_loss, conflicts_with = "wire")]
    pub loss: Option<String>,
    /// Faults on the wire, such as "loss=0.01,reorder=0.05,jitter=5us,out:7=drop,in:0x0a/3=delay=2ms".
    #[arg(long, value_parser = parse_faults, conflicts_with = "wire")]
    pub faults: Option<String>,
    /// Seed of the random faults.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Capture all frames of the device to this file, as pcapng. Any further process of the program that opens the
    /// device writes to a file with a number before the extension.
    #[arg(long, value_name = "FILE", conflicts_with = "wire")]
    pub capture: Option<PathBuf>,
    /// Also record the device's actions: doorbells, work requests, completions (docs/adr/0029). `bareverbs report`
    /// shows them.
    #[arg(long, requires = "capture")]
    pub records: bool,
    /// Link layer of the host's port: eth (RoCEv2) or ib (InfiniBand, with a LID from the network's subnet manager).
    /// Hosts with different link layers cannot reach each other. Default: that of the host's running programs, or eth.
    /// With --wire: the link layer of the frames it carries; default eth.
    #[arg(long)]
    pub link: Option<HostLink>,
    /// LID of the host's first InfiniBand port; further ports get the following ones. Default: a free one. Networks
    /// connected by --wire need hosts with different LIDs.
    #[arg(long, value_name = "LID", value_parser = parse_lid, conflicts_with = "wire")]
    pub lid: Option<u16>,
    /// Number of RDMA devices of the host, 1 to 8: mlx5_0, mlx5_1 and so on, each with its own port and addresses. The
    /// second one's address has the name HOST-mlx5_1. Default: as many as the host's running programs have, or 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_DEVICES)), conflicts_with = "wire")]
    pub ports: Option<u8>,
    /// IPv4 or IPv6 address of the host; can be repeated. The first IPv4 address replaces the one derived from the
    /// name. With --ports, the addresses of a family are assigned to the ports in turn: the first to mlx5_0, the second
    /// to mlx5_1.
    #[arg(long, value_name = "ADDRESS", value_parser = parse_address, conflicts_with = "wire")]
    pub ip: Vec<IpAddr>,
    /// Port rate in Gbit/s that the device reports: 10, 25, 40, 50 or 100. Frames always pass as fast as the machine
    /// can.
    #[arg(long, default_value_t = 100, value_parser = parse_rate)]
    pub rate: u32,
    /// The device has user contexts: the kernel offers DEVX, with which a program sends commands of the PRM itself, as
    /// `--device uverbs:mlx5_0` and UCX do.
    #[arg(long, conflicts_with = "wire")]
    pub devx: bool,
    /// Unplug the cables of a host, or of a single device given by number. Its processes, and those that start later,
    /// reach nobody through them.
    #[arg(long, value_name = "HOST[:DEVICE]", conflicts_with_all = ["command", "list", "wire"])]
    pub link_down: Option<String>,
    /// Plug in the cables of a host, or of a single device given by number.
    #[arg(long, value_name = "HOST[:DEVICE]", conflicts_with_all = ["command", "list", "link_down", "wire"])]
    pub link_up: Option<String>,
    /// Show the hosts of the network, their processes and their traffic.
    #[arg(long, conflicts_with_all = ["command", "capture", "loss", "faults", "wire"])]
    pub list: bool,
    /// Run nothing, but print the environment by which programs find the device, for a shell (`eval`) or a later CI
    /// step.
    #[arg(long, value_name = "FORMAT", conflicts_with_all = ["command", "list", "link_down", "link_up", "wire"])]
    pub print_env: Option<EnvironmentFormat>,
    #[command(flatten)]
    wire: WireArguments,
    /// A neighbour beyond --wire that does not answer ARP, such as 10.0.0.1=02:00:00:00:00:01. Can be repeated.
    #[arg(long, value_name = "IP=MAC", requires = "wire", conflicts_with = "command", value_parser = bridge::parse_neighbour)]
    neighbor: Vec<Neighbour>,
    /// The program and its arguments.
    #[arg(required_unless_present_any = ["list", "link_down", "link_up", "print_env", "wire"], conflicts_with = "wire",
          trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

fn parse_address(text: &str) -> Result<IpAddr, String> {
    let address = text.parse().map_err(|_| "it is not an IPv4 or IPv6 address".to_owned())?;
    let refusal =
        || "a virtual host cannot have a loopback, link-local, multicast or broadcast address".to_owned();
    Some(address).filter(|address| HostSettings::is_possible(*address)).ok_or_else(refusal)
}

/// Parses a LID in the notation of diagnostics (0x12) or as a plain number.
fn parse_lid(text: &str) -> Result<u16, String> {
    let digits = text.strip_prefix("0x");
    let lid = digits.map_or_else(|| text.parse(), |digits| u16::from_str_radix(digits, 16));
    let lid = lid.ok().filter(|lid| (1..FIRST_MULTICAST_LID).contains(lid));
    lid.ok_or_else(|| format!("a port has a LID from 1 to {:#x}", FIRST_MULTICAST_LID - 1))
}

fn parse_rate(text: &str) -> Result<u32, String> {
    let rate = text.parse().ok().filter(|&rate| PortSpeed::from_gbps(rate).is_some());
    rate.ok_or_else(|| "a port has a rate of 10, 25, 40, 50 or 100 Gbit/s".into())
}

fn parse_loss(text: &str) -> Result<String, String> {
    parse_faults(&format!("loss={text}")).map_err(|_| "a loss is a number from 0 to 1, such as 0.01".into())
}

/// Checks the text and returns it unchanged: the library in the program parses it again.
fn parse_faults(text: &str) -> Result<String, String> {
    text.parse::<FaultScript>().map(|_| text.to_owned())
}

/// Executes the program and only returns on an error; or shows the network.
pub fn run(arguments: &RunArguments) -> Result<(), Failure> {
    if arguments.wire.is_asked_for() {
        let network = networks::home().and_then(|home| networks::open(&home, &arguments.network));
        let network = network.map_err(Failure::Input)?;
        let link = arguments.link.unwrap_or(HostLink::Eth).into();
        return bridge::run(network, link, &arguments.wire, &arguments.neighbor).map_err(Failure::Input);
    }
    if arguments.list {
        let network = networks::home().and_then(|home| networks::open(&home, &arguments.network));
        crate::output::print(&network::list(&network.map_err(Failure::Input)?).to_string())?;
        return Ok(());
    }
    for (host, plugged_in) in [(&arguments.link_down, false), (&arguments.link_up, true)] {
        if let Some(host) = host {
            let network = networks::home().and_then(|home| networks::open(&home, &arguments.network));
            let done = network.and_then(|network| network::set_cable(&network, host, plugged_in));
            return done.map_err(Failure::Input);
        }
    }
    if let Some(format) = arguments.print_env {
        let mut command = Command::new("env");
        let printed = set_environment(&mut command, arguments).and_then(|()| export::lines(&command, format));
        print!("{}", printed.map_err(Failure::Input)?);
        return Ok(());
    }
    let mut command = prepare(arguments).map_err(Failure::Input)?;
    let error = command.exec();
    let program = command.get_program().to_string_lossy();
    Err(Failure::Input(anyhow!(error).context(format!("cannot run {program}"))))
}

/// The program with its environment.
fn prepare(arguments: &RunArguments) -> anyhow::Result<Command> {
    let (name, rest) = arguments.command.split_first().context("no program is given")?;
    let path = program::find(name)?;
    program::check(&path)?;
    let mut command = Command::new(&path);
    command.args(rest);
    set_environment(&mut command, arguments)?;
    Ok(command)
}

/// Points the environment of a program at the device of its host, which is registered in its network.
fn set_environment(command: &mut Command, arguments: &RunArguments) -> anyhow::Result<()> {
    if let Some(said) = program::missing_library() {
        eprintln!("{said}");
    }
    let library = library()?;
    let home = networks::home()?;
    let network = networks::open(&home, &arguments.network)?;
    let request = HostRequest {
        link: arguments.link.map(LinkLayer::from),
        ports: arguments.ports,
        lid: arguments.lid,
        addresses: arguments.ip.clone(),
    };
    let ports = networks::ports(&network, &networks::add(&network, &arguments.host, &request)?)?;
    command.env(environment::DIRECTORY, describe(&home, &ports, arguments.rate)?);
    command.env(environment::RATE, arguments.rate.to_string());
    command.env(environment::HOST, arguments.host.name()).env(environment::NETWORK, network.path());
    let faults: Vec<&str> =
        [&arguments.faults, &arguments.loss].into_iter().flatten().map(String::as_str).collect();
    command.env(environment::FAULTS, faults.join(",")).env(environment::SEED, arguments.seed.to_string());
    let capture = arguments.capture.as_deref().map(network::prepare_capture).transpose()?;
    command.env(environment::CAPTURE, capture.unwrap_or_default());
    command.env(environment::RECORDS, if arguments.records { "1" } else { "" });
    command.env(environment::DEVX, if arguments.devx { "1" } else { "" });
    if std::env::var_os(UCX_HOOKS).is_none() {
        command.env(UCX_HOOKS, "none");
    }
    for (variable, option) in SANITIZERS {
        command.env(variable, with_option(std::env::var_os(variable).as_deref(), option));
    }
    command.env("LD_PRELOAD", preload(&library, std::env::var_os("LD_PRELOAD").as_deref()));
    Ok(())
}

/// The previous options with ours appended, unless they already set that one.
fn with_option(before: Option<&OsStr>, option: &str) -> OsString {
    let mut options = before.unwrap_or_default().to_owned();
    let name = option.split('=').next().unwrap_or_default();
    if options.to_string_lossy().contains(name) {
        return options;
    }
    if !options.is_empty() {
        options.push(":");
    }
    options.push(option);
    options
}

/// Puts ours first and keeps what was preloaded before. If `--print-env` set the environment, ours is already
/// there.
fn preload(library: &Path, before: Option<&OsStr>) -> OsString {
    let mut list = library.as_os_str().to_owned();
    let before = before.map(OsStr::as_bytes).unwrap_or_default();
    let others = before.split(|&byte| byte == b':' || byte == b' ');
    for other in others.filter(|other| !other.is_empty() && *other != library.as_os_str().as_bytes()) {
        list.push(":");
        list.push(OsStr::from_bytes(other));
    }
    list
}

/// The path of the library, which lies beside this program.
fn library() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let library = program.with_file_name(LIBRARY);
    if !library.is_file() {
        bail!(
            "{} is not there; `cargo build --release` makes it together with this program",
            library.display()
        );
    }
    // The dynamic linker takes either character for a separator.
    if library.to_string_lossy().contains([' ', ':']) {
        bail!("{}: a path with a space or a colon cannot be preloaded; move the build", library.display());
    }
    Ok(library)
}

/// Writes the files that describe the devices of a host, whose ports have this rate, and returns their
/// directory.
fn describe(home: &Path, ports: &[VirtualHost], rate: u32) -> anyhow::Result<PathBuf> {
    let speed = PortSpeed::from_gbps(rate).context("a port has no such rate")?;
    let boot = |port: &VirtualHost| {
        let config = NicConfig { speed, ..port.nic_config(0) };
        let device = Uverbs::boot(config, &port.port_addresses(), &mut NullProcess);
        Ok((device.context("the simulated device does not come up")?, config))
    };
    let devices = ports.iter().map(boot).collect::<anyhow::Result<Vec<_>>>()?;
    let described =
        devices.iter().map(|(device, config)| DescribedDevice { attributes: device.attributes(), config });
    files::write(home, &sysfs::tree(&described.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn libraries_that_were_preloaded_before_stay() {
        let library = Path::new("/x/lib.so");
        assert_eq!(preload(library, None), "/x/lib.so");
        assert_eq!(preload(library, Some(OsStr::new(""))), "/x/lib.so");
        assert_eq!(preload(library, Some(OsStr::new("/y.so"))), "/x/lib.so:/y.so");
        assert_eq!(preload(library, Some(OsStr::new("/x/lib.so /y.so:/z.so"))), "/x/lib.so:/y.so:/z.so");
    }

    #[test]
    fn the_files_of_a_host_are_written_once() {
        let home = tempfile::tempdir().unwrap();
        let describe = |host: &VirtualHost| describe(home.path(), core::slice::from_ref(host), 100);
        let host = VirtualHost::new("a").unwrap();
        let directory = describe(&host).unwrap();
        let line = |path: &str| std::fs::read_to_string(directory.join(path)).unwrap();
        assert_eq!(line("sys/class/infiniband_verbs/uverbs0/ibdev"), "mlx5_0\n");
        assert_eq!(line("sys/class/infiniband/mlx5_0/device/vendor"), "0x15b3\n");
        assert_eq!(line("sys/bus/pci/devices/0000:e1:00.0/device"), "0x1017\n");
        assert_eq!(line("sys/class/infiniband/mlx5_0/ports/1/rate"), "100 Gb/sec (4X EDR)\n");
        assert_eq!(describe(&host).unwrap(), directory);
        assert_ne!(describe(&VirtualHost::new("b").unwrap()).unwrap(), directory, "another host");
    }

    #[test]
    fn a_host_with_the_addresses_of_another_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let network = networks::open(home.path(), "x").unwrap();
        let mut seen = BTreeMap::new();
        let mut hosts = (0..100_000).filter_map(|n| VirtualHost::new(&format!("h{n}")));
        let twins = hosts.find_map(|host| Some((seen.insert(host.ipv4(), host.clone())?, host)));
        let (first, second) = &twins.unwrap();
        let add = |host| networks::add(&network, host, &HostRequest::default());
        add(first).unwrap();
        add(first).unwrap();
        let refusal = add(second).unwrap_err().to_string();
        assert!(refusal.contains(first.name()) && refusal.contains("--host"), "{refusal}");
    }

    #[test]
    fn options_of_a_sanitizer_stay_and_get_ours() {
        for (_, ours) in SANITIZERS {
            let options = |before: &str| with_option(Some(OsStr::new(before)), ours).into_string().unwrap();
            assert_eq!(with_option(None, ours), ours);
            assert_eq!(options("history_size=2"), format!("history_size=2:{ours}"));
            let otherwise = ours.replace('0', "yes").replace('1', "no");
            for said in [otherwise, format!("history_size=2:{ours}")] {
                assert_eq!(options(&said), said);
            }
        }
    }

    #[test]
    fn a_network_without_processes_lists_its_hosts() {
        let home = tempfile::tempdir().unwrap();
        let network = networks::open(home.path(), "x").unwrap();
        networks::add(&network, &VirtualHost::new("a").unwrap(), &HostRequest::default()).unwrap();
        let list = network::list(&network).to_string();
        assert!(list.contains("queue-pairs") && list.contains(" 198.18."), "{list}");
    }

    #[test]
    fn infiniband_ports_get_lids_of_their_own_and_keep_them() {
        let home = tempfile::tempdir().unwrap();
        let network = networks::open(home.path(), "x").unwrap();
        let host = |name| VirtualHost::new(name).unwrap();
        let add = |name, link| {
            networks::add(&network, &host(name), &HostRequest { link, ..HostRequest::default() }).unwrap()
        };
        let infiniband = Some(LinkLayer::InfiniBand);
        let lids = ["a", "b", "c"].map(|name| add(name, infiniband).settings().lid);
        assert_eq!(lids, [Some(1), Some(2), Some(3)]);
        assert_eq!(add("b", infiniband).settings().lid, Some(2));
        assert_eq!(add("b", None).settings().lid, None, "not running, and no link layer was requested");
        assert_eq!(add("d", infiniband).settings().lid, Some(2), "the first that is free");
        let directory = describe(home.path(), &[add("c", infiniband)], 100).unwrap();
        let line = |path: &str| std::fs::read_to_string(directory.join(path)).unwrap();
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        assert_eq!(line(&format!("{port}/lid")), "0x3\n");
        assert_eq!(line(&format!("{port}/link_layer")), "InfiniBand\n");
        assert_eq!(line(&format!("{port}/gid_attrs/types/0")), "IB/RoCE v1\n");
    }

    #[test]
    fn a_lid_that_was_chosen_is_the_hosts_alone() {
        let home = tempfile::tempdir().unwrap();
        let network = networks::open(home.path(), "x").unwrap();
        let add = |name: &str, link, lid, ports| {
            let request = HostRequest { link, lid, ports, ..HostRequest::default() };
            networks::add(&network, &VirtualHost::new(name).unwrap(), &request)
        };
        let infiniband = Some(LinkLayer::InfiniBand);
        let lids = |host: VirtualHost| {
            let ports = networks::ports(&network, &host).unwrap();
            ports.iter().map(|port| port.settings().lid).collect::<Vec<_>>()
        };
        assert_eq!(lids(add("a", infiniband, Some(0x40), Some(2)).unwrap()), [Some(0x40), Some(0x41)]);
        assert_eq!(lids(add("a", infiniband, None, None).unwrap()), [Some(0x40)], "it stays");
        assert_eq!(lids(add("b", infiniband, None, None).unwrap()), [Some(1)]);
        let refusal = add("b", infiniband, Some(0x40), None).unwrap_err().to_string();
        assert!(refusal.contains("host a") && refusal.contains("--lid"), "{refusal}");
        let refusal = add("c", None, Some(9), None).unwrap_err().to_string();
        assert!(refusal.contains("--link ib"), "{refusal}");
        assert_eq!(["0x12", "18"].map(parse_lid), [Ok(18), Ok(18)]);
        for text in ["0", "0xc000", "-1", "x"] {
            assert!(parse_lid(text).unwrap_err().contains("0xbfff"), "{text}");
        }
    }

    #[test]
    fn a_host_of_two_ports_has_two_devices_with_names_and_addresses_of_their_own() {
        let home = tempfile::tempdir().unwrap();
        let network = networks::open(home.path(), "x").unwrap();
        let host = VirtualHost::new("a").unwrap();
        let request = |ports, text: &str| HostRequest {
            ports,
            addresses: text.split_whitespace().map(|address| parse_address(address).unwrap()).collect(),
            ..HostRequest::default()
        };
        let add =
            |request: &HostRequest| networks::ports(&network, &networks::add(&network, &host, request)?);
        let ports = add(&request(Some(2), "10.0.0.1 2001:db8::1 10.0.1.1 10.0.0.2")).unwrap();
        assert_eq!(ports.iter().map(VirtualHost::name).collect::<Vec<_>>(), ["a", "a-mlx5_1"]);
        assert_eq!(
            ports[0].addresses(),
            ["10.0.0.1", "10.0.0.2", "2001:db8::1"].map(|ip| ip.parse::<IpAddr>().unwrap())
        );
        assert_eq!(ports[1].addresses(), ["10.0.1.1".parse::<IpAddr>().unwrap()]);
        let directory = describe(home.path(), &ports, 100).unwrap();
        let line = |path: &str| std::fs::read_to_string(directory.join(path)).unwrap();
        assert_eq!(line("sys/class/infiniband_verbs/uverbs1/ibdev"), "mlx5_1\n");
        assert_eq!(line("sys/bus/pci/devices/0000:e1:00.1/device"), "0x1017\n");
        let list = network::list(&network).to_string();
        assert!(list.contains("a-mlx5_1") && list.contains("10.0.1.1"), "{list}");
        network::set_cable(&network, "a:1", false).unwrap();
        assert_eq!(["a", "a-mlx5_1"].map(|name| network.has_cable(name)), [true, false]);
        network::set_cable(&network, "a", false).unwrap();
        network::set_cable(&network, "a:1", true).unwrap();
        assert_eq!(["a", "a-mlx5_1"].map(|name| network.has_cable(name)), [false, true]);
        for (named, said) in [("a:2", "2 devices"), ("b", "its hosts are: a"), ("a:x", "a:x")] {
            let refusal = network::set_cable(&network, named, true).unwrap_err().to_string();
            assert!(refusal.contains(said), "{refusal}");
        }
        let refusal = add(&request(Some(2), "10.0.0.1 10.0.0.1")).unwrap_err().to_string();
        assert!(refusal.contains("a-mlx5_1") && refusal.contains("--ip"), "{refusal}");
        assert_eq!(add(&HostRequest::default()).unwrap().len(), 1, "not running, and nothing was requested");
        assert!(!network::list(&network).to_string().contains("mlx5_1"));
    }

    #[test]
    fn a_host_has_the_addresses_that_were_chosen_and_no_other_host_has_them() {
        let home = tempfile::tempdir().unwrap();
        let network = networks::open(home.path(), "x").unwrap();
        let request = |text: &str| HostRequest {
            addresses: text.split(' ').map(|address| parse_address(address).unwrap()).collect(),
            ..HostRequest::default()
        };
        let add = |name, text| networks::add(&network, &VirtualHost::new(name).unwrap(), &request(text));
        assert_eq!(add("a", "10.0.0.1 2001:db8::1").unwrap().ipv4(), [10, 0, 0, 1]);
        let refusal = add("b", "2001:db8::1").unwrap_err().to_string();
        assert!(refusal.contains("host a") && refusal.contains("--ip"), "{refusal}");
        add("b", "10.0.0.2").unwrap();
        for text in ["127.0.0.1", "0.0.0.0", "224.0.0.1", "fe80::1", "a"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
