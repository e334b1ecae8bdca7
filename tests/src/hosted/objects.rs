//! `rdma resource show`: objects of running programs, all of a kind and one by its number.

use crate::guest::table::Verdict;
use crate::installation::{HostedProgram, Installation, StartedProgram, free_port, is_installed};
use anyhow::{Context, Result, ensure};

/// A kind of object: its name in `rdma`, how to select a device or port, the name of its number, and what
/// else its line says.
struct ShownKind {
    name: &'static str,
    place: &'static str,
    number: &'static str,
    says: &'static [&'static str],
}

const fn of_device(name: &'static str, number: &'static str, says: &'static [&'static str]) -> ShownKind {
    ShownKind { name, place: "dev mlx5_0", number, says }
}

/// Objects of a ping-pong server before a client connects.
const OF_PINGPONG: [ShownKind; 6] = [
    ShownKind {
        name: "qp",
        place: "link mlx5_0/1",
        number: "lqpn",
        says: &["type RC", "state INIT", "path-mig-state MIGRATED", "comm ibv_srq_pingpon"],
    },
    of_device("cq", "cqn", &["users ", "cqe "]),
    of_device("mr", "mrn", &["mrlen 4096"]),
    of_device("pd", "pdn", &["users "]),
    of_device("ctx", "ctxn", &[]),
    of_device("srq", "srqn", &["type BASIC", "lqpn "]),
];
/// Objects of a listener for connections. It listens on every port, so its line names none.
const OF_LISTENER: ShownKind = ShownKind {
    name: "cm_id",
    place: "link mlx5_0",
    number: "cm-idn",
    says: &["state LISTEN", "ps TCP", "comm rping"],
};

/// Looks while two servers wait for clients that never come.
pub fn judge(installation: &Installation) -> Result<Verdict> {
    for (program, package) in
        [("rdma", "iproute2"), ("ibv_srq_pingpong", "ibverbs-utils"), ("rping", "rdmacm-utils")]
    {
        if !is_installed(program) {
            return Ok(Verdict::Skip(format!(
                "{program} is not installed (Debian: apt-get install {package})"
            )));
        }
    }
    let pingpong = serve(installation, "ibv_srq_pingpong -g 0 -q 4 -p")?;
    for kind in &OF_PINGPONG {
        kind.judge(installation, pingpong.id())?;
    }
    let listener = serve(installation, "rping -s -p")?;
    OF_LISTENER.judge(installation, listener.id())?;
    let kinds = OF_PINGPONG.len() + 1;
    Ok(Verdict::Pass(format!("{kinds} kinds of objects")))
}

fn serve(installation: &Installation, command: &str) -> Result<StartedProgram> {
    let port = free_port()?;
    let command = format!("{command} {port}");
    let mut server = installation.start(&program(&command), &[])?;
    server.wait_for_port(installation, port)?;
    Ok(server)
}

fn program(command: &str) -> HostedProgram {
    HostedProgram { host: "a".into(), command: command.split_whitespace().map(str::to_owned).collect() }
}

impl ShownKind {
    /// The dump must have an object of the program. A query by that object's number must return the same, and
    /// an unknown number must be refused.
    fn judge(&self, installation: &Installation, owner: u32) -> Result<()> {
        let Self { name, place, number, says } = self;
        let show = |filter: &str| -> Result<String> {
            let asked = format!("rdma resource show {name} {filter}");
            let ended = installation.run(&program(&asked), &[])?;
            ensure!(ended.status.success(), "{asked}: {}, and said:\n{}", ended.status, ended.said);
            Ok(ended.said)
        };
        let all = show("")?;
        let pid = owner.to_string();
        let line = all.lines().find(|line| word_behind(line, "pid") == Some(pid.as_str()));
        let line = line.with_context(|| format!("no {name} of process {owner} is in:\n{all}"))?;
        for words in *says {
            ensure!(line.contains(words), "\"{words}\" is not in: {line}");
        }
        let value = word_behind(line, number).with_context(|| format!("no {number} is in: {line}"))?;
        let one = show(&format!("{place} {number} {value}"))?;
        ensure!(one.trim() == line.trim(), "of {number} {value} it says\n{one}and not\n{line}");
        let nobody = show(&format!("{place} {number} 9"))?;
        ensure!(nobody.trim().is_empty(), "of {number} 9, which nobody has, it says:\n{nobody}");
        Ok(())
    }
}

fn word_behind<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    line.split_whitespace().skip_while(|found| *found != word).nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_stands_behind_its_name() {
        let line = "link mlx5_0/1 lqpn 65 type RC state INIT sq-psn 0 pdn 3 pid 7 comm ibv_rc_pingpong ";
        assert_eq!(word_behind(line, "lqpn"), Some("65"));
        assert_eq!((word_behind(line, "cqn"), word_behind("lqpn", "lqpn")), (None, None));
    }
}
