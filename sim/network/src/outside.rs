//! Neighbours outside the network, looked up through the bridge.

use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::time::{Duration, Time};
use bareverbs_serve::network::{Greeting, NeighbourRequest, NetworkDirectory, receive_status};
use bareverbs_sim::nic::LinkLayer;
use bareverbs_uverbs::VirtualHost;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Lifetime of a positive answer, then of a negative one.
const KNOWN_FOR: Duration = Duration::from_secs(5);
const UNKNOWN_FOR: Duration = Duration::from_millis(200);
/// Longest wait for the bridge.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(2);
const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
/// Most cached addresses; programs use few.
const MOST: usize = 1024;

/// The bridge's answer about a neighbour, as a line of text.
pub(crate) fn answer_line(mac: Option<MacAddress>) -> String {
    mac.map_or_else(|| "nobody\n".to_owned(), |mac| format!("mac {mac}\n"))
}

fn parse_answer(line: &str) -> Option<MacAddress> {
    let mut bytes = [0; 6];
    let mut parts = line.trim().strip_prefix("mac ")?.split(':');
    for byte in &mut bytes {
        *byte = u8::from_str_radix(parts.next()?, 16).ok()?;
    }
    Some(MacAddress(bytes)).filter(|_| parts.next().is_none())
}

#[derive(Debug)]
enum Lookup {
    Asked { connection: OwnedFd, since: Instant },
    Answered { mac: Option<MacAddress>, until: Time },
}

/// A host's neighbours outside its network; see the module.
#[derive(Debug)]
pub struct OutsideNeighbours {
    network: NetworkDirectory,
    mac: MacAddress,
    gids: Vec<Gid>,
    lookups: BTreeMap<Gid, Lookup>,
}

impl OutsideNeighbours {
    /// Starts with an empty cache.
    pub fn new(network: NetworkDirectory, host: &VirtualHost) -> Self {
        Self { network, mac: host.mac(), gids: host.gids(), lookups: BTreeMap::new() }
    }

    /// MAC address of the owner of a GID, if it is known by now. The first call starts the lookup, later ones check for
    /// the answer.
    pub fn look_up(&mut self, now: Time, gid: Gid) -> Option<MacAddress> {
        let lookup = match self.lookups.remove(&gid) {
            Some(Lookup::Asked { connection, since }) => read_answer(now, connection, since),
            Some(Lookup::Answered { mac, until }) if now < until => Lookup::Answered { mac, until },
            _ => self.ask(now, gid),
        };
        let found = match &lookup {
            Lookup::Answered { mac, .. } => *mac,
            Lookup::Asked { .. } => None,
        };
        if self.lookups.len() >= MOST {
            self.lookups.clear();
        }
        self.lookups.insert(gid, lookup);
        found
    }

    /// Whether the request for a GID is under way.
    pub fn is_asking(&self, gid: Gid) -> bool {
        matches!(self.lookups.get(&gid), Some(Lookup::Asked { .. }))
    }

    /// Like [`Self::look_up`], but waits for the answer: for a tool that has nothing else to do.
    pub fn resolve(&mut self, now: Time, gid: Gid) -> Option<MacAddress> {
        let mut found = self.look_up(now, gid);
        while found.is_none() && self.is_asking(gid) {
            std::thread::sleep(PAUSE);
            found = self.look_up(now, gid);
        }
        found
    }

    fn ask(&self, now: Time, wanted: Gid) -> Lookup {
        let of_family = |gid: &&Gid| gid.to_ipv4().is_some() == wanted.to_ipv4().is_some();
        // The last one: in IPv6 the configured address follows the link-local one.
        let asker = self.gids.iter().rfind(of_family).copied();
        let request = asker.map(|asker| NeighbourRequest { wanted, asker_mac: self.mac, asker });
        let asked = request.and_then(|request| {
            let connection = self.network.connect_outside(LinkLayer::Ethernet).ok()?;
            Greeting::Neighbour(request).send(&connection, None).ok()?;
            Some(Lookup::Asked { connection, since: Instant::now() })
        });
        asked.unwrap_or(Lookup::Answered { mac: None, until: now + UNKNOWN_FOR })
    }
}

fn read_answer(now: Time, connection: OwnedFd, since: Instant) -> Lookup {
    match receive_status(&connection) {
        Err(error) if error.kind() == ErrorKind::WouldBlock && since.elapsed() < LIMIT => {
            Lookup::Asked { connection, since }
        }
        answer => {
            let mac = answer.ok().and_then(|line| parse_answer(&line));
            let good_for = if mac.is_some() { KNOWN_FOR } else { UNKNOWN_FOR };
            Lookup::Answered { mac, until: now + good_for }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_line_is_read_back() {
        let mac = MacAddress([2, 0xc9, 0, 1, 0xfe, 0xff]);
        assert_eq!(parse_answer(&answer_line(Some(mac))), Some(mac));
        for line in
            [answer_line(None).as_str(), "", "mac ", "mac 1:2:3:4:5", "mac 1:2:3:4:5:6:7", "mac 1:2:3:4:5:x"]
        {
            assert_eq!(parse_answer(line), None, "{line:?}");
        }
    }

    #[test]
    fn without_a_bridge_outside_addresses_do_not_resolve() {
        let directory = tempfile::tempdir().unwrap();
        let network = NetworkDirectory::create(directory.path()).unwrap();
        let mut outside = OutsideNeighbours::new(network, &VirtualHost::new("a").unwrap());
        assert_eq!(outside.resolve(Time::ZERO, Gid::from_ipv4([10, 0, 0, 1])), None);
    }
}
