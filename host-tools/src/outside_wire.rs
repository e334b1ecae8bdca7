//! `--wire` and `--wire-to`: the two ends of a wire that leaves this process.

use anyhow::{Context, Result, bail};
use bareverbs_serve::real_time::Outside;
use clap::Args;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Both ends of a wire.
#[derive(Debug, Args)]
pub(crate) struct WireArguments {
    /// A wire to the outside. PATH, with --wire-to: a Unix datagram socket that receives frames from another process,
    /// one per datagram, as QEMU's -netdev dgram sends them. udp:ADDRESS:PORT, with --wire-to: the same over UDP, also
    /// between machines. tap:NAME: this machine's network stack, through its TAP interface NAME, which is created and
    /// brought up if it does not exist (Ethernet only).
    #[arg(long, value_name = "PATH|udp:ADDRESS:PORT|tap:NAME")]
    wire: Option<PathBuf>,
    /// Destination of frames: the path of the peer's Unix datagram socket, or udp:ADDRESS:PORT.
    #[arg(long, value_name = "PATH|udp:ADDRESS:PORT", requires = "wire")]
    wire_to: Option<PathBuf>,
}

impl WireArguments {
    /// Whether there is a wire.
    pub(crate) const fn is_asked_for(&self) -> bool {
        self.wire.is_some()
    }

    /// The other end; `None` if there is no wire.
    pub(crate) fn outside(&self) -> Result<Option<Outside>> {
        let Some(wire) = &self.wire else { return Ok(None) };
        let tap = wire.to_str().and_then(|wire| wire.strip_prefix("tap:"));
        let udp = udp_address(wire).transpose()?;
        Ok(Some(match (tap, udp, &self.wire_to) {
            (Some(name), _, None) => Outside::Tap(name.to_owned()),
            (Some(_), _, Some(_)) => bail!("--wire {} needs no --wire-to", wire.display()),
            (None, Some(own), Some(to)) => {
                let peer = udp_address(to).transpose()?;
                let peer = peer.with_context(|| {
                    format!(
                        "--wire {} needs an end of the same kind: --wire-to udp:ADDRESS:PORT",
                        wire.display()
                    )
                })?;
                Outside::Udp { own, peer }
            }
            (None, Some(_), None) => {
                bail!("--wire {} needs --wire-to udp:ADDRESS:PORT, the other side", wire.display())
            }
            (None, None, Some(peer)) => Outside::datagram(wire, peer),
            (None, None, None) => bail!(
                "--wire {} is the path of a socket and needs --wire-to PATH, the socket of the other process; for \
                 a TAP interface use --wire tap:NAME, for a UDP socket --wire udp:ADDRESS:PORT",
                wire.display()
            ),
        }))
    }
}

/// The address after `udp:`; `None` for other texts.
fn udp_address(text: &Path) -> Option<Result<SocketAddr>> {
    let address = text.to_str()?.strip_prefix("udp:")?;
    Some(address.parse().with_context(|| {
        format!("udp:{address} is not the end of a wire; write udp:192.0.2.1:4000 or udp:[2001:db8::1]:4000")
    }))
}

/// In the form of the command line.
impl fmt::Display for WireArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(wire) = &self.wire else { return f.write_str("no wire") };
        write!(f, "{}", wire.display())?;
        self.wire_to.as_ref().map_or(Ok(()), |peer| write!(f, " to {}", peer.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outside(wire: &str, wire_to: Option<&str>) -> Result<Outside> {
        let arguments = WireArguments { wire: Some(wire.into()), wire_to: wire_to.map(PathBuf::from) };
        arguments.outside().map(|outside| outside.expect("a wire is asked for"))
    }

    #[test]
    fn each_form_is_read() {
        assert_eq!(outside("tap:bv0", None).unwrap(), Outside::Tap("bv0".into()));
        assert_eq!(outside("/a", Some("/b")).unwrap(), Outside::datagram("/a", "/b"));
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let (own, peer) = (address("127.0.0.1:1"), address("[::1]:2"));
        assert_eq!(outside("udp:127.0.0.1:1", Some("udp:[::1]:2")).unwrap(), Outside::Udp { own, peer });
    }

    #[test]
    fn options_that_contradict_each_other_are_refused_with_what_fits() {
        for (wire, wire_to, words) in [
            ("/a", None, "--wire-to PATH"),
            ("tap:bv0", Some("/b"), "needs no --wire-to"),
            ("udp:127.0.0.1:1", None, "--wire-to udp:"),
            ("udp:127.0.0.1:1", Some("/b"), "--wire-to udp:"),
            ("udp:here", Some("udp:there"), "write udp:192.0.2.1:4000"),
        ] {
            let refusal = format!("{:#}", outside(wire, wire_to).unwrap_err());
            assert!(refusal.contains(words), "{wire}: {refusal}");
        }
    }
}
