//! Both ends of a test in this process: two simulated devices with a cable between them, in virtual time.

use super::bench::{Bench, check_partition, device_config};
use super::conversation::{bytes_of, path_mtu};
use super::data;
#[cfg(test)]
use super::figures::Bandwidth;
use super::plan::{Measure, TestPlan, Transport};
use super::run::{PerfOutcome, Side, SizeRow, drive_both};
use super::stream::Stream;
use super::turns::Turns;
use crate::Failure;
use crate::any_place::AnyHal;
use crate::counters::Readings;
use crate::place::{DeviceSelector, simulated_pair};
use crate::port_address::fill_table;
use crate::seat::Seat;
use anyhow::{Context as _, Result, anyhow};
use bareverbs_core::Device;
use bareverbs_core::hal::Hal;
use bareverbs_prm::numbering::{PathMtu, PortType};
use bareverbs_sim::nic::LinkLayer;

/// Runs the test.
pub(crate) fn run(plan: &TestPlan) -> Result<PerfOutcome, Failure> {
    let [client, server] = devices(plan)?;
    plan.gid_index(&seat(&client)?).map_err(Failure::Input)?;
    check_partition(&client, plan).map_err(Failure::Input)?;
    let mtu = path_mtu(&client, plan)?;
    measure(plan, mtu, &client, &server)
}

/// The client's device and the server's.
fn devices(plan: &TestPlan) -> Result<[Device<AnyHal>; 2], Failure> {
    let device = DeviceSelector::Simulated(LinkLayer::Ethernet);
    let hals = simulated_pair(LinkLayer::Ethernet).map_err(|failure| failure.into_failure(&device))?;
    let open = |hal| {
        Device::open(hal, device_config(plan))
            .map_err(|error| anyhow!("{error}"))
            .context("a simulated device")
    };
    let [client, server] = hals.map(open);
    Ok([client?, server?])
}

/// The figures of a server that looks for the first time when all messages of the client have come.
#[cfg(test)]
pub(crate) fn late_server(plan: &TestPlan) -> Result<Bandwidth, Failure> {
    let [client, server] = devices(plan)?;
    let mtu = path_mtu(&client, plan)?;
    let seats = [seat(&client)?, seat(&server)?];
    let (mut left, mut right) = connected(plan, mtu, &seats, [&client, &server])?;
    let size = plan.sizes[0];
    let mut server = Stream::prepare(plan, size, false, &mut right)?;
    let mut client = Stream::prepare(plan, size, true, &mut left)?;
    let hal = left.device.hal();
    while !client.is_done(hal.now()) {
        client.step(&mut left)?;
        hal.relax(hal.now() + bareverbs_prm::time::Duration::from_micros(1));
    }
    while !server.is_done(hal.now()) {
        server.step(&mut right)?;
    }
    Ok(server.finish())
}

/// Runs the test between two InfiniBand ports with this table of P_Keys.
#[cfg(test)]
pub(crate) fn in_partitions(plan: &TestPlan, partition_keys: &[u16]) -> Result<PerfOutcome, Failure> {
    use bareverbs_hal_sim::{MemoryConfig, SimWorld};
    use bareverbs_sim::net::{LinkConfig, Partitions, SubnetConfig, SwitchConfig};
    use bareverbs_sim::nic::{Nic, NicConfig, SubnetMembership};
    use bareverbs_sim::run::Latency;
    let world = SimWorld::new(1);
    let partitions = Partitions::of_all(partition_keys);
    let config = SubnetConfig { partitions, ..SubnetConfig::default() };
    let switch = world.with(|world| world.add_subnet("switch", SwitchConfig::default(), config));
    let devices = [1, 2].map(|number| {
        let mac = bareverbs_prm::ids::MacAddress([2, 0, 0, 0, 0, number]);
        let nic = Nic::new(NicConfig { subnet: SubnetMembership::Managed, ..NicConfig::infiniband(mac) });
        let node = world.add_node(&format!("host{number}"), nic, Latency::default(), MemoryConfig::default());
        world.connect(node, switch, LinkConfig::gigabits(100)).expect("a free port");
        Device::open(world.hal(node), device_config(plan)).expect("a device")
    });
    // Gives the subnet manager time.
    world.run_until(world.now() + bareverbs_prm::time::Duration::from_secs(3));
    let [client, server] = devices;
    check_partition(&client, plan).map_err(Failure::Input)?;
    measure(plan, path_mtu(&client, plan)?, &client, &server)
}

fn seat<H: Hal>(device: &Device<H>) -> Result<Seat> {
    if device.capabilities().port_type != PortType::Ethernet {
        return Ok(Seat::in_world(Vec::new()));
    }
    let rows = fill_table(device, &[])?.map_err(|error| anyhow!("{error}"))?;
    Ok(Seat::in_world(rows.into_iter().map(|(entry, _)| entry).collect()))
}

fn measure<H: Hal>(
    plan: &TestPlan,
    mtu: PathMtu,
    client: &Device<H>,
    server: &Device<H>,
) -> Result<PerfOutcome, Failure> {
    let plan = &plan.for_mtu(bytes_of(mtu)).map_err(Failure::Input)?;
    let seats = [seat(client)?, seat(server)?];
    let ends = connected(plan, mtu, &seats, [client, server]);
    let (mut left, mut right) = ends.map_err(Failure::Input)?;
    data::fill(plan, true, &left)?;
    data::fill(plan, false, &right)?;
    let mut rows = Vec::new();
    for &size in &plan.sizes {
        rows.push(one_size(plan, &seats[0], size, &mut left, &mut right)?);
        data::restore(plan, size, true, &left)?;
        data::restore(plan, size, false, &right)?;
    }
    let [mut found, other] = [data::check(plan, true, &left)?, data::check(plan, false, &right)?];
    found.compared += other.compared;
    found.wrong += other.wrong;
    Ok(PerfOutcome {
        plan: plan.clone(),
        role: None,
        rows,
        mtu: bytes_of(mtu),
        gid_index: left.gid_index(),
        on_ethernet: !seats[0].gids.is_empty(),
        own: left.own.clone(),
        peers: left.peers.clone(),
        peer_version: None,
        counters: sum(left.counters()?, right.counters()?),
        busy_percent: None,
        data: Some(found),
    })
}

/// The two ends, the client's first.
fn connected<'d, H: Hal>(
    plan: &TestPlan,
    mtu: PathMtu,
    seats: &[Seat; 2],
    [client, server]: [&'d Device<H>; 2],
) -> Result<(Bench<'d, H>, Bench<'d, H>)> {
    let mut left = Bench::set_up(client, &seats[0], plan, true)?;
    let mut right = Bench::set_up(server, &seats[1], plan, false)?;
    (left.peers, right.peers) = (right.own.clone(), left.own.clone());
    left.connect(&seats[0], plan, mtu)?;
    right.connect(&seats[1], plan, mtu)?;
    Ok((left, right))
}

/// The sum of both ends' counters.
fn sum(left: Option<Readings>, right: Option<Readings>) -> Option<Readings> {
    let (mut sum, right) = (left?, right?);
    for (name, value) in right {
        *sum.entry(name).or_default() += value;
    }
    Some(sum)
}

fn one_size<H: Hal>(
    plan: &TestPlan,
    seat: &Seat,
    size: u32,
    left: &mut Bench<'_, H>,
    right: &mut Bench<'_, H>,
) -> Result<SizeRow> {
    // The server is ready first.
    if plan.measure == Measure::Latency {
        let mut server = Turns::prepare(plan, size, false, right)?;
        let mut client = Turns::prepare(plan, size, true, left)?;
        let client_side = Side { bench: left, traffic: &mut client };
        drive_both(plan, seat, client_side, Side { bench: right, traffic: &mut server })?;
        return Ok(SizeRow::Latency(Box::new(client.finish())));
    }
    if let Some(warm_up) = plan.of_warm_up() {
        let mut server = Stream::prepare(&warm_up, size, false, right)?;
        let mut client = Stream::prepare(&warm_up, size, true, left)?;
        let client_side = Side { bench: left, traffic: &mut client };
        drive_both(&warm_up, seat, client_side, Side { bench: right, traffic: &mut server })?;
    }
    let mut server = Stream::prepare(plan, size, false, right)?;
    let mut client = Stream::prepare(plan, size, true, left)?;
    let client_side = Side { bench: left, traffic: &mut client };
    drive_both(plan, seat, client_side, Side { bench: right, traffic: &mut server })?;
    // An unacknowledged send completes when it has left.
    let only_server_knows = plan.takes_receives() && matches!(plan.transport, Transport::Uc | Transport::Ud);
    Ok(match plan.bidirectional {
        true => SizeRow::both_directions(client.finish(), server.finish()),
        false if only_server_knows => SizeRow::bandwidth(server.finish()),
        false => SizeRow::bandwidth(client.finish()),
    })
}
