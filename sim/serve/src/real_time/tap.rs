//! Frames over a TAP interface: the peer is this machine's network stack.

use super::descriptor::{Buffer, is_later, wait_for};
use super::{FrameIo, Tally};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// One end of a wire whose other end is a TAP interface.
///
/// Offers no offloads, so the kernel computes checksums and segments what exceeds the MTU.
///
/// ```no_run
/// use bareverbs_serve::real_time::{FrameIo, TapIo};
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// // Needs CAP_NET_ADMIN, unless the interface was made for this user.
/// let mut tap = TapIo::open("bv0")?;
/// let mut frame = Vec::new();
/// tap.wait(Duration::from_secs(1))?;
/// if tap.receive(&mut frame)? {
///     println!("{} bytes from {:02x?}", frame.len(), &frame[6..12]);
/// }
/// # Ok(())
/// # }
/// ```
pub struct TapIo {
    device: SyncDevice,
    name: String,
    buffer: Buffer,
    lost: Tally,
}

impl core::fmt::Debug for TapIo {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("TapIo").field("name", &self.name).field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl TapIo {
    /// Attaches to the TAP interface `name`. An existing one is used as it is, up or down; otherwise one is created,
    /// brought up, and removed when this value is dropped.
    ///
    /// An error tells the obstacle: missing rights (creating an interface needs `CAP_NET_ADMIN`, attaching to one that
    /// was created for this user does not), an interface that is in use, or one of another kind.
    pub fn open(name: &str) -> io::Result<Self> {
        if !is_name(name) {
            let error = io::Error::new(ErrorKind::InvalidInput, "not a valid interface name");
            return Err(explain(name, &error));
        }
        let is_there = Path::new("/sys/class/net").join(name).exists();
        let builder = DeviceBuilder::new().name(name).layer(Layer::L2);
        let builder = if is_there { builder.inherit_enable_state() } else { builder.enable(true) };
        let device = builder.build_sync().map_err(|error| explain(name, &error))?;
        device.set_nonblocking(true)?;
        Ok(Self { device, name: name.to_owned(), buffer: Buffer::default(), lost: Tally::default() })
    }

    /// Sets the interface's MTU in bytes.
    ///
    /// # Errors
    /// Needs `CAP_NET_ADMIN`.
    pub fn set_mtu(&self, bytes: u16) -> io::Result<()> {
        self.device.set_mtu(bytes)
    }

    /// Frames lost because the interface was down.
    pub fn lost(&self) -> u64 {
        self.lost.count()
    }
}

/// Whether Linux accepts this as the name of one interface. It would replace “%d” by a number.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"/:%".contains(&byte);
    (1..=15).contains(&name.len()) && name != "." && name != ".." && name.bytes().all(is_plain)
}

fn explain(name: &str, error: &io::Error) -> io::Error {
    let has_driver = !matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO));
    let kind = if has_driver { error.kind() } else { ErrorKind::NotFound };
    let advice = match kind {
        ErrorKind::PermissionDenied => {
            format!("; make it for this user first: ip tuntap add dev {name} mode tap user $(id -un)")
        }
        ErrorKind::ResourceBusy => "; another process has it".to_owned(),
        ErrorKind::NotFound => "; there is no /dev/net/tun, or no driver behind it: modprobe tun".to_owned(),
        ErrorKind::InvalidInput => {
            "; a name has 1 to 15 characters, and the interface must be a TAP one with one queue".to_owned()
        }
        _ => String::new(),
    };
    io::Error::new(kind, format!("cannot attach to the TAP interface '{name}': {error}{advice}"))
}

impl AsFd for TapIo {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl FrameIo for TapIo {
    /// A down interface is like an unconnected cable: frames are lost and counted.
    fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        match self.device.send(frame) {
            Ok(_) => Ok(true),
            Err(error) if is_later(&error) => Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EIO) => {
                if let Some(lost) = self.lost.add() {
                    let name = &self.name;
                    tracing::warn!("{name} is down (ip link set {name} up); frames lost so far: {lost}");
                }
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    fn receive(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        let device = &self.device;
        self.buffer.take(frame, |buffer| device.recv(buffer))
    }

    fn wait(&mut self, limit: Duration) -> io::Result<()> {
        wait_for(self.as_fd(), limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Instant;

    /// Link-local addresses in networks so small that they do not conflict with this machine's routes.
    const ADDRESSES: [[u8; 4]; 2] = [[169, 254, 77, 1], [169, 254, 77, 5]];
    /// The other address in each network.
    const OTHERS: [[u8; 4]; 2] = [[169, 254, 77, 2], [169, 254, 77, 6]];

    /// An interface of this process with one of the addresses, if this machine permits it.
    fn interface(test: &str, number: usize) -> Option<TapIo> {
        let name = format!("bv{number}-{}", std::process::id());
        let address = format!("{}/30", std::net::Ipv4Addr::from(ADDRESSES[number]));
        let tap = TapIo::open(&name);
        let reason = match &tap {
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::NotFound) => {
                assert!(error.to_string().contains(&name), "{error}");
                Some(error.to_string())
            }
            Err(error) => panic!("{error}"),
            Ok(_) => ip(&["addr", "add", &address, "dev", &name]).err().map(|error| error.to_string()),
        };
        if let Some(reason) = reason {
            println!("SKIPPED {test}: {reason}");
            return None;
        }
        tap.ok()
    }

    /// Fails if the program is missing.
    fn ip(arguments: &[&str]) -> io::Result<()> {
        assert!(Command::new("ip").args(arguments).status()?.success(), "ip {arguments:?}");
        Ok(())
    }

    /// An ARP request for the other address.
    fn request(number: usize) -> Vec<u8> {
        const OURS: [u8; 6] = [2, 0, 0, 0, 0, 2];
        let ethernet: &[&[u8]] = &[&[0xff; 6], &OURS, &[8, 6]];
        let arp: &[&[u8]] = &[&[0, 1, 8, 0, 6, 4, 0, 1], &OURS, &OTHERS[number], &[0; 6], &ADDRESSES[number]];
        [ethernet, arp].concat().concat()
    }

    #[test]
    fn this_machines_own_network_answers() {
        let Some(mut tap) = interface("this_machines_own_network_answers", 0) else { return };
        let (deadline, mut frame) = (Instant::now() + Duration::from_secs(20), Vec::new());
        let is_answer = |frame: &[u8]| frame.get(12..22) == Some(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        // Retry like ARP does: Linux sends nothing right after an interface has come up.
        while !(tap.receive(&mut frame).expect("an interface") && is_answer(&frame)) {
            assert!(Instant::now() < deadline, "no answer");
            assert!(tap.send(&request(0)).expect("sent"));
            tap.wait(Duration::from_millis(100)).expect("an interface");
        }
        assert_eq!(frame.get(28..32), Some(&ADDRESSES[0][..]));
    }

    #[test]
    fn frames_are_lost_and_counted_while_it_is_down() {
        let Some(mut tap) = interface("frames_are_lost_and_counted_while_it_is_down", 1) else { return };
        let name = tap.name.clone();
        ip(&["link", "set", &name, "down"]).expect("ip");
        assert!(tap.send(&request(1)).expect("lost"));
        assert_eq!(tap.lost(), 1);
        ip(&["link", "set", &name, "up"]).expect("ip");
        assert!(tap.send(&request(1)).expect("sent"));
        assert_eq!(tap.lost(), 1);
        let taken = TapIo::open(&name).expect_err("one process at a time").to_string();
        assert!(taken.contains("another process has it"), "{taken}");
        ip(&["link", "del", &name]).expect("ip");
        assert!(tap.send(&request(1)).is_err() || tap.receive(&mut Vec::new()).is_err(), "it is gone");
    }

    #[test]
    fn an_interface_that_is_not_tap_is_refused_by_name() {
        for name in ["lo", "", "tap%d", "a/b", "a-name-that-is-too-long"] {
            let error = TapIo::open(name).expect_err(name);
            assert!(error.to_string().contains(&format!("'{name}'")), "{error}");
        }
    }
}
