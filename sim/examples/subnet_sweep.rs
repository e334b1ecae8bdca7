//! What it costs to bring up an InfiniBand subnet of a thousand ports in virtual time: steps of the world, packets, processor time.
//!
//! `cargo run --release -p bareverbs-sim --example subnet_sweep [leaves [hosts at each [spines]]]`

use bareverbs_prm::ids::MacAddress;
use bareverbs_prm::time::{Duration, Time};
use bareverbs_sim::net::{LinkConfig, SubnetConfig, SubnetSwitchConfig, SwitchConfig};
use bareverbs_sim::nic::{DmaFault, HostMemory, Nic, NicConfig, SubnetMembership};
use bareverbs_sim::run::{Latency, Step, SwitchId, TopologyError, World};
use std::error::Error;
use std::time::Instant;

const LINK: LinkConfig = LinkConfig::gigabits(100);

/// Hosts that no driver has touched: their devices have no memory to reach.
struct NoMemory;

impl HostMemory for NoMemory {
    fn read(&mut self, iova: u64, buffer: &mut [u8]) -> Result<(), DmaFault> {
        Err(DmaFault { iova, length: buffer.len(), write: false })
    }
    fn write(&mut self, iova: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        Err(DmaFault { iova, length: bytes.len(), write: true })
    }
}

struct FatTree {
    world: World<NoMemory, Nic>,
    manager: SwitchId,
}

/// Every leaf has a cable to every spine; the manager is in the first leaf.
fn fat_tree(leaves: u64, hosts: u64, spines: u64) -> Result<FatTree, TopologyError> {
    let (mut world, config) = (World::new(1), SwitchConfig::default());
    let further = |guid| SubnetSwitchConfig { guid, ports: 254, description: format!("switch {guid:x}") };
    let manager = world.add_subnet("leaf 0", config, SubnetConfig::default());
    let mut below = vec![manager];
    for leaf in 1..leaves {
        below.push(world.add_subnet_switch(&format!("leaf {leaf}"), config, &further(0x1000 + leaf)));
    }
    for spine in 0..spines {
        let switch = world.add_subnet_switch(&format!("spine {spine}"), config, &further(0x2000 + spine));
        below.iter().try_for_each(|leaf| world.connect(*leaf, switch, LINK).map(|_| ()))?;
    }
    for host in 0..leaves * hosts {
        let [.., a, b, c] = host.to_be_bytes();
        let mac = MacAddress([2, 0, 0, a, b, c]);
        let nic = Nic::new(NicConfig { subnet: SubnetMembership::Managed, ..NicConfig::infiniband(mac) });
        let node = world.add_node(&format!("host {host}"), nic, NoMemory, Latency::default());
        world.connect(node, below[(host / hosts) as usize], LINK)?;
    }
    Ok(FatTree { world, manager })
}

impl FatTree {
    /// Steps until `done`; how many there were, and prints what they took.
    fn measure(&mut self, what: &str, mut done: impl FnMut(&FatTree) -> bool) {
        let (begun, from, before) = (Instant::now(), self.world.now(), self.packets());
        let mut steps = 0_u64;
        while !done(self) && self.world.step() == Step::Progress {
            steps += 1;
        }
        let (virtual_time, packets) =
            (self.world.now().as_nanos() - from.as_nanos(), self.packets() - before);
        let taken = begun.elapsed();
        println!("{what}: {packets} packets of the manager, {steps} steps, {virtual_time} ns sim, {taken:?}");
    }

    /// Management packets that the manager's switch has sent and taken.
    fn packets(&self) -> u64 {
        self.world.switch_counters(self.manager).map_or(0, |counters| counters.managed)
    }

    fn active(&self) -> usize {
        self.world.subnet_members(self.manager).filter(|member| member.is_active).count()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|number| number.parse::<u64>());
    let mut next = |default| numbers.next().unwrap_or(Ok(default));
    let (leaves, hosts, spines) = (next(32)?, next(32)?, next(16)?);
    let mut tree = fat_tree(leaves, hosts, spines)?;
    let ports = (leaves * hosts) as usize;
    println!("{ports} hosts, {} switches, {} cables between them", leaves + spines, leaves * spines);
    let mut steps = 0_u64;
    tree.measure("all ports active", |tree| {
        // Members are counted now and then only: that would be most of what is measured.
        steps += 1;
        steps.is_multiple_of(1024) && tree.active() == ports
    });
    tree.measure("settled, tables written", |_| false);
    let end = tree.world.now() + Duration::from_millis(500);
    let begun = Instant::now();
    let before = tree.packets();
    tree.world.run_until(end.max(Time::ZERO));
    println!(
        "a sweep in which nothing has changed: {} packets, {:?}",
        tree.packets() - before,
        begun.elapsed()
    );
    Ok(())
}
