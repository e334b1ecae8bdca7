//! A network of processes on one machine: a directory in which virtual hosts and their processes find each other.
//!
//! **What this is.** `NETWORK/hosts/HOST/NUMBER` is the listening socket of a process. Its number within its host is the upper 8 bits of the
//! numbers of its queue pairs, so that a frame names the process that it is for: by its MAC address the host, by its queue
//! pair the process. Whoever has frames for a process connects to its socket and says so with a [`Greeting`].
//!
//! **What it may not do.** It carries no frames. Nothing in the directory has to be cleaned up: a process that was killed
//! leaves a socket that refuses connections, and the next one takes its number.

mod error;
mod greeting;
mod membership;
mod ports;
mod socket;
mod trouble;

pub use error::{MOST_PROCESSES, NetworkError};
pub use greeting::{
    Greeting, LONGEST_OBJECTS, NeighbourQuestion, ObjectQuestion, VERSION, answer_objects, answer_status,
    has_hung_up, receive_objects, receive_status,
};
pub use membership::Membership;
pub use ports::Ports;

use bareverbs_sim::nic::LinkLayer;
use rustix::net::SocketAddrUnix;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often it is looked whether a process has answered.
const PAUSE: Duration = Duration::from_millis(1);
/// Sockets of the processes that have the wires to the outside, one for each link layer.
const OUTSIDE: &str = "outside";
const OUTSIDE_INFINIBAND: &str = "outside-ib";
/// File of a host's settings, beside the sockets of its processes, whose names are numbers.
const SETTINGS: &str = "settings";
/// Longest name of a network.
const LONGEST_NAME: usize = 32;
/// Environment variables by which `bareverbs run` tells the library in the program what to do.
pub mod environment {
    /// Directory of the files that describe the device.
    pub const DIRECTORY: &str = "BAREVERBS_RUN_DIRECTORY";
    /// Name of the virtual host.
    pub const HOST: &str = "BAREVERBS_RUN_HOST";
    /// Directory of the network.
    pub const NETWORK: &str = "BAREVERBS_RUN_NETWORK";
    /// What goes wrong on the wire, as [`FaultScript`](crate::real_time::FaultScript) reads it.
    pub const FAULTS: &str = "BAREVERBS_RUN_FAULTS";
    /// From what the chances of faults are drawn.
    pub const SEED: &str = "BAREVERBS_RUN_SEED";
    /// Rate of the port in Gbit/s.
    pub const RATE: &str = "BAREVERBS_RUN_RATE";
    /// File of the capture.
    pub const CAPTURE: &str = "BAREVERBS_RUN_CAPTURE";
    /// Not empty if the capture has to hold what the device does, too.
    pub const RECORDS: &str = "BAREVERBS_RUN_RECORDS";
}

/// Whether this can be the name of a network: 1 to 32 letters, digits, hyphens, underscores or dots, and no dot first.
pub fn is_network_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=LONGEST_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(good)
}

/// The directory of a network.
///
/// ```
/// use bareverbs_serve::network::NetworkDirectory;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let run = tempfile::tempdir()?;
/// let network = NetworkDirectory::create(&run.path().join("lab"))?;
/// network.add_host("alice")?;
/// network.set_cable("alice", false)?;
/// let same = NetworkDirectory::open(network.path())?;
/// assert_eq!((same.hosts(), same.has_cable("alice")), (vec!["alice".to_owned()], false));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkDirectory {
    path: PathBuf,
}

impl NetworkDirectory {
    /// Makes the directory of a network, unless it is there.
    pub fn create(path: &Path) -> Result<Self, NetworkError> {
        let network = Self { path: path.to_owned() };
        fs::create_dir_all(network.hosts_path()).map_err(|error| network.trouble(error))?;
        let version = path.join("version");
        if !version.exists() {
            network.replace(version, &format!("{VERSION}\n")).map_err(|error| network.trouble(error))?;
        }
        network.checked()
    }

    /// A network that is there.
    pub fn open(path: &Path) -> Result<Self, NetworkError> {
        Self { path: path.to_owned() }.checked()
    }

    fn checked(self) -> Result<Self, NetworkError> {
        let found = fs::read_to_string(self.path.join("version")).map_err(|error| self.trouble(error))?;
        let found = found.trim();
        if found == VERSION.to_string() {
            return Ok(self);
        }
        Err(NetworkError::Version { path: self.path, found: found.to_owned() })
    }

    fn trouble(&self, error: io::Error) -> NetworkError {
        NetworkError::Directory(self.path.clone(), error)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn hosts_path(&self) -> PathBuf {
        self.path.join("hosts")
    }

    fn host_path(&self, host: &str) -> PathBuf {
        self.hosts_path().join(host)
    }

    fn socket_path(&self, host: &str, number: u8) -> PathBuf {
        self.host_path(host).join(number.to_string())
    }

    /// Makes a host known, whether or not a process of it has a device.
    pub fn add_host(&self, host: &str) -> Result<(), NetworkError> {
        let longest = self.socket_path(host, u8::MAX);
        if SocketAddrUnix::new(&longest).is_err() {
            return Err(NetworkError::TooLong(longest));
        }
        fs::create_dir_all(self.host_path(host)).map_err(|error| self.trouble(error))
    }

    /// What is set of a host, as text; empty if nothing is, or nobody knows it.
    pub fn settings(&self, host: &str) -> String {
        fs::read_to_string(self.host_path(host).join(SETTINGS)).unwrap_or_default()
    }

    /// Sets something else of a host that is known. Processes that run go on as they are.
    pub fn set_settings(&self, host: &str, text: &str) -> Result<(), NetworkError> {
        self.replace(self.host_path(host).join(SETTINGS), text).map_err(|error| self.trouble(error))
    }

    /// Whether a process of a host lives.
    pub fn has_process(&self, host: &str) -> bool {
        self.processes(host).into_iter().any(|number| self.is_alive(host, number))
    }

    /// Does something while no other process joins the network or does the same.
    pub fn locked<T>(&self, work: impl FnOnce() -> T) -> Result<T, NetworkError> {
        let lock = self.path.join("lock");
        let file = File::create(&lock).map_err(|error| NetworkError::Directory(lock.clone(), error))?;
        membership::hold(&file, &lock)?;
        Ok(work())
    }

    /// Whether a host of that name is known.
    pub fn has_host(&self, host: &str) -> bool {
        !host.is_empty() && !host.starts_with('.') && !host.contains('/') && self.host_path(host).is_dir()
    }

    /// Names of the hosts that are known, in order.
    pub fn hosts(&self) -> Vec<String> {
        names(&self.hosts_path())
    }

    /// Numbers of a host's processes, in order; some may have ended.
    pub fn processes(&self, host: &str) -> Vec<u8> {
        let mut numbers: Vec<u8> =
            names(&self.host_path(host)).iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Whether a process of this number lives.
    pub fn is_alive(&self, host: &str, number: u8) -> bool {
        membership::is_alive(&self.socket_path(host, number))
    }

    /// Connects to a process without waiting. `ConnectionRefused` or `NotFound`: there is none. `WouldBlock`: too many
    /// others connect to it at the moment.
    pub fn connect(&self, host: &str, number: u8) -> io::Result<OwnedFd> {
        socket::connect(&self.socket_path(host, number))
    }

    /// Asks a process how it is and waits so long for its answer. `WouldBlock`: it lives and does not answer; other errors:
    /// it has ended.
    pub fn ask(&self, host: &str, number: u8, timeout: Duration) -> io::Result<String> {
        ask(&self.connect(host, number)?, timeout)
    }

    /// Asks a process for objects of a kind, and waits so long for its answer; errors as with [`Self::ask`].
    pub fn ask_objects(
        &self,
        host: &str,
        number: u8,
        question: ObjectQuestion,
        timeout: Duration,
    ) -> io::Result<Vec<u8>> {
        let connection = self.connect(host, number)?;
        Greeting::Objects(question).send(&connection, None)?;
        wait(timeout, || receive_objects(&connection))
    }

    /// The number that the kernel knows a process by, also if that stands still and answers nobody; errors as with [`Self::connect`].
    pub fn process_id(&self, host: &str, number: u8) -> io::Result<u32> {
        // Of a connected socket of this kind: whoever listens at the other end.
        let peer = rustix::net::sockopt::socket_peercred(self.connect(host, number)?)?;
        Ok(peer.pid.as_raw_nonzero().get().unsigned_abs())
    }

    fn outside_path(&self, link: LinkLayer) -> PathBuf {
        self.path.join(match link {
            LinkLayer::Ethernet => OUTSIDE,
            LinkLayer::InfiniBand => OUTSIDE_INFINIBAND,
        })
    }

    /// Connects to the process that has the wire of a link layer to the outside; errors as with [`Self::connect`].
    pub fn connect_outside(&self, link: LinkLayer) -> io::Result<OwnedFd> {
        socket::connect(&self.outside_path(link))
    }

    /// Asks the process that has the wire to the outside how it is; errors as with [`Self::ask`].
    pub fn ask_outside(&self, link: LinkLayer, timeout: Duration) -> io::Result<String> {
        ask(&self.connect_outside(link)?, timeout)
    }

    /// Makes this process the one that has the wire of a link layer to the outside. It belongs to no host.
    pub fn join_outside(&self, link: LinkLayer) -> Result<Membership, NetworkError> {
        let bound = self.locked(|| Membership::bind(&self.outside_path(link), 0))??;
        bound.ok_or_else(|| NetworkError::HasWire(self.path.clone()))
    }

    /// Makes this process one of the host's.
    pub fn join(&self, host: &str) -> Result<Membership, NetworkError> {
        let joined = self.join_all(&[host])?.pop();
        joined.ok_or_else(|| NetworkError::Full(host.to_owned()))
    }

    /// Makes this process one of several hosts, with the same number in all of them.
    pub fn join_all(&self, hosts: &[&str]) -> Result<Vec<Membership>, NetworkError> {
        hosts.iter().try_for_each(|host| self.add_host(host))?;
        let lock = self.path.join("lock");
        let file = File::create(&lock).map_err(|error| NetworkError::Directory(lock.clone(), error))?;
        membership::hold(&file, &lock)?;
        for number in 0..MOST_PROCESSES {
            let bind = |host: &&str| Membership::bind(&self.socket_path(host, number), number).transpose();
            // Whoever has this number in one of them keeps it to himself: what was taken of it is given back.
            let joined = hosts.iter().map_while(bind).collect::<Result<Vec<_>, _>>()?;
            if joined.len() == hosts.len() {
                return Ok(joined);
            }
        }
        Err(NetworkError::Full(hosts.join(", ")))
    }
}

/// Asks who is at the other end of a connection how it is, and waits so long for the answer.
fn ask(connection: &OwnedFd, timeout: Duration) -> io::Result<String> {
    Greeting::Status.send(connection, None)?;
    wait(timeout, || receive_status(connection))
}

/// Waits so long for an answer.
fn wait<T>(timeout: Duration, receive: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let start = Instant::now();
    loop {
        match receive() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && start.elapsed() < timeout => {
                std::thread::sleep(PAUSE);
            }
            answered => return answered,
        }
    }
}

/// Names in a directory, in order; none if it cannot be read.
fn names(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
