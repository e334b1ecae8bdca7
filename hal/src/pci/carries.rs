//! What a function does for the running system: unbinding its driver could cut the machine off the network or from its
//! root file system.

use super::Tree;
use super::function::{Function, names};
use core::fmt;
use std::collections::BTreeSet;

/// Why the system needs a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemUse {
    /// The default route uses this interface.
    DefaultRoute {
        /// The interface.
        interface: String,
    },
    /// The root file system is mounted over the network, and this interface is up.
    NetworkRoot {
        /// The interface.
        interface: String,
        /// Type of the file system.
        kind: String,
    },
    /// The root file system is on a block device of this function.
    RootDisk {
        /// The block device.
        device: String,
    },
}

impl fmt::Display for SystemUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DefaultRoute { interface } => {
                write!(f, "the default route uses its interface {interface}")
            }
            Self::NetworkRoot { interface, kind } => {
                write!(
                    f,
                    "the root file system is mounted over the network ({kind}), and its interface {interface} is up"
                )
            }
            Self::RootDisk { device } => write!(f, "the root file system is on its block device {device}"),
        }
    }
}

/// File systems that access their data over a network.
const NETWORK_FILE_SYSTEMS: &[&str] = &["nfs", "nfs4", "cifs", "ceph", "smb3", "afs", "glusterfs"];

impl Tree {
    /// What the running system needs this function for.
    pub fn system_uses(&self, function: &Function) -> Vec<SystemUse> {
        let mut system_uses = Vec::new();
        let routes = self.default_route_interfaces();
        let (device, kind) = self.root_mount().unwrap_or_default();
        let network_root = NETWORK_FILE_SYSTEMS.contains(&kind.as_str());
        for interface in &function.interfaces {
            if self.with_uppers(interface).iter().any(|name| routes.contains(name)) {
                system_uses.push(SystemUse::DefaultRoute { interface: interface.clone() });
            }
            if network_root
                && self.read(format!("sys/class/net/{interface}/operstate")).as_deref() == Some("up")
            {
                system_uses.push(SystemUse::NetworkRoot { interface: interface.clone(), kind: kind.clone() });
            }
        }
        system_uses.extend(self.root_disk(function, &device));
        system_uses
    }

    fn root_disk(&self, function: &Function, device: &str) -> Option<SystemUse> {
        let name = device.strip_prefix("/dev/")?;
        let path = std::fs::canonicalize(self.path(format!("sys/class/block/{name}"))).ok()?;
        let address = function.address.to_string();
        let under = path.components().any(|part| part.as_os_str().to_str() == Some(&address));
        under.then(|| SystemUse::RootDisk { device: device.to_owned() })
    }

    /// An interface and those stacked on it: bonds, bridges, VLANs.
    fn with_uppers(&self, interface: &str) -> BTreeSet<String> {
        let (mut seen, mut open) = (BTreeSet::new(), vec![interface.to_owned()]);
        while let Some(name) = open.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            let entries = names(&self.path("sys/class/net").join(&name));
            open.extend(entries.iter().filter_map(|entry| entry.strip_prefix("upper_")).map(str::to_owned));
        }
        seen
    }

    fn default_route_interfaces(&self) -> BTreeSet<String> {
        let four = self.read("proc/net/route").unwrap_or_default();
        let four = four.lines().skip(1).filter_map(|line| {
            let mut words = line.split_whitespace();
            let (interface, destination) = (words.next()?, words.next()?);
            let mask = words.nth(5)?;
            (destination == "00000000" && mask == "00000000").then(|| interface.to_owned())
        });
        let six = self.read("proc/net/ipv6_route").unwrap_or_default();
        let six = six.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let default = words.first()?.bytes().all(|digit| digit == b'0') && *words.get(1)? == "00";
            default.then(|| words.last().map(|name| (*name).to_owned()))?
        });
        // Linux keeps an unreachable IPv6 default route on the loopback interface.
        four.chain(six).filter(|interface| interface != "lo").collect()
    }

    /// Device and type of the root file system.
    fn root_mount(&self) -> Option<(String, String)> {
        let mounts = self.read("proc/self/mounts").or_else(|| self.read("proc/mounts"))?;
        let line = mounts.lines().rfind(|line| line.split_whitespace().nth(1) == Some("/"))?;
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.nth(1)?.to_owned()))
    }
}
