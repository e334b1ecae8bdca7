//! Connection management ports, shared by the processes of a host. `NETWORK/hosts/HOST/ports/NUMBER/SPACE-PORT` is a
//! file of the process that owns the port. Files of a killed process no longer count; the next process with its number
//! removes them.

use super::membership::hold;
use super::{NetworkDirectory, NetworkError, names};
use std::fs::{self, File};
use std::path::PathBuf;

/// The ports of one process.
///
/// ```
/// use bareverbs_serve::network::{NetworkDirectory, Ports};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let run = tempfile::tempdir()?;
/// let network = NetworkDirectory::create(&run.path().join("lab"))?;
/// network.add_host("alice")?;
/// let ports = Ports::of(&network, "alice", 0)?;
/// // RDMA_PS_TCP is 0x0106.
/// assert!(ports.claim(0x0106, 18515)? && ports.has_owner(0x0106, 18515));
/// ports.release(0x0106, 18515);
/// assert!(!ports.has_owner(0x0106, 18515));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Ports {
    network: NetworkDirectory,
    host: String,
    number: u8,
}

impl Ports {
    /// Starts without ports, for a process that has joined its host under this number.
    pub fn of(network: &NetworkDirectory, host: &str, number: u8) -> Result<Self, NetworkError> {
        let ports = Self { network: network.clone(), host: host.into(), number };
        let own = ports.directory(number);
        if own.exists() {
            fs::remove_dir_all(&own).map_err(|error| NetworkError::Directory(own.clone(), error))?;
        }
        fs::create_dir_all(&own).map_err(|error| NetworkError::Directory(own, error))?;
        Ok(ports)
    }

    fn directory(&self, number: u8) -> PathBuf {
        self.network.host_path(&self.host).join("ports").join(number.to_string())
    }

    fn file(&self, number: u8, space: u16, port: u16) -> PathBuf {
        self.directory(number).join(format!("{space:04x}-{port}"))
    }

    /// Claims a port; false if another live process owns it.
    pub fn claim(&self, space: u16, port: u16) -> Result<bool, NetworkError> {
        let lock = self.network.path().join("lock");
        let file = File::create(&lock).map_err(|error| NetworkError::Directory(lock.clone(), error))?;
        hold(&file, &lock)?;
        if self.has_owner(space, port) {
            return Ok(false);
        }
        let own = self.file(self.number, space, port);
        File::create(&own).map_err(|error| NetworkError::Directory(own, error))?;
        Ok(true)
    }

    /// Releases a port.
    pub fn release(&self, space: u16, port: u16) {
        // Best effort: a file that cannot be removed counts until the process ends.
        let _ = fs::remove_file(self.file(self.number, space, port));
    }

    /// Whether a live process of the host owns a port.
    pub fn has_owner(&self, space: u16, port: u16) -> bool {
        let numbers = names(&self.network.host_path(&self.host).join("ports"));
        let mut numbers = numbers.iter().filter_map(|name| name.parse().ok());
        numbers.any(|number| self.file(number, space, port).exists() && self.lives(number))
    }

    fn lives(&self, number: u8) -> bool {
        number == self.number || self.network.is_alive(&self.host, number)
    }

    /// Whether no live process of the host has a lower number.
    pub fn is_first(&self) -> bool {
        let before = self.network.processes(&self.host);
        !before.into_iter().take_while(|number| *number < self.number).any(|number| self.lives(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_of_a_host_do_not_share_a_port() {
        let home = tempfile::tempdir().unwrap();
        let network = NetworkDirectory::create(home.path()).unwrap();
        let (first, second) = (network.join("a").unwrap(), network.join("a").unwrap());
        let ports = |number| Ports::of(&network, "a", number).unwrap();
        let (one, two) = (ports(first.number()), ports(second.number()));
        assert!(one.claim(0x106, 7174).unwrap());
        assert!(!two.claim(0x106, 7174).unwrap(), "taken");
        assert!(two.claim(0x111, 7174).unwrap(), "another space");
        assert!(two.has_owner(0x106, 7174) && !two.has_owner(0x106, 7175));
        assert!(one.is_first() && !two.is_first());
        one.release(0x106, 7174);
        assert!(two.claim(0x106, 7174).unwrap());
    }

    #[test]
    fn ports_end_with_their_process() {
        let home = tempfile::tempdir().unwrap();
        let network = NetworkDirectory::create(home.path()).unwrap();
        let first = network.join("a").unwrap();
        assert!(Ports::of(&network, "a", first.number()).unwrap().claim(0x106, 1).unwrap());
        drop(first);
        let (first, second) = (network.join("a").unwrap(), network.join("a").unwrap());
        assert_eq!(first.number(), 0, "the same number again");
        let two = Ports::of(&network, "a", second.number()).unwrap();
        let one = Ports::of(&network, "a", first.number()).unwrap();
        assert!(two.claim(0x106, 1).unwrap(), "what the dead process had counts no more");
        assert!(!one.claim(0x106, 1).unwrap());
    }
}
