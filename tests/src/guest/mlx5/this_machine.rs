//! This machine's own network at the switch of the Ethernet ports, through a TAP interface. Its kernel is the
//! peer of the guest's network device.

use super::super::machine::Machine;
use super::super::process::{self, TICK};
use super::super::table::{Entry, Report, Verdict};
use super::cases::Mlx5Case;
use super::nic::ServedNics;
use super::options::{Mlx5Options, ask};
use anyhow::{Context, Result, ensure};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Addresses of both sides, in a subnet with room for just the two.
const HERE: Ipv4Addr = Ipv4Addr::new(169, 254, 78, 1);
const GUEST: Ipv4Addr = Ipv4Addr::new(169, 254, 78, 2);
const PREFIX: u8 = 30;
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of the stream, in each direction.
const STREAM: usize = 2_000_000;
const CLIENT: &str = "import os, socket, sys
sent = os.urandom(int(sys.argv[3]))
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 60)
s.sendall(sent)
s.shutdown(socket.SHUT_WR)
back = b\"\".join(iter(lambda: s.recv(65536), b\"\"))
print(\"same bytes\" if back == sent else f\"{len(back)} of {len(sent)} bytes, or others\")";

/// Runs the cases of the guest's network device at the switch, with this machine as the peer.
pub fn play(
    guest: &mut Machine,
    netdev: &str,
    nics: &ServedNics,
    options: &Mlx5Options,
    report: &mut Report,
) -> Result<()> {
    const NAMES: [&str; 2] =
        ["this machine's network: ping", "this machine's network: TCP stream there and back"];
    if !NAMES.iter().any(|name| options.wants(name)) {
        return Ok(());
    }
    if let Err(reason) = join(nics) {
        let skipped = |name: &str| Entry {
            columns: vec![name.to_owned()],
            verdict: Verdict::Skip(format!("{reason:#}")),
            elapsed: Duration::ZERO,
        };
        NAMES.map(skipped).into_iter().for_each(|entry| report.add(entry));
        return Ok(());
    }
    guest.control.require(&format!("ip addr replace {GUEST}/{PREFIX} dev {netdev}"), LIMIT)?;
    let ping = Mlx5Case::new(NAMES[0], " 0% packet loss", format!("ping -w 30 -c 5 -i 0.2 {HERE}"));
    report.add(ask(guest, &ping)?);
    let listener = TcpListener::bind((HERE, 0)).context("this machine's address has not come up")?;
    let port = listener.local_addr()?.port();
    let echo = echo(listener);
    let command = format!("python3 -c '{CLIENT}' {HERE} {port} {STREAM}");
    report.add(ask(guest, &Mlx5Case::new(NAMES[1], "same bytes", command))?);
    echo.join().map_err(|_| anyhow::anyhow!("the other end of the stream panicked"))?
}

/// Joins this machine, under a name that no other judge uses. The error says why that is impossible.
fn join(nics: &ServedNics) -> Result<()> {
    ensure!(process::exists("ip"), "iproute2 is not installed");
    let name = format!("bvj{}", std::process::id());
    nics.join_this_machine(&name)?;
    let address = format!("{HERE}/{PREFIX}");
    process::output(Command::new("ip").args(["addr", "add", &address, "dev", &name]))?;
    Ok(())
}

/// Sends a stream back once it has ended.
pub(in super::super) fn echo(listener: TcpListener) -> JoinHandle<Result<()>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let mut stream = accept(&listener)?;
        stream.read_to_end(&mut bytes)?;
        stream.write_all(&bytes)?;
        Ok(())
    })
}

fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let deadline = Instant::now() + LIMIT;
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(LIMIT))?;
                stream.set_write_timeout(Some(LIMIT))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        ensure!(Instant::now() < deadline, "the guest does not connect");
        std::thread::sleep(TICK);
    }
}
