//! Two networks of `bareverbs run` that a wire joins: a program of one talks to a program of the other.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, StartedProgram, free_port, is_installed};
use anyhow::{Context, Result, ensure};
use bareverbs_uverbs::VirtualHost;
use core::net::Ipv4Addr;

/// Hosts on both sides; the program of the second is started first.
const NEAR: &str = "near";
const FAR: &str = "far";

/// The link layer of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WireLink {
    Ethernet,
    /// InfiniBand ports, which have different LIDs.
    InfiniBand,
}

/// Two programs that talk over the wire. `{port}` stands for a port, and `{far}` for the address of the far
/// device: names do not cross the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WirePair {
    /// The command of both programs; the near one's own arguments follow it.
    command: &'static str,
    /// How the near program names its peer.
    client: &'static str,
    /// A text that one of them must print.
    says: &'static str,
    link: WireLink,
    package: &'static str,
}

/// The pairs. Programs that exchange addresses over TCP use this machine's TCP.
pub const PAIRS: [WirePair; 5] = [
    WirePair {
        command: "ib_write_bw -F -n 500 -p {port}",
        client: "127.0.0.1",
        says: "#bytes",
        link: WireLink::Ethernet,
        package: "perftest",
    },
    WirePair {
        command: "ibv_rc_pingpong -g 0 -c -p {port}",
        client: "127.0.0.1",
        says: "bytes",
        link: WireLink::Ethernet,
        package: "ibverbs-utils",
    },
    WirePair {
        command: "rping -C 10 -v -p {port}",
        client: "-c -a {far}",
        says: "rdma-ping-9",
        link: WireLink::Ethernet,
        package: "rdmacm-utils",
    },
    WirePair {
        command: "ib_write_bw -F -n 500 -p {port}",
        client: "127.0.0.1",
        says: "LID",
        link: WireLink::InfiniBand,
        package: "perftest",
    },
    WirePair {
        command: "ibv_ud_pingpong -c -p {port}",
        client: "127.0.0.1",
        says: "bytes",
        link: WireLink::InfiniBand,
        package: "ibverbs-utils",
    },
];

impl WirePair {
    /// The name of the row.
    pub fn name(&self) -> String {
        let link = if self.link == WireLink::InfiniBand { " --link ib" } else { "" };
        format!("{FAR}: {} / {NEAR}: {}, over --wire{link} of Unix datagrams", self.command, self.client)
    }

    fn program(&self, host: &str, port: u16) -> HostedProgram {
        let further = match host {
            NEAR => self.client,
            _ if self.command.starts_with("rping") => "-s",
            _ => "",
        };
        let far = VirtualHost::new(FAR).map(|far| Ipv4Addr::from(far.ipv4()).to_string());
        let words = format!("{} {further}", self.command).replace("{far}", &far.unwrap_or_default());
        let command = words.split_whitespace().map(str::to_owned).collect();
        HostedProgram { host: host.into(), command }.with_port(port)
    }

    fn options(&self, host: &str, port: u16) -> Vec<String> {
        let network = network_name(host, port);
        let lid = if host == NEAR { "0x12" } else { "0x34" };
        let options: &[&str] = match self.link {
            WireLink::Ethernet => &["--network", &network],
            WireLink::InfiniBand => &["--network", &network, "--link", "ib", "--lid", lid],
        };
        options.iter().map(|&option| option.to_owned()).collect()
    }

    /// Joins two networks and runs the programs.
    pub fn judge(&self, installation: &Installation) -> Result<Verdict> {
        let program = self.command.split(' ').next().unwrap_or_default();
        if !is_installed(program) {
            let reason = format!("{program} is not installed (Debian: apt-get install {})", self.package);
            return Ok(Verdict::Skip(reason));
        }
        let port = free_port()?;
        let _bridges = join(installation, port, self.link)?;
        let mut server = installation.start(&self.program(FAR, port), &self.options(FAR, port))?;
        server.wait_for_port(installation, port)?;
        let client = installation.start(&self.program(NEAR, port), &self.options(NEAR, port))?.finish();
        let (client, server) = (client?, server.finish()?);
        for ended in [&client, &server] {
            ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
        }
        let said = client.said + &server.said;
        ensure!(said.contains(self.says), "{} is not in what was said:\n{said}", self.says);
        Ok(Verdict::Pass(String::new()))
    }
}

/// The name of a host's network in the row with this port.
fn network_name(host: &str, port: u16) -> String {
    format!("{host}-{port}")
}

/// Starts the bridges of both networks, which carry frames until they are dropped.
fn join(installation: &Installation, port: u16, link: WireLink) -> Result<[StartedProgram; 2]> {
    let (link, socket) = match link {
        WireLink::Ethernet => ("eth", "outside"),
        WireLink::InfiniBand => ("ib", "outside-ib"),
    };
    let directory = installation.own_directory(&format!("wire-{port}"))?;
    let end = |host: &str| directory.join(host).to_string_lossy().into_owned();
    let start = |host: &str, other: &str| {
        let name = network_name(host, port);
        let (own, theirs) = (end(host), end(other));
        let bridge = ["run", "--network", &name, "--link", link, "--wire", &own, "--wire-to", &theirs];
        let bridge = installation.start_tool(&bridge)?;
        bridge.wait_for_file(&installation.network_path(&name).join(socket))
    };
    let near = start(NEAR, FAR).context("the near bridge")?;
    Ok([near, start(FAR, NEAR).context("the far bridge")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_near_program_gets_the_address_of_the_far_one() {
        let words = |pair: &WirePair, host| pair.program(host, 7).command.join(" ");
        assert_eq!(words(&PAIRS[0], FAR), "ib_write_bw -F -n 500 -p 7");
        assert_eq!(words(&PAIRS[0], NEAR), "ib_write_bw -F -n 500 -p 7 127.0.0.1");
        assert_eq!(words(&PAIRS[2], FAR), "rping -C 10 -v -p 7 -s");
        let near = words(&PAIRS[2], NEAR);
        assert!(near.starts_with("rping -C 10 -v -p 7 -c -a 198.1"), "{near}");
    }
}
