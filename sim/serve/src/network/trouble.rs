//! Faults injected from outside into a network of running programs: unplugged cables, partitions, frame loss.
//!
//! Each fault is a file. So it also applies to processes that start later, and lasts until somebody removes it, not
//! until its creator exits.

use super::{NetworkDirectory, NetworkError, names};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Directory with a file for each host whose cable is unplugged.
const CUT: &str = "cut";
/// Directory with a file for each partitioned pair of hosts: their names in order, joined by [`BETWEEN`].
const APART: &str = "apart";
/// A character that no host name contains.
const BETWEEN: char = ':';
/// Directory with a file for each host with faults, in the syntax of [`FaultScript`](crate::real_time::FaultScript).
const FAULTS: &str = "faults";

impl NetworkDirectory {
    /// Plugs or unplugs the cable of a host, also for processes that start later.
    pub fn set_cable(&self, host: &str, plugged_in: bool) -> Result<(), NetworkError> {
        self.mark(CUT, host, (!plugged_in).then_some(""))
    }

    /// Whether the cable of a host is plugged in.
    pub fn has_cable(&self, host: &str) -> bool {
        !self.path().join(CUT).join(host).exists()
    }

    /// Starts or ends a partition between two hosts, in both directions. Other hosts still reach both.
    pub fn set_apart(&self, a: &str, b: &str, apart: bool) -> Result<(), NetworkError> {
        let (first, second) = if a <= b { (a, b) } else { (b, a) };
        self.mark(APART, &format!("{first}{BETWEEN}{second}"), apart.then_some(""))
    }

    /// Hosts that a host is partitioned from.
    pub fn apart_from(&self, host: &str) -> Vec<String> {
        let pairs = names(&self.path().join(APART));
        let other = |pair: &String| match pair.split_once(BETWEEN)? {
            (first, second) if first == host => Some(second.to_owned()),
            (first, second) if second == host => Some(first.to_owned()),
            _ => None,
        };
        pairs.iter().filter_map(other).collect()
    }

    /// Sets the faults on a host's frames in both directions, overriding those its programs were started with. An empty
    /// text removes them.
    pub fn set_faults(&self, host: &str, script: &str) -> Result<(), NetworkError> {
        self.mark(FAULTS, host, Some(script).filter(|script| !script.is_empty()))
    }

    /// Faults on a host's frames; empty unless set.
    pub fn faults(&self, host: &str) -> String {
        fs::read_to_string(self.path().join(FAULTS).join(host)).unwrap_or_default()
    }

    /// Removes all faults and returns their descriptions.
    pub fn end_trouble(&self) -> Result<Vec<String>, NetworkError> {
        let mut ended = Vec::new();
        for kind in [CUT, APART, FAULTS] {
            for name in names(&self.path().join(kind)) {
                self.mark(kind, &name, None)?;
                ended.push(format!("{kind} {name}"));
            }
        }
        Ok(ended)
    }

    /// Writes or removes a file of this kind.
    fn mark(&self, kind: &str, name: &str, text: Option<&str>) -> Result<(), NetworkError> {
        let directory = self.path().join(kind);
        let mark = directory.join(name);
        let done = match text {
            Some(text) => fs::create_dir_all(directory).and_then(|()| self.replace(mark, text)),
            None => fs::remove_file(mark).or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
        };
        done.map_err(|error| self.trouble(error))
    }

    /// Writes a temporary file and renames it, so that nobody reads a partial file.
    pub(super) fn replace(&self, path: PathBuf, text: &str) -> io::Result<()> {
        let unfinished = self.path().join(format!("unfinished-{}", std::process::id()));
        fs::write(&unfinished, text).and_then(|()| fs::rename(unfinished, path))
    }
}
