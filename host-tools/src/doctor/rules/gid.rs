//! Which of our addresses reaches the peer, and at which step the last one fails.

use super::finding::{Found, Outcome, bad};
use crate::doctor::facts::{EndFacts, Facts, GidFact, LinkLayer, is_link_local};

/// Where the path to the peer ends: the first of these steps that none of our addresses passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Empty,
    LinkLocal,
    Family,
    Version,
    Vlan,
    Route,
    /// Some address passes all steps.
    Reached,
}

/// Whether an address passes a step on its way to the peer's.
fn passes(step: Step, own: &GidFact, peer: &GidFact, routed: bool) -> bool {
    let is_ipv4 = |gid: &GidFact| gid.gid.to_ipv4_mapped().is_some();
    match step {
        Step::Empty => !own.gid.is_unspecified(),
        Step::LinkLocal => is_link_local(own.gid) == is_link_local(peer.gid),
        Step::Family => is_ipv4(own) == is_ipv4(peer),
        Step::Version => own.version == peer.version,
        Step::Vlan => own.vlan == peer.vlan,
        Step::Route => routed || shares_network(own, peer),
        Step::Reached => true,
    }
}

fn shares_network(own: &GidFact, peer: &GidFact) -> bool {
    let skipped = if own.gid.to_ipv4_mapped().is_some() { 96 } else { 0 };
    (own.gid.to_bits() ^ peer.gid.to_bits()).leading_zeros() >= skipped + u32::from(own.prefix)
}

/// How far our addresses get towards one of the peer's.
fn towards(own: &[GidFact], peer: &GidFact, routed: bool) -> Step {
    let mut left: Vec<&GidFact> = own.iter().collect();
    for step in [Step::Empty, Step::LinkLocal, Step::Family, Step::Version, Step::Vlan, Step::Route] {
        left.retain(|gid| passes(step, gid, peer, routed));
        if left.is_empty() {
            return step;
        }
    }
    Step::Reached
}

/// Both ends of a RoCE connection, how far it gets, and the peer's address that gets furthest.
struct Way<'a> {
    own: &'a [GidFact],
    peer: &'a GidFact,
    step: Step,
}

/// An address that reaches beyond its link takes precedence over those that do not.
fn way(facts: &Facts) -> Result<Way<'_>, &'static str> {
    let own = facts.port().ok_or("the device was not opened")?;
    let peer = facts.peer.as_ref().ok_or("--peer names the other end")?;
    let layers = [own, peer].map(|end: &EndFacts| end.port.as_ref().map(|port| port.link_layer));
    if layers.contains(&Some(LinkLayer::InfiniBand)) {
        return Err("GIDs of InfiniBand follow from the subnet");
    }
    let beyond = peer.gids.iter().any(|gid| !is_link_local(gid.gid));
    let peers = peer.gids.iter().filter(|gid| !beyond || !is_link_local(gid.gid));
    let ways = peers.map(|gid| (towards(&own.gids, gid, facts.routed), gid));
    // The first among equals.
    let furthest = ways.reduce(|best, next| if next.0 > best.0 { next } else { best });
    let (step, peer) = furthest.ok_or("no GID of the peer is known")?;
    Ok(Way { own: &own.gids, peer, step })
}

fn at(step: Step, facts: &Facts, found: fn(&Way<'_>) -> Found) -> Outcome {
    match way(facts) {
        Err(why) => Outcome::NotAsked(why),
        Ok(way) => Outcome::of((way.step == step).then(|| found(&way))),
    }
}

/// Our addresses, each once.
fn addresses(own: &[GidFact], show: impl Fn(&GidFact) -> String) -> String {
    let mut texts: Vec<String> = Vec::new();
    for text in own.iter().map(show) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

fn ips(own: &[GidFact]) -> String {
    addresses(own, |gid| gid.ip().to_string())
}

pub(super) fn empty(facts: &Facts) -> Outcome {
    at(Step::Empty, facts, |_| {
        bad(
            "the RoCE address table of the port is empty",
            "give the port an address: --address IP/BITS here, ip address add for the kernel's interface",
        )
    })
}

pub(super) fn link_local(facts: &Facts) -> Outcome {
    at(Step::LinkLocal, facts, |way| {
        bad(
            format!(
                "the peer is {} and the addresses of this port are {}: a link-local address on one side only",
                way.peer.ip(),
                ips(way.own)
            ),
            "give both ends an IP address of one network",
        )
    })
}

pub(super) fn family(facts: &Facts) -> Outcome {
    at(Step::Family, facts, |way| {
        let [family, other] =
            if way.peer.gid.to_ipv4_mapped().is_some() { ["IPv4", "IPv6"] } else { ["IPv6", "IPv4"] };
        bad(
            format!(
                "the peer is {} ({family}), and the addresses of this port are {}: {other} only",
                way.peer.ip(),
                ips(way.own)
            ),
            format!("give this port an {family} address, or the peer an {other} one"),
        )
    })
}

pub(super) fn version(facts: &Facts) -> Outcome {
    at(Step::Version, facts, |way| {
        let own = addresses(way.own, |gid| format!("{} v{}", gid.ip(), gid.version));
        bad(
            format!(
                "the peer {} speaks RoCEv{}, and the entries of this port are {own}",
                way.peer.ip(),
                way.peer.version
            ),
            format!(
                "take a GID index of RoCEv{} here (bareverbs gids), or one of the other version at the peer",
                way.peer.version
            ),
        )
    })
}

pub(super) fn vlan(facts: &Facts) -> Outcome {
    at(Step::Vlan, facts, |way| {
        let tag = |vlan: Option<u16>| vlan.map_or("no VLAN".to_owned(), |vlan| format!("VLAN {vlan}"));
        let own = addresses(way.own, |gid| format!("{} in {}", gid.ip(), tag(gid.vlan)));
        bad(
            format!("the peer {} is in {}, and this port has {own}", way.peer.ip(), tag(way.peer.vlan)),
            format!(
                "give this port an address in {}: ip link add link IF name IF.N type vlan id N; each VLAN has GID entries of its own",
                tag(way.peer.vlan)
            ),
        )
    })
}

pub(super) fn no_route(facts: &Facts) -> Outcome {
    at(Step::Route, facts, |way| {
        let bits =
            |gid: &GidFact| if gid.gid.to_ipv4_mapped().is_some() { gid.prefix.min(32) } else { gid.prefix };
        let own = addresses(way.own, |gid| format!("{}/{}", gid.ip(), bits(gid)));
        bad(
            format!("the peer {} is in no network of this port: {own}", way.peer.ip()),
            "--routed if a router forwards between them (RoCEv2); otherwise give both an address of one network",
        )
    })
}
