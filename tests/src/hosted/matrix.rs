//! Every program of perftest against `bareverbs perf`: all operations, measures and transports, both roles, both link layers, every size. The
//! verdicts are compared with the list for the installed version of perftest.

use super::listed::ListedCase;
use crate::installation::HostedProgram;
use anyhow::{Context, Result};
use std::process::Command;

/// Prefix of the row names.
pub const NAME: &str = "perftest";
/// Link layers of both hosts.
const LINKS: [&str; 2] = ["eth", "ib"];
/// An operation, the transports on which perftest offers it, and whether its size varies: an atomic always has 8 bytes.
const OPERATIONS: [(&str, &[&str], bool); 4] = [
    ("write", &["RC", "UC", "XRC"], true),
    ("read", &["RC", "XRC"], true),
    ("send", &["RC", "UC", "UD", "XRC"], true),
    ("atomic", &["RC", "XRC"], false),
];
const MEASURES: [&str; 2] = ["bw", "lat"];
/// Number of messages of each size of a test with all sizes: perftest takes no fewer.
const OF_EACH_SIZE: u32 = 5;
/// Number of messages of a test with a single size.
const OF_ONE_SIZE: u32 = 200;

/// All rows.
pub fn cases() -> Vec<ListedCase> {
    let mut cases = Vec::new();
    for link in LINKS {
        for (operation, transports, has_sizes) in OPERATIONS {
            for measure in MEASURES {
                for transport in transports {
                    let sizes =
                        if has_sizes { format!("-a -n {OF_EACH_SIZE}") } else { format!("-n {OF_ONE_SIZE}") };
                    let options = format!("-c {transport} {sizes}");
                    cases.extend(both_roles(operation, measure, &options, link));
                }
            }
        }
    }
    cases
}

fn both_roles(operation: &str, measure: &str, options: &str, link: &str) -> [ListedCase; 2] {
    let theirs = format!("ib_{operation}_{measure} -F {options} -p {{port}}");
    let ours = format!("bareverbs perf {operation} {measure} {options} -p {{port}}");
    [(&theirs, &ours), (&ours, &theirs)].map(|(server, client)| {
        let program = |host: &str, command: &str| HostedProgram {
            host: host.to_owned(),
            command: command.split(' ').map(str::to_owned).collect(),
        };
        let options = vec!["--link".to_owned(), link.to_owned()];
        ListedCase::agreeing(program("a", server), program("b", &format!("{client} a")), options)
    })
}

/// Name of a row.
pub fn name_of(case: &ListedCase) -> String {
    format!("{NAME}: {case}")
}

/// Whether the judge runs this row without `--long`: the transports that most programs use, with every size. Every program has both
/// roles, each on one link layer: servers of ours are on InfiniBand, perftest's on Ethernet.
pub fn is_in_short_form(name: &str) -> bool {
    let is_ours = name.contains("a: bareverbs");
    let is_on_infiniband = name.contains("--link ib");
    let is_usual = ["-c RC ", "-c UD "].iter().any(|transport| name.contains(transport));
    name.contains(" -a ") && is_usual && is_ours == is_on_infiniband
}

/// Name of the list for the installed version of perftest.
///
/// # Errors
/// perftest does not print its version.
pub fn list_name() -> Result<String> {
    let said = Command::new("ib_write_bw").arg("--version").output().context("ib_write_bw --version")?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let version = version_of(&said).with_context(|| format!("ib_write_bw --version says {said:?}"))?;
    Ok(format!("run-perftest-{version}"))
}

fn version_of(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.trim().strip_prefix("Version: ")).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_program_is_there_in_both_roles_on_both_link_layers() {
        let names: BTreeSet<String> = cases().iter().map(name_of).collect();
        assert_eq!(names.len(), 88, "no row is there twice");
        for operation in ["write", "read", "send", "atomic"] {
            for measure in ["bw", "lat"] {
                for link in LINKS {
                    let (program, words) =
                        (format!("ib_{operation}_{measure}"), format!("{operation} {measure}"));
                    let rows = |server: &str, client: &str| {
                        let of_link = |name: &&String| name.ends_with(&format!("(--link {link})"));
                        let is_row = |name: &&String| {
                            name.contains(&format!(" a: {server} "))
                                && name.contains(&format!(" b: {client} "))
                        };
                        names.iter().filter(of_link).filter(is_row).count()
                    };
                    let ours = format!("bareverbs perf {words}");
                    let (served, called) = (rows(&program, &ours), rows(&ours, &program));
                    assert!(served >= 2 && served == called, "{program} {link}: {served}, {called}");
                }
            }
        }
    }

    #[test]
    fn all_sizes_are_tested_except_for_atomics() {
        for name in cases().iter().map(name_of) {
            assert_eq!(name.contains(" -a "), !name.contains("atomic"), "{name}");
        }
    }

    #[test]
    fn the_short_form_has_every_program_in_both_roles_and_half_of_its_rows_on_each_link_layer() {
        let names: Vec<String> = cases().iter().map(name_of).filter(|name| is_in_short_form(name)).collect();
        let count =
            |words: &[&str]| names.iter().filter(|name| words.iter().all(|word| name.contains(word))).count();
        assert_eq!((count(&["--link eth"]), count(&["--link ib"])), (8, 8));
        for program in ["write bw", "write lat", "read bw", "read lat", "send bw", "send lat"] {
            let theirs = format!("a: ib_{}", program.replace(' ', "_"));
            let ours = format!("a: bareverbs perf {program}");
            let sends = if program.starts_with("send") { 1 } else { 0 };
            for server in [theirs, ours] {
                assert_eq!((count(&[&server, "-c RC"]), count(&[&server, "-c UD"])), (1, sends), "{server}");
            }
        }
    }

    #[test]
    fn a_list_is_of_a_version() {
        assert_eq!(version_of("Version: 6.06\n"), Some("6.06"));
        assert_eq!(version_of("ib_write_bw: invalid option"), None);
    }
}
