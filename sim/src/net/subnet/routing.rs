//! Routing through the switches of a subnet: shortest up*/down* paths for unicast, and one tree for all multicast
//! groups.
//!
//! Switches are ranked. First come the roots, which have the smallest total distance to all end ports, then
//! the others by distance from the roots. A path may go up (to an earlier switch) only before it has gone
//! down. So packets cannot form a cycle in which each waits for another's credits, and there is no deadlock.
//! Among equally short paths, the one with the fewest LIDs wins.
//!
//! With several roots, such as the spines of a fat tree, link failures can leave a pair of end ports without such a
//! path. Then a single root is used, from which every switch has a path to every other. A path from one root to
//! another, which no traffic between end ports uses, need not exist; OpenSM behaves the same.

use std::collections::VecDeque;

/// A link between switches: own port, index of the other switch, its port.
pub(super) type Cable = (u8, usize, u8);
/// Links of each switch. Every link is listed at both ends.
pub(super) type Cables = Vec<Vec<Cable>>;

/// LIDs and location of one end port.
#[derive(Debug, Clone, Copy)]
pub(super) struct RoutedPort {
    pub(super) switch: usize,
    /// 0 for the switch itself.
    pub(super) port: u8,
    pub(super) lid: u16,
    pub(super) lids: u16,
    /// Whether other ports must reach it: true for all but switches that only forward.
    pub(super) is_end: bool,
}

/// Egress port of each switch for a LID; `None` where there is no path.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LidRoute {
    pub(super) lid: u16,
    pub(super) ports: Vec<Option<u8>>,
}

/// The multicast tree.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Switches from the root, each with its link towards the root.
    order: Vec<(usize, Option<Cable>)>,
}

/// Unicast routes and multicast tree of a subnet.
#[derive(Debug, Default)]
pub(super) struct Routes {
    pub(super) lid_routes: Vec<LidRoute>,
    pub(super) tree: Tree,
}

impl Routes {
    pub(super) fn new(cables: &Cables, destinations: &[RoutedPort]) -> Self {
        let ends = ends_by_switch(cables.len(), destinations);
        let roots = roots(cables, &ends);
        let mut order = Order::new(cables, &roots);
        if !order.joins_all(cables, &ends) {
            order = Order::new(cables, &roots[..roots.len().min(1)]);
        }
        let mut loads: Vec<[u32; 256]> = vec![[0; 256]; cables.len()];
        let mut lid_routes = Vec::new();
        let mut choices: Vec<Option<Vec<Vec<u8>>>> = vec![None; cables.len()];
        for destination in destinations {
            let here =
                choices[destination.switch].get_or_insert_with(|| order.exits(cables, destination.switch));
            for lid in destination.lid..destination.lid.saturating_add(destination.lids) {
                lid_routes.push(lid_route(lid, destination, here, &mut loads));
            }
        }
        let root = roots.first().copied();
        Self { lid_routes, tree: root.map_or_else(Tree::default, |root| Tree::new(cables, root)) }
    }
}

/// Chooses the route of one LID among the candidate egress ports of each switch.
fn lid_route(lid: u16, to: &RoutedPort, exits: &[Vec<u8>], loads: &mut [[u32; 256]]) -> LidRoute {
    let ports = exits.iter().zip(loads).enumerate().map(|(switch, (exits, load))| {
        if switch == to.switch {
            return Some(to.port);
        }
        let port = exits.iter().copied().min_by_key(|port| load[usize::from(*port)])?;
        load[usize::from(port)] += u32::from(to.is_end);
        Some(port)
    });
    LidRoute { lid, ports: ports.collect() }
}

/// Number of end ports at each switch.
fn ends_by_switch(switches: usize, destinations: &[RoutedPort]) -> Vec<u64> {
    let mut ends = vec![0; switches];
    for destination in destinations.iter().filter(|destination| destination.is_end) {
        ends[destination.switch] += 1;
    }
    ends
}

/// The switches with the smallest total distance to all end ports.
fn roots(cables: &Cables, ends: &[u64]) -> Vec<usize> {
    let far = |root| -> u64 {
        let distances = distances(cables, &[root]);
        distances.iter().zip(ends).map(|(distance, ends)| ends * distance.map_or(0, u64::from)).sum()
    };
    let sums: Vec<u64> = (0..cables.len()).map(far).collect();
    let least = sums.iter().min().copied();
    (0..cables.len()).filter(|switch| Some(sums[*switch]) == least).collect()
}

/// Hops from the nearest of `from` to each switch; `None` where unreachable.
fn distances(cables: &Cables, from: &[usize]) -> Vec<Option<u32>> {
    let mut distances = vec![None; cables.len()];
    from.iter().for_each(|switch| distances[*switch] = Some(0));
    let mut queue: VecDeque<usize> = from.iter().copied().collect();
    while let Some(switch) = queue.pop_front() {
        for (_, neighbour, _) in &cables[switch] {
            if distances[*neighbour].is_none() {
                distances[*neighbour] = distances[switch].map(|distance: u32| distance + 1);
                queue.push_back(*neighbour);
            }
        }
    }
    distances
}

/// Ranking of the switches, which defines what is up.
struct Order {
    /// Rank of each switch.
    ranks: Vec<usize>,
    /// Switches by their ranks.
    switches: Vec<usize>,
}

impl Order {
    fn new(cables: &Cables, roots: &[usize]) -> Self {
        let distances = distances(cables, roots);
        let mut switches: Vec<usize> = (0..cables.len()).collect();
        switches.sort_by_key(|switch| (distances[*switch].unwrap_or(u32::MAX), *switch));
        let mut ranks = vec![0; cables.len()];
        switches.iter().enumerate().for_each(|(rank, switch)| ranks[*switch] = rank);
        Self { ranks, switches }
    }

    /// Whether each switch with end ports has a path to every other such switch.
    fn joins_all(&self, cables: &Cables, ends: &[u64]) -> bool {
        let with_ends = || (0..cables.len()).filter(|switch| ends[*switch] > 0);
        with_ends().all(|to| {
            let (down, all) = self.lengths(cables, to);
            with_ends().all(|from| down[from].or(all[from]).is_some())
        })
    }

    /// For each switch, the length of the shortest path to `to` that only goes down and, where there is none, of the
    /// shortest that goes up first.
    fn lengths(&self, cables: &Cables, to: usize) -> (Vec<Option<u32>>, Vec<Option<u32>>) {
        let mut down = vec![None; cables.len()];
        down[to] = Some(0);
        let mut queue = VecDeque::from([to]);
        while let Some(switch) = queue.pop_front() {
            for (_, above, _) in &cables[switch] {
                if self.ranks[*above] < self.ranks[switch] && down[*above].is_none() {
                    down[*above] = down[switch].map(|length: u32| length + 1);
                    queue.push_back(*above);
                }
            }
        }
        let mut all = down.clone();
        for switch in &self.switches {
            if all[*switch].is_none() {
                let above =
                    cables[*switch].iter().filter(|(_, above, _)| self.ranks[*above] < self.ranks[*switch]);
                all[*switch] = above.filter_map(|(_, above, _)| all[*above]).min().map(|length| length + 1);
            }
        }
        (down, all)
    }

    /// For each switch, the ports that start a shortest path to `to`. A switch that can go down does, because the
    /// packet may already have come down.
    fn exits(&self, cables: &Cables, to: usize) -> Vec<Vec<u8>> {
        let (down, all) = self.lengths(cables, to);
        let exits = |switch: usize| -> Vec<u8> {
            let (goes_down, own) = (down[switch].is_some(), self.ranks[switch]);
            let leads = |(_, next, _): &&Cable| {
                let length = if goes_down { down[*next] } else { all[*next] };
                (self.ranks[*next] > own) == goes_down
                    && length.is_some_and(|length| Some(length + 1) == all[switch])
            };
            cables[switch].iter().filter(leads).map(|(port, _, _)| *port).collect()
        };
        (0..cables.len()).map(exits).collect()
    }
}

impl Tree {
    /// The tree of shortest paths from a root.
    fn new(cables: &Cables, root: usize) -> Self {
        let mut reached = vec![false; cables.len()];
        reached[root] = true;
        let mut order = vec![(root, None)];
        let mut next = 0;
        while let Some((switch, _)) = order.get(next).copied() {
            next += 1;
            for (port, below, port_below) in &cables[switch] {
                if !core::mem::replace(&mut reached[*below], true) {
                    order.push((*below, Some((*port_below, switch, *port))));
                }
            }
        }
        Self { order }
    }

    /// For each switch, the ports towards other switches on which a group with members at these switches is forwarded.
    /// Branches without members are pruned.
    pub(super) fn branches(&self, members: &[usize]) -> Vec<(usize, u8)> {
        let mut below: Vec<usize> = vec![0; self.order.len()];
        let mut counts = vec![0; self.order.iter().map(|(switch, _)| switch + 1).max().unwrap_or(0)];
        for member in members {
            if let Some(count) = counts.get_mut(*member) {
                *count = 1;
            }
        }
        let total: usize = counts.iter().sum();
        let mut branches = Vec::new();
        for (at, (switch, cable)) in self.order.iter().enumerate().rev() {
            below[at] = counts[*switch];
            if let Some((port, above, port_above)) = *cable {
                counts[above] += counts[*switch];
                if below[at] > 0 && below[at] < total {
                    branches.extend([(*switch, port), (above, port_above)]);
                }
            }
        }
        branches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Links between pairs of switches, on the next free ports.
    fn cables(switches: usize, pairs: &[(usize, usize)]) -> Cables {
        let mut cables: Cables = vec![Vec::new(); switches];
        let mut next = vec![10_u8; switches];
        for (one, other) in pairs.iter().filter(|(one, other)| one != other) {
            let ports = (next[*one], next[*other]);
            next[*one] += 1;
            next[*other] += 1;
            cables[*one].push((ports.0, *other, ports.1));
            cables[*other].push((ports.1, *one, ports.0));
        }
        cables
    }

    /// One end port at each of these switches, with LIDs from 1.
    fn ends(switches: impl IntoIterator<Item = usize>) -> Vec<RoutedPort> {
        let end = |(lid, switch)| RoutedPort { switch, port: 1, lid, lids: 1, is_end: true };
        (1..).zip(switches).map(end).collect()
    }

    /// The switches that a packet passes.
    fn pass(cables: &Cables, way: &LidRoute, from: usize) -> Option<Vec<usize>> {
        let mut passed = vec![from];
        loop {
            let at = *passed.last()?;
            let port = way.ports[at]?;
            let Some((_, next, _)) = cables[at].iter().find(|cable| cable.0 == port) else {
                return Some(passed);
            };
            assert!(passed.len() <= cables.len(), "a cycle: {passed:?}");
            passed.push(*next);
        }
    }

    /// Whether the channel dependency graph is acyclic; a link depends on the next link of a path.
    fn is_free_of_circles(ways: &[Vec<usize>]) -> bool {
        let mut waits: BTreeSet<((usize, usize), (usize, usize))> = BTreeSet::new();
        for way in ways {
            waits.extend(way.windows(3).map(|hops| ((hops[0], hops[1]), (hops[1], hops[2]))));
        }
        loop {
            let before = waits.len();
            let waiting: BTreeSet<_> = waits.iter().map(|(first, _)| *first).collect();
            waits.retain(|(_, second)| waiting.contains(second));
            if waits.is_empty() || waits.len() == before {
                return waits.is_empty();
            }
        }
    }

    /// A fat tree of two spines (0 and 1) and four leaves: all paths have at most two hops, and both spines carry the
    /// same number.
    #[test]
    fn a_fat_tree_uses_both_spines() {
        let pairs: Vec<_> = (2..6).flat_map(|leaf| [(0, leaf), (1, leaf)]).collect();
        let cables = cables(6, &pairs);
        let destinations = ends((2..6).flat_map(|leaf| [leaf, leaf]));
        let routes = Routes::new(&cables, &destinations);
        let mut spines = [0; 2];
        for way in &routes.lid_routes {
            for leaf in 2..6 {
                let passed = pass(&cables, way, leaf).expect("a way");
                let target = destinations[usize::from(way.lid) - 1].switch;
                assert_eq!(passed.len(), if leaf == target { 1 } else { 3 });
                passed.iter().filter(|switch| **switch < 2).for_each(|spine| spines[*spine] += 1);
            }
        }
        assert_eq!(spines, [12, 12]);
    }

    /// Two leaves that have lost different spines reach each other through a third leaf.
    #[test]
    fn leaves_without_a_common_spine_reach_each_other() {
        let cables = cables(5, &[(0, 2), (1, 2), (0, 3), (1, 4)]);
        let routes = Routes::new(&cables, &ends([2, 3, 4]));
        assert_eq!(pass(&cables, &routes.lid_routes[2], 3), Some(vec![3, 0, 2, 1, 4]));
        assert_eq!(pass(&cables, &routes.lid_routes[1], 4), Some(vec![4, 1, 2, 0, 3]));
    }

    #[test]
    fn cables_between_two_switches_share_the_lids() {
        let cables = cables(2, &[(0, 1), (0, 1), (0, 1)]);
        let routes = Routes::new(&cables, &ends([1; 6]));
        let ports: Vec<_> = routes.lid_routes.iter().map(|way| way.ports[0]).collect();
        assert_eq!(ports, [10, 11, 12, 10, 11, 12].map(Some));
    }

    /// A group's tree contains no branch without members.
    #[test]
    fn a_group_is_forwarded_to_its_members_only() {
        let cables = cables(4, &[(0, 1), (0, 2), (0, 3), (1, 2)]);
        let tree = Tree::new(&cables, 0);
        let branches = |members: &[usize]| tree.branches(members).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(branches(&[1, 3]), [(0, 10), (1, 10), (0, 12), (3, 10)].into());
        assert_eq!((branches(&[2]), branches(&[])), (BTreeSet::new(), BTreeSet::new()));
    }

    proptest! {
        /// In any connected subnet, every end port reaches every other by a loop-free path, and the routes are
        /// deadlock-free.
        #[test]
        fn every_pair_has_a_way_and_nothing_locks(
            switches in 1_usize..14,
            parents in prop::collection::vec(any::<prop::sample::Index>(), 14),
            more in prop::collection::vec((0_usize..14, 0_usize..14), 0..20),
        ) {
            let tree = (1..switches).map(|switch| (switch, parents[switch].index(switch)));
            let more = more.iter().map(|(one, other)| (one % switches, other % switches));
            let cables = cables(switches, &tree.chain(more).collect::<Vec<_>>());
            let routes = Routes::new(&cables, &ends(0..switches));
            let mut ways = Vec::new();
            for way in &routes.lid_routes {
                for from in 0..switches {
                    let passed = pass(&cables, way, from).expect("a way");
                    prop_assert_eq!(*passed.last().unwrap(), usize::from(way.lid) - 1);
                    ways.push(passed);
                }
            }
            prop_assert!(is_free_of_circles(&ways));
            let members: Vec<usize> = (0..switches).collect();
            prop_assert_eq!(routes.tree.branches(&members).len(), 2 * (switches - 1));
        }
    }
}
