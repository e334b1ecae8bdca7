//! `bareverbs run --wire tap:NAME`: a program of a virtual host, and the kernel of this machine at the other
//! end of the wire, in a network namespace of its own.

use crate::guest::table::Verdict;
use crate::installation::{Installation, is_installed};
use anyhow::{Result, ensure};
use std::process::{Command, Stdio};

/// The kernel has 10.9.0.1, and a program of host b asks it for a connection. The program has to resolve the
/// kernel's MAC address by ARP. Its request, a datagram to queue pair 1, has to arrive at a socket on UDP
/// port 4791, whose owner must be able to see the sender. The kernel in turn resolves the host's address by
/// ARP.
const SCRIPT: &str = r#"
ip link set lo up
ip tuntap add dev bv0 mode tap
ip addr add 10.9.0.1/8 dev bv0
ip link set bv0 up
bareverbs run --network tap --wire tap:bv0 &
bridge=$!
trap 'kill $bridge' EXIT
python3 -c '
import socket
roce = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
roce.bind(("10.9.0.1", 4791))
roce.settimeout(20)
bytes, (address, port) = roce.recvfrom(4096)
print("arrived: opcode", hex(bytes[0]), "from", address, "port above 49151:", port > 49151)
roce.sendto(b"nobody listens", (address, 4791))
' &
kernel=$!
sleep 1
timeout 3 bareverbs run --network tap --host b --ip 10.9.0.2 -- rping -c -a 10.9.0.1 -C 1 || true
wait $kernel
ip neigh show dev bv0
"#;
/// UD SEND only, the opcode of connection management messages.
const ARRIVED: &str = "arrived: opcode 0x64 from 10.9.0.2 port above 49151: True";
/// The kernel's neighbour entry for the host. The host's MAC address follows from its name.
const NEIGHBOUR: &str = "10.9.0.2 lladdr ";

/// Runs the script as a user who is root in namespaces of their own.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    if let Some(program) = ["ip", "rping", "python3"].into_iter().find(|program| !is_installed(program)) {
        return Ok(Verdict::Skip(format!(
            "{program} is not installed (Debian: apt-get install iproute2 rdmacm-utils python3)"
        )));
    }
    let mut probe = Command::new("unshare");
    probe.args(["--user", "--map-root-user", "--net", "ip", "tuntap", "add", "dev", "bv0", "mode", "tap"]);
    if !probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        return Ok(Verdict::Skip(
            "this machine gives its users no network namespaces with TAP interfaces".into(),
        ));
    }
    let script = format!("unshare --user --map-root-user --net sh -ec {}", quoted(SCRIPT));
    let ended = installation.run_shell(&script)?;
    ensure!(ended.status.success(), "{}, and said:\n{}", ended.status, ended.said);
    for words in [ARRIVED, NEIGHBOUR] {
        ensure!(ended.said.contains(words), "{words:?} is not in what was said:\n{}", ended.said);
    }
    Ok(Verdict::Pass(String::new()))
}

/// A text quoted as one word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}
