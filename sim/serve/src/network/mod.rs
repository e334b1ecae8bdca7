//! A network of processes on one machine: a directory where virtual hosts and their processes find each other.
//!
//! **What this is.** `NETWORK/hosts/HOST/NUMBER` is the listening socket of a process. Its number within the host is
//! the upper 8 bits of its queue pair numbers, so that a frame identifies its destination process: the MAC address
//! names the host and the queue pair number the process. A process that has frames for another connects to its socket
//! and sends a [`Greeting`].
//!
//! **What it may not do.** It carries no frames. The directory needs no cleanup: a killed process leaves a socket that
//! refuses connections, and the next process takes its number.

mod error;
mod greeting;
mod membership;
mod ports;
mod socket;
mod trouble;

pub use error::{MOST_PROCESSES, NetworkError};
pub use greeting::{
    Greeting, LONGEST_OBJECTS, NeighbourRequest, ObjectRequest, VERSION, answer_objects, answer_status,
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

/// Polling interval while waiting for an answer.
const PAUSE: Duration = Duration::from_millis(1);
/// Sockets of the processes that own the wires to the outside, one per link layer.
const OUTSIDE: &str = "outside";
const OUTSIDE_INFINIBAND: &str = "outside-ib";
/// File with a host's settings, next to its processes' sockets, which are named by number.
const SETTINGS: &str = "settings";
/// Longest name of a network.
const LONGEST_NAME: usize = 32;
/// Environment variables by which `bareverbs run` configures the library inside the program.
pub mod environment {
    /// Directory of the device's description files.
    pub const DIRECTORY: &str = "BAREVERBS_RUN_DIRECTORY";
    /// Name of the virtual host.
    pub const HOST: &str = "BAREVERBS_RUN_HOST";
    /// Directory of the network.
    pub const NETWORK: &str = "BAREVERBS_RUN_NETWORK";
    /// Faults on the wire, in the syntax of [`FaultScript`](crate::real_time::FaultScript).
    pub const FAULTS: &str = "BAREVERBS_RUN_FAULTS";
    /// Seed of the random faults.
    pub const SEED: &str = "BAREVERBS_RUN_SEED";
    /// Rate of the port in Gbit/s.
    pub const RATE: &str = "BAREVERBS_RUN_RATE";
    /// File of the capture.
    pub const CAPTURE: &str = "BAREVERBS_RUN_CAPTURE";
    /// Not empty if the capture must also contain the device's actions.
    pub const RECORDS: &str = "BAREVERBS_RUN_RECORDS";
    /// Not empty if the device has user contexts.
    pub const DEVX: &str = "BAREVERBS_RUN_DEVX";
}

/// Whether this is a valid network name: 1 to 32 letters, digits, hyphens, underscores or dots, not starting with a
/// dot.
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
    /// Creates the directory of a network, unless it exists.
    pub fn create(path: &Path) -> Result<Self, NetworkError> {
        let network = Self { path: path.to_owned() };
        fs::create_dir_all(network.hosts_path()).map_err(|error| network.trouble(error))?;
        let version = path.join("version");
        if !version.exists() {
            network.replace(version, &format!("{VERSION}\n")).map_err(|error| network.trouble(error))?;
        }
        network.checked()
    }

    /// Opens an existing network.
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

    /// Path of the directory.
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

    /// Adds a host, whether or not it has a process with a device.
    pub fn add_host(&self, host: &str) -> Result<(), NetworkError> {
        let longest = self.socket_path(host, u8::MAX);
        if SocketAddrUnix::new(&longest).is_err() {
            return Err(NetworkError::TooLong(longest));
        }
        fs::create_dir_all(self.host_path(host)).map_err(|error| self.trouble(error))
    }

    /// The host's settings as text; empty if there are none or the host is unknown.
    pub fn settings(&self, host: &str) -> String {
        fs::read_to_string(self.host_path(host).join(SETTINGS)).unwrap_or_default()
    }

    /// Replaces the settings of a known host. Running processes are not affected.
    pub fn set_settings(&self, host: &str, text: &str) -> Result<(), NetworkError> {
        self.replace(self.host_path(host).join(SETTINGS), text).map_err(|error| self.trouble(error))
    }

    /// Whether the host has a live process.
    pub fn has_process(&self, host: &str) -> bool {
        self.processes(host).into_iter().any(|number| self.is_alive(host, number))
    }

    /// Runs `work` while no other process joins the network or holds this lock.
    pub fn locked<T>(&self, work: impl FnOnce() -> T) -> Result<T, NetworkError> {
        let lock = self.path.join("lock");
        let file = File::create(&lock).map_err(|error| NetworkError::Directory(lock.clone(), error))?;
        membership::hold(&file, &lock)?;
        Ok(work())
    }

    /// Whether the host is known.
    pub fn has_host(&self, host: &str) -> bool {
        !host.is_empty() && !host.starts_with('.') && !host.contains('/') && self.host_path(host).is_dir()
    }

    /// Names of the known hosts, sorted.
    pub fn hosts(&self) -> Vec<String> {
        names(&self.hosts_path())
    }

    /// Numbers of a host's processes, sorted. Some may be dead.
    pub fn processes(&self, host: &str) -> Vec<u8> {
        let mut numbers: Vec<u8> =
            names(&self.host_path(host)).iter().filter_map(|name| name.parse().ok()).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Whether the process with this number is alive.
    pub fn is_alive(&self, host: &str, number: u8) -> bool {
        membership::is_alive(&self.socket_path(host, number))
    }

    /// Connects to a process without waiting. `ConnectionRefused` or `NotFound`: there is none. `WouldBlock`: too many
    /// others are connecting to it.
    pub fn connect(&self, host: &str, number: u8) -> io::Result<OwnedFd> {
        socket::connect(&self.socket_path(host, number))
    }

    /// Asks a process for its status and waits up to `timeout`. `WouldBlock`: it is alive but does not answer; other
    /// errors: it is dead.
    pub fn ask(&self, host: &str, number: u8, timeout: Duration) -> io::Result<String> {
        ask(&self.connect(host, number)?, timeout)
    }

    /// Asks a process for objects of a kind and waits up to `timeout`; errors as with [`Self::ask`].
    pub fn ask_objects(
        &self,
        host: &str,
        number: u8,
        request: ObjectRequest,
        timeout: Duration,
    ) -> io::Result<Vec<u8>> {
        let connection = self.connect(host, number)?;
        Greeting::Objects(request).send(&connection, None)?;
        wait(timeout, || receive_objects(&connection))
    }

    /// PID of a process, even if it is stopped; errors as with [`Self::connect`].
    pub fn process_id(&self, host: &str, number: u8) -> io::Result<u32> {
        // Peer credentials of a connected socket: those of the listener.
        let peer = rustix::net::sockopt::socket_peercred(self.connect(host, number)?)?;
        Ok(peer.pid.as_raw_nonzero().get().unsigned_abs())
    }

    fn outside_path(&self, link: LinkLayer) -> PathBuf {
        self.path.join(match link {
            LinkLayer::Ethernet => OUTSIDE,
            LinkLayer::InfiniBand => OUTSIDE_INFINIBAND,
        })
    }

    /// Connects to the owner of a link layer's wire to the outside; errors as with [`Self::connect`].
    pub fn connect_outside(&self, link: LinkLayer) -> io::Result<OwnedFd> {
        socket::connect(&self.outside_path(link))
    }

    /// Asks the owner of the wire to the outside for its status; errors as with [`Self::ask`].
    pub fn ask_outside(&self, link: LinkLayer, timeout: Duration) -> io::Result<String> {
        ask(&self.connect_outside(link)?, timeout)
    }

    /// Makes this process the owner of a link layer's wire to the outside. It belongs to no host.
    pub fn join_outside(&self, link: LinkLayer) -> Result<Membership, NetworkError> {
        let bound = self.locked(|| Membership::bind(&self.outside_path(link), 0))??;
        bound.ok_or_else(|| NetworkError::HasWire(self.path.clone()))
    }

    /// Joins a host.
    pub fn join(&self, host: &str) -> Result<Membership, NetworkError> {
        let joined = self.join_all(&[host])?.pop();
        joined.ok_or_else(|| NetworkError::Full(host.to_owned()))
    }

    /// Joins several hosts, with the same number in all of them.
    pub fn join_all(&self, hosts: &[&str]) -> Result<Vec<Membership>, NetworkError> {
        hosts.iter().try_for_each(|host| self.add_host(host))?;
        let lock = self.path.join("lock");
        let file = File::create(&lock).map_err(|error| NetworkError::Directory(lock.clone(), error))?;
        membership::hold(&file, &lock)?;
        for number in 0..MOST_PROCESSES {
            let bind = |host: &&str| Membership::bind(&self.socket_path(host, number), number).transpose();
            // If another process has this number in one of them, give back what was taken and try the next.
            let joined = hosts.iter().map_while(bind).collect::<Result<Vec<_>, _>>()?;
            if joined.len() == hosts.len() {
                return Ok(joined);
            }
        }
        Err(NetworkError::Full(hosts.join(", ")))
    }
}

/// Asks the peer for its status and waits up to `timeout`.
fn ask(connection: &OwnedFd, timeout: Duration) -> io::Result<String> {
    Greeting::Status.send(connection, None)?;
    wait(timeout, || receive_status(connection))
}

/// Waits up to `timeout` for an answer.
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

/// Sorted names in a directory; empty if it cannot be read.
fn names(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
