//! What somebody does to the hosts of a network while their programs run: cables that are out, hosts that do not reach each other, frames that are lost.
//!
//! Each is a file, so that it holds for processes that come later too, and ends with whoever takes it away and not with whoever made it.

use super::{NetworkDirectory, NetworkError, names};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

/// Directory with a file for each host whose cable is pulled out.
const CUT: &str = "cut";
/// Directory with a file for each two hosts that do not reach each other: their names in order, and [`BETWEEN`] between them.
const APART: &str = "apart";
/// No name of a host has it.
const BETWEEN: char = ':';
/// Directory with a file for each host whose frames meet faults, as [`FaultScript`](crate::real_time::FaultScript) reads them.
const FAULTS: &str = "faults";

impl NetworkDirectory {
    /// Pulls the cable of a host out, also for processes that come later, or plugs it in again.
    pub fn set_cable(&self, host: &str, plugged_in: bool) -> Result<(), NetworkError> {
        self.mark(CUT, host, (!plugged_in).then_some(""))
    }

    /// Whether the cable of a host is plugged in.
    pub fn has_cable(&self, host: &str) -> bool {
        !self.path().join(CUT).join(host).exists()
    }

    /// Lets no frame pass between two hosts, in neither direction, or lets them pass again. Others reach both.
    pub fn set_apart(&self, a: &str, b: &str, apart: bool) -> Result<(), NetworkError> {
        let (first, second) = if a <= b { (a, b) } else { (b, a) };
        self.mark(APART, &format!("{first}{BETWEEN}{second}"), apart.then_some(""))
    }

    /// Hosts that a host does not reach.
    pub fn apart_from(&self, host: &str) -> Vec<String> {
        let pairs = names(&self.path().join(APART));
        let other = |pair: &String| match pair.split_once(BETWEEN)? {
            (first, second) if first == host => Some(second.to_owned()),
            (first, second) if second == host => Some(first.to_owned()),
            _ => None,
        };
        pairs.iter().filter_map(other).collect()
    }

    /// Sets what goes wrong with the frames of a host, in both directions, instead of what its programs were started with; an empty text ends it.
    pub fn set_faults(&self, host: &str, script: &str) -> Result<(), NetworkError> {
        self.mark(FAULTS, host, Some(script).filter(|script| !script.is_empty()))
    }

    /// What goes wrong with the frames of a host; empty unless somebody has set it.
    pub fn faults(&self, host: &str) -> String {
        fs::read_to_string(self.path().join(FAULTS).join(host)).unwrap_or_default()
    }

    /// Ends all of it, and says what there was.
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

    /// Writes a file of this kind, or takes it away.
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

    /// Writes a file under a name of its own first: nobody reads half of it.
    pub(super) fn replace(&self, path: PathBuf, text: &str) -> io::Result<()> {
        let unfinished = self.path().join(format!("unfinished-{}", std::process::id()));
        fs::write(&unfinished, text).and_then(|()| fs::rename(unfinished, path))
    }
}
