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

/// The steps that depend on both addresses alone, in order.
const OF_ADDRESSES: [Step; 5] = [Step::Empty, Step::LinkLocal, Step::Family, Step::Version, Step::Vlan];

/// Whether packets between two addresses are possible, if a route leads from one to the other.
pub(in crate::doctor) fn suits(own: &GidFact, peer: &GidFact) -> bool {
    OF_ADDRESSES.iter().all(|step| passes(*step, own, peer))
}

/// Whether an address passes a step on its way to the peer's.
fn passes(step: Step, own: &GidFact, peer: &GidFact) -> bool {
    let is_ipv4 = |gid: &GidFact| gid.gid.to_ipv4_mapped().is_some();
    match step {
        Step::Empty => !own.gid.is_unspecified(),
        Step::LinkLocal => is_link_local(own.gid) == is_link_local(peer.gid),
        Step::Family => is_ipv4(own) == is_ipv4(peer),
        Step::Version => own.version == peer.version,
        Step::Vlan => own.vlan == peer.vlan,
        Step::Route | Step::Reached => true,
    }
}

/// Whether a route leads from an address to the peer's.
fn has_route(own: &GidFact, peer: &GidFact, facts: &Facts) -> bool {
    match own.prefix {
        Some(prefix) => facts.routed || shares_network(own, prefix, peer),
        None => no_way(facts, peer).is_none(),
    }
}

/// Why the kernel finds no way to an address of the peer.
fn no_way<'a>(facts: &'a Facts, peer: &GidFact) -> Option<&'a str> {
    facts.no_way.iter().find(|(gid, _)| *gid == peer.gid).map(|(_, why)| why.as_str())
}

fn shares_network(own: &GidFact, prefix: u8, peer: &GidFact) -> bool {
    let skipped = if own.gid.to_ipv4_mapped().is_some() { 96 } else { 0 };
    (own.gid.to_bits() ^ peer.gid.to_bits()).leading_zeros() >= skipped + u32::from(prefix)
}

/// How far our addresses get towards one of the peer's.
fn towards(own: &[GidFact], peer: &GidFact, facts: &Facts) -> Step {
    let mut left: Vec<&GidFact> = own.iter().collect();
    for step in OF_ADDRESSES {
        left.retain(|gid| passes(step, gid, peer));
        if left.is_empty() {
            return step;
        }
    }
    if left.iter().any(|gid| has_route(gid, peer, facts)) { Step::Reached } else { Step::Route }
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
    let ways = peers.map(|gid| (towards(&own.gids, gid, facts), gid));
    // The first among equals.
    let furthest = ways.reduce(|best, next| if next.0 > best.0 { next } else { best });
    let (step, peer) = furthest.ok_or("no GID of the peer is known")?;
    Ok(Way { own: &own.gids, peer, step })
}

fn at(step: Step, facts: &Facts, found: impl FnOnce(&Way<'_>) -> Found) -> Outcome {
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
            "give both ends an IP address in one network",
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
                "use a GID index of RoCEv{} here (bareverbs gids), or one of the other version at the peer",
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
        if let Some(why) = no_way(facts, way.peer) {
            return bad(
                format!("the kernel finds no route to the peer {}: {why}", way.peer.ip()),
                "add a route to the peer at both ends, and make sure that the peer answers `ping` from the interface of the port",
            );
        }
        let most = |gid: &GidFact| if gid.gid.to_ipv4_mapped().is_some() { 32 } else { 128 };
        let network =
            |gid: &GidFact| gid.prefix.map_or(String::new(), |bits| format!("/{}", bits.min(most(gid))));
        let own = addresses(way.own, |gid| format!("{}{}", gid.ip(), network(gid)));
        bad(
            format!("the peer {} is in no network of this port: {own}", way.peer.ip()),
            "--routed if a router forwards between them (RoCEv2); otherwise give both an address in one network",
        )
    })
}
