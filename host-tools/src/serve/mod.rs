//! `bareverbs serve`: simulated NICs as PCI functions of virtual machines, over vfio-user.
//!
//! Every socket is a card, or a function of one. Cards or ports with the same link layer, and every InfiniBand port without a wire of its
//! own, are connected by a switch in this process; the InfiniBand switch hosts the subnet manager. A port or switch can
//! have a wire to the outside: another process, or this machine's network stack. `--topology` builds the InfiniBand
//! switches and cables of a site, and plugs the cards in where the site has hosts.

mod cable;
mod ending;

use crate::Failure;
use crate::input_file::read_text_at_most;
use crate::link_type::settings::{CardSettings, LinkType};
use crate::outside_wire::WireArguments;
use anyhow::{Context, Result, bail};
use bareverbs_prm::ids::{MacAddress, VhcaId};
use bareverbs_serve::fabric::{Fabric, HostPlace};
use bareverbs_serve::real_time::{Card, FaultScript, Outside, Recorder};
use bareverbs_serve::vfio_user::{Attachment, Farewell, Server, ServerConfig, WireFaults};
use bareverbs_sim::net::topology::SubnetTopology;
use bareverbs_sim::net::{self, Partitions, SubnetConfig};
use bareverbs_sim::nic::{CardFunction, Guids, LinkLayer, NicConfig, SubnetMembership};
use bareverbs_sim::run::Seed;
use clap::{Args, ValueEnum};
use rand_core::RngCore;
use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Largest topology or file of partitions that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// Serve simulated NICs to virtual machines.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Socket to listen on, once per card. QEMU, with shared memory: -device pcie-root-port,id=port -device
    /// '{"driver":"vfio-user-pci","bus":"port","socket":{"type":"unix","path":"PATH"}}'.
    #[arg(long, required_unless_present_any = ["dpu", "link_down", "link_up"])]
    pub socket: Vec<PathBuf>,
    /// Socket of a DPU, once per DPU: the host's function listens at PATH, the Arm cores' function at PATH.arm. Both have an address at the
    /// DPU's port, and the Arm cores reach the memory that the host shares with them (docs/dpu.md).
    #[arg(long, value_name = "PATH", conflicts_with = "ports")]
    pub dpu: Vec<PathBuf>,
    /// Link layer of the ports: once for all cards, or once per card.
    #[arg(long, value_enum, default_value = "ib")]
    pub link: Vec<Link>,
    /// Persistent settings of a card, once per card: what `bareverbs link-type --settings FILE` has set overrides
    /// --link. A missing file means that nothing was set.
    #[arg(long, value_name = "FILE")]
    pub settings: Vec<PathBuf>,
    /// Ports per card. As on a ConnectX-5 each is a function of its own: the second listens at PATH.1.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub ports: u8,
    /// The devices have user contexts: Linux offers DEVX to programs, as `--device uverbs:mlx5_0` and UCX use it.
    #[arg(long)]
    pub devx: bool,
    /// Capture all frames of all ports to this file, as pcapng.
    #[arg(long)]
    pub capture: Option<PathBuf>,
    /// Size limit of the capture in MiB. The devices keep running beyond it.
    #[arg(long, value_name = "MIB", requires = "capture", default_value_t = Recorder::DEFAULT_LIMIT >> 20)]
    pub capture_limit: u64,
    /// Also record the devices' actions: doorbells, work requests, completions, interrupts (docs/adr/0029). `bareverbs
    /// report` shows them.
    #[arg(long, requires = "capture")]
    pub records: bool,
    #[command(flatten)]
    wire: WireArguments,
    /// Faults on the wire, such as "loss=0.01,reorder=0.05,jitter=5us,out:7=drop,in:0x0a/3=delay=2ms".
    #[arg(long)]
    pub faults: Option<FaultScript>,
    /// Seed of the devices' addresses and of random faults. Servers with different seeds have different devices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// LID mask control (LMC) of the subnet: log2 of the number of LIDs per InfiniBand port.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=7))]
    pub lmc: u8,
    /// Partition file in the format of OpenSM's partitions.conf: the partition membership of InfiniBand ports. Switches
    /// drop packets of foreign partitions. Default: all ports are full members of the default partition.
    #[arg(long, value_name = "FILE")]
    pub partitions: Option<PathBuf>,
    /// A file with the output of ibnetdiscover: build the InfiniBand switches and cables of that site. The cards' ports are those of its hosts, in the
    /// order of the file, with their GUIDs and LIDs; hosts without a card are down.
    #[arg(long, value_name = "FILE", conflicts_with = "wire")]
    pub topology: Option<PathBuf>,
    /// What to log besides problems.
    #[arg(long, value_enum)]
    pub trace: Vec<Trace>,
    /// Serve nothing, but unplug the cable of a device that another process serves at this socket, also while a virtual machine
    /// uses it.
    #[arg(long, value_name = "PATH", exclusive = true)]
    pub link_down: Option<PathBuf>,
    /// Plug in the cable of a device that another process serves at this socket.
    #[arg(long, value_name = "PATH", exclusive = true)]
    pub link_up: Option<PathBuf>,
}

/// Link layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Link {
    /// InfiniBand.
    Ib,
    /// Ethernet (RoCEv2).
    Eth,
}

impl From<LinkType> for Link {
    fn from(link: LinkType) -> Self {
        match link {
            LinkType::InfiniBand => Self::Ib,
            LinkType::Ethernet => Self::Eth,
        }
    }
}

/// What to log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Trace {
    /// Every command with its outcome.
    Commands,
    /// The vfio-user protocol.
    Protocol,
}

/// Serves clients until the process ends, one at a time per socket.
pub fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    for (path, is_plugged) in [(&arguments.link_down, false), (&arguments.link_up, true)] {
        if let Some(path) = path {
            return cable::set(path, is_plugged).map_err(Failure::Input);
        }
    }
    crate::output::log_to_stderr(&directives(&arguments.trace))?;
    let functions = functions(arguments).map_err(Failure::Input)?;
    let mut network = Network::new(arguments, &functions).map_err(Failure::Input)?;
    let (mut servers, mut cables) = (Vec::new(), Vec::new());
    for function in &functions {
        let config = network.server(arguments, function).map_err(Failure::Input)?;
        let server = Server::bind(&function.socket, config).map_err(|error| Failure::Input(error.into()))?;
        match cable::listen(&function.socket, server.cable()) {
            Ok(socket) => cables.push(socket),
            // The device works all the same; so does a socket whose path leaves no room for a longer name.
            Err(error) => tracing::warn!("--link-down cannot pull this cable: {error}"),
        }
        servers.push((&function.socket, server));
    }
    let sockets: Vec<PathBuf> = functions.iter().map(|function| function.socket.clone()).collect();
    let cable_sockets: Vec<PathBuf> = cables.iter().map(|cable| cable.path().to_owned()).collect();
    ending::remove_at_end(&[&sockets[..], &cable_sockets].concat())?;
    sockets.iter().for_each(|path| tracing::info!("serving at {}", path.display()));
    let ends = std::thread::scope(|scope| {
        let threads: Vec<_> = servers
            .into_iter()
            .map(|(path, mut server)| scope.spawn(move || serve_clients(path, &mut server)))
            .collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
    });
    for end in ends {
        end.map_err(|_| Failure::Run(anyhow::anyhow!("a server has panicked")))??;
    }
    Ok(())
}

fn serve_clients(path: &Path, server: &mut Server) -> Result<()> {
    loop {
        let path = path.display();
        if server.serve()? == Farewell::Closed {
            tracing::info!("{path}: the client has gone; the device is reset and waits for the next");
        } else {
            tracing::warn!("{path}: the client sent garbage; the device is reset and waits for the next");
        }
    }
}

/// A function of a card, and its socket.
struct ServedFunction {
    socket: PathBuf,
    nic: NicConfig,
    /// The DPU that it is a function of.
    dpu: Option<Card>,
}

/// The functions of all cards: one for each port; for a DPU one for the host and one for the Arm cores, which
/// share the port.
fn functions(arguments: &ServeArguments) -> Result<Vec<ServedFunction>> {
    let (sockets, dpus) = (&arguments.socket, &arguments.dpu);
    let cards = sockets.len() + dpus.len();
    let (links, settings) = (&arguments.link, &arguments.settings);
    if links.len() != 1 && links.len() != cards {
        bail!("--link is given once or once for each of the {cards} cards, not {} times", links.len());
    }
    if !settings.is_empty() && settings.len() != cards {
        bail!("--settings is given once for each of the {cards} cards, not {} times", settings.len());
    }
    let mut random = Seed(arguments.seed).stream("mac");
    let mut functions = Vec::new();
    for (at, (socket, link)) in sockets.iter().chain(dpus).zip(links.iter().cycle()).enumerate() {
        let kept = settings.get(at).map(|path| CardSettings::read(path)).transpose()?.unwrap_or_default();
        let mut bytes = [0; 3];
        random.fill_bytes(&mut bytes);
        let link_of = |port| kept.link_type(port).map_or(*link, Link::from);
        if at < sockets.len() {
            functions.extend((1..=arguments.ports).map(|port| ServedFunction {
                socket: socket_of(socket, port),
                nic: device(link_of(port), bytes, port),
                dpu: None,
            }));
        } else {
            functions.extend(dpu_functions(socket, link_of(1), bytes));
        }
    }
    functions.iter_mut().for_each(|function| function.nic.user_contexts = arguments.devx);
    check_paths(&functions)?;
    Ok(functions)
}

/// Refuses paths of which one would be that of two sockets: PATH.cable, PATH.1 and PATH.arm belong to the card at PATH.
fn check_paths(functions: &[ServedFunction]) -> Result<()> {
    let mut seen = BTreeSet::new();
    for socket in functions.iter().map(|function| &function.socket) {
        for path in [socket.to_owned(), cable::socket_of(socket)] {
            let full = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
            if !seen.insert(full) {
                bail!(
                    "{} would be the socket of two: a card at PATH also listens at PATH.cable, with --ports 2 at PATH.1, and a DPU at PATH.arm; choose \
                     other paths",
                    path.display()
                );
            }
        }
    }
    Ok(())
}

/// The host's function of a DPU and that of its Arm cores, which have their own addresses at one port.
fn dpu_functions(socket: &Path, link: Link, bytes: [u8; 3]) -> [ServedFunction; 2] {
    let card = Card::default();
    let mut arm = socket.as_os_str().to_owned();
    arm.push(".arm");
    [(socket.to_owned(), 1), (arm.into(), 2)].map(|(socket, number)| {
        let function = CardFunction::bluefield3(VhcaId::from_low_bits(number));
        let nic = NicConfig { card_port: 1, card: Some(function), ..device(link, bytes, number as u8) };
        ServedFunction { socket, nic, dpu: Some(card.clone()) }
    })
}

fn socket_of(socket: &Path, port: u8) -> PathBuf {
    if port == 1 {
        return socket.to_owned();
    }
    let mut name = socket.as_os_str().to_owned();
    name.push(format!(".{}", port - 1));
    name.into()
}

/// The MAC addresses of a card's ports are consecutive, and the first is even.
fn device(link: Link, [a, b, c]: [u8; 3], port: u8) -> NicConfig {
    let mac = MacAddress([0x02, 0x02, 0xc9, a, b, (c & 0xfe) + (port - 1)]);
    let nic = match link {
        Link::Ib => NicConfig { subnet: SubnetMembership::Managed, ..NicConfig::infiniband(mac) },
        Link::Eth => NicConfig::new(mac),
    };
    NicConfig { card_port: port, ..nic.with_longest_ack_timeout().without_write_combining() }
}

/// The network between the ports.
struct Network {
    fabric: Option<Fabric>,
    /// Places of a site's hosts that have no card yet.
    places: VecDeque<HostPlace>,
    /// What the only port is connected to if there is no fabric.
    outside: Option<Outside>,
    capture: Option<Recorder>,
}

impl Network {
    fn new(arguments: &ServeArguments, functions: &[ServedFunction]) -> Result<Self> {
        let layers: Vec<LinkLayer> = functions.iter().map(|function| function.nic.link_layer).collect();
        let outside = arguments.wire.outside()?;
        let site = arguments.topology.as_deref().map(|path| site(arguments, path, &layers)).transpose()?;
        let is_single =
            functions.len() == 1 && (outside.is_some() || !layers.contains(&LinkLayer::InfiniBand));
        let (fabric, places) = match site {
            Some((fabric, places)) => (Some(fabric), places.into()),
            None if is_single => (None, VecDeque::new()),
            None => {
                (Some(Fabric::new(subnet(arguments)?).context("cannot start the switch")?), VecDeque::new())
            }
        };
        if arguments.partitions.is_some() && (fabric.is_none() || !layers.contains(&LinkLayer::InfiniBand)) {
            bail!(
                "--partitions needs InfiniBand ports at a switch of this process: --link ib, with more than one card or without --wire"
            );
        }
        if let (Some(fabric), Some(outside)) = (&fabric, &outside) {
            let layer = layers.first().copied().unwrap_or(LinkLayer::InfiniBand);
            if layers.iter().any(|other| *other != layer) {
                bail!("--wire carries frames of one link layer, but the cards have two");
            }
            fabric.plug_wire(layer, outside).context("cannot take the end of the wire")?;
        }
        let create = |path: &PathBuf| {
            Recorder::create_limited(path, arguments.capture_limit.saturating_mul(1 << 20))
                .with_context(|| format!("cannot write the capture {}", path.display()))
        };
        Ok(Self { fabric, places, outside, capture: arguments.capture.as_ref().map(create).transpose()? })
    }

    fn server(&mut self, arguments: &ServeArguments, function: &ServedFunction) -> Result<ServerConfig> {
        let ServedFunction { socket, nic, dpu } = function;
        let is_infiniband = nic.link_layer == LinkLayer::InfiniBand;
        let place = if is_infiniband { self.places.pop_front() } else { None };
        let guids = place.map(|place| Guids { node: place.node, port: place.guid });
        let nic = &NicConfig { guids, ..*nic };
        let attachment = match (&self.fabric, place, &self.outside) {
            (Some(fabric), Some(place), _) => Attachment::Place(fabric.clone(), place),
            (Some(fabric), None, _) => Attachment::Fabric(fabric.clone()),
            (None, _, Some(outside)) => Attachment::Wire(outside.clone()),
            (None, _, None) => Attachment::Nothing,
        };
        let link = match nic.link_layer {
            LinkLayer::Ethernet => net::LinkType::Ethernet,
            LinkLayer::InfiniBand => net::LinkType::InfiniBand,
        };
        let name = socket.file_name().unwrap_or_default().to_string_lossy();
        let with = if arguments.records { Recorder::recording } else { Recorder::interface };
        let capture = self.capture.as_ref().map(|capture| with(capture, &name, link));
        let faults = arguments.faults.as_ref().map(|script| WireFaults {
            seed: Seed(arguments.seed ^ u64::from(nic.mac.low())),
            script: script.clone(),
        });
        let trace_commands = arguments.trace.contains(&Trace::Commands);
        Ok(ServerConfig { nic: *nic, attachment, card: dpu.clone(), capture, faults, trace_commands })
    }
}

/// The network that a file describes, and the places of its hosts.
fn site(arguments: &ServeArguments, path: &Path, layers: &[LinkLayer]) -> Result<(Fabric, Vec<HostPlace>)> {
    let shown = path.display();
    let text =
        read_text_at_most(path, LARGEST).with_context(|| format!("cannot read the topology of {shown}"))?;
    let topology = SubnetTopology::parse(&text)
        .with_context(|| format!("{shown} is not a topology as ibnetdiscover prints it"))?;
    let built = Fabric::of_topology(&topology, &subnet(arguments)?);
    let (fabric, places) = built.with_context(|| format!("cannot build the subnet of {shown}"))?;
    let ports = layers.iter().filter(|layer| **layer == LinkLayer::InfiniBand).count();
    if ports == 0 || ports > places.len() {
        bail!(
            "{shown} has {} ports of hosts, but there are {ports} InfiniBand ports to be served: give --socket and --link ib for at least one and no more",
            places.len()
        );
    }
    Ok((fabric, places))
}

/// The management settings of the InfiniBand ports' subnet.
fn subnet(arguments: &ServeArguments) -> Result<SubnetConfig> {
    let read = |path: &PathBuf| {
        let text = read_text_at_most(path, LARGEST)
            .with_context(|| format!("cannot read the partitions of {}", path.display()))?;
        Partitions::parse(&text).with_context(|| format!("cannot parse the partitions of {}", path.display()))
    };
    let partitions = arguments.partitions.as_ref().map(read).transpose()?.unwrap_or_default();
    Ok(SubnetConfig { lmc: arguments.lmc, partitions, ..SubnetConfig::default() })
}

/// What to log in addition to warnings.
fn directives(trace: &[Trace]) -> String {
    let mut directives = "warn,bareverbs_tools=info".to_owned();
    if trace.contains(&Trace::Commands) {
        directives.push_str(",bareverbs_serve=info");
    }
    if trace.contains(&Trace::Protocol) {
        directives.push_str(",bareverbs_serve=trace");
    }
    directives
}
