//! Carries out acts on a network of `bareverbs run`.

use super::plan::Act;
use anyhow::{Context, Result, ensure};
use bareverbs_serve::network::NetworkDirectory;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a process may take to stop.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The hosts of a network, and what was done to them.
pub(super) struct Stage {
    network: NetworkDirectory,
    /// The processes that this stage stopped, and may let go on.
    stopped: BTreeMap<String, Vec<Pid>>,
    /// Acts that undo what has begun, the latest first.
    undo: Vec<Act>,
}

impl Stage {
    pub(super) fn new(network: NetworkDirectory) -> Self {
        Self { network, stopped: BTreeMap::new(), undo: Vec::new() }
    }

    /// Carries out an act, and remembers how to undo it.
    pub(super) fn perform(&mut self, act: &Act) -> Result<()> {
        let undo = ending(act);
        match &undo {
            Some(undo) => self.undo.insert(0, undo.clone()),
            None => self.undo.retain(|other| other != act),
        }
        let network = &self.network;
        match act {
            Act::Kill { host } => self.signal(host, Signal::KILL),
            Act::Stop { host, begins: true } => self.signal(host, Signal::STOP),
            Act::Stop { host, begins: false } => self.let_go(host),
            Act::Cut { host, begins } => Ok(network.set_cable(host, !begins)?),
            Act::Part { host, other, begins } => Ok(network.set_apart(host, other, *begins)?),
            Act::Lose { host, per_mille } => Ok(network.set_faults(host, &script(*per_mille))?),
        }
    }

    /// Undoes everything that has begun.
    pub(super) fn end(&mut self) -> Result<()> {
        for act in std::mem::take(&mut self.undo) {
            self.perform(&act)?;
        }
        Ok(())
    }

    /// Sends a signal to the processes of a host that have its device.
    fn signal(&mut self, host: &str, signal: Signal) -> Result<()> {
        for pid in self.processes(host) {
            match kill_process(pid, signal) {
                // It has ended meanwhile.
                Err(rustix::io::Errno::SRCH) => continue,
                done => {
                    done.with_context(|| format!("cannot send {signal:?} to process {pid:?} of host {host}"))?
                }
            }
            if signal == Signal::STOP {
                self.stopped.entry(host.to_owned()).or_default().push(pid);
                await_stop(pid).with_context(|| format!("host {host} did not stop"))?;
            }
        }
        Ok(())
    }

    fn let_go(&mut self, host: &str) -> Result<()> {
        for pid in self.stopped.remove(host).unwrap_or_default() {
            match kill_process(pid, Signal::CONT) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => {
                    Err(error).with_context(|| format!("process {pid:?} of host {host} did not resume"))?
                }
            }
        }
        Ok(())
    }

    /// The processes of a host, whether or not they are stopped. One that has ended meanwhile is none.
    fn processes(&self, host: &str) -> Vec<Pid> {
        let id = |number| self.network.process_id(host, number).ok().and_then(pid_of);
        self.network.processes(host).into_iter().filter_map(id).collect()
    }
}

/// Resumes all stopped processes of a network, also those that others stopped. Returns the ones that were stopped.
pub(super) fn wake_all(network: &NetworkDirectory) -> Result<Vec<String>> {
    let mut woken = Vec::new();
    for host in network.hosts() {
        for number in network.processes(&host) {
            // It may have ended meanwhile.
            let Ok(process) = network.process_id(&host, number) else { continue };
            let Some(pid) = pid_of(process).filter(|_| state_of(process) == Some('T')) else { continue };
            match kill_process(pid, Signal::CONT) {
                Err(rustix::io::Errno::SRCH) => continue,
                done => done.with_context(|| format!("process {process} of host {host} did not resume"))?,
            }
            woken.push(format!("pause {host} (process {process})"));
        }
    }
    Ok(woken)
}

/// Waits until a process that was sent SIGSTOP is stopped, which takes a moment, or has ended.
fn await_stop(pid: Pid) -> Result<()> {
    let process = pid.as_raw_nonzero().get().unsigned_abs();
    let begin = Instant::now();
    while !matches!(state_of(process), Some('T' | 'Z') | None) {
        ensure!(begin.elapsed() < TIMEOUT, "process {process} still runs {TIMEOUT:?} after SIGSTOP");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The state of a process, `T` if it is stopped: it follows its name, which is in parentheses and may contain some
/// (proc_pid_stat(5)).
fn state_of(process: u32) -> Option<char> {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    status.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The act that undoes another; `None` if an act undoes one itself, or cannot be undone.
fn ending(act: &Act) -> Option<Act> {
    match act.clone() {
        Act::Stop { host, begins: true } => Some(Act::Stop { host, begins: false }),
        Act::Cut { host, begins: true } => Some(Act::Cut { host, begins: false }),
        Act::Part { host, other, begins: true } => Some(Act::Part { host, other, begins: false }),
        Act::Lose { host, per_mille } if per_mille > 0 => Some(Act::Lose { host, per_mille: 0 }),
        _ => None,
    }
}

/// The fault script for loss and delay, as in a simulated cluster.
fn script(per_mille: u16) -> String {
    if per_mille == 0 {
        return String::new();
    }
    let chance = f64::from(per_mille.min(1000)) / 1000.0;
    format!("loss={chance},reorder={chance},reorder-by=30us")
}

fn pid_of(process: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(process).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_serve::real_time::FaultScript;

    fn stage() -> (tempfile::TempDir, Stage) {
        let home = tempfile::tempdir().unwrap();
        let network = NetworkDirectory::create(home.path()).unwrap();
        (home, Stage::new(network))
    }

    #[test]
    fn each_fault_that_began_is_ended_once() {
        let (_home, mut stage) = stage();
        let [host, other] = ["a", "b"].map(str::to_owned);
        let part = |begins| Act::Part { host: host.clone(), other: other.clone(), begins };
        stage.perform(&part(true)).unwrap();
        stage.perform(&Act::Cut { host: host.clone(), begins: true }).unwrap();
        stage.perform(&Act::Lose { host: other.clone(), per_mille: 20 }).unwrap();
        assert_eq!(stage.network.apart_from("b"), ["a"]);
        assert!(!stage.network.has_cable("a"));
        assert_eq!(stage.network.faults("b"), "loss=0.02,reorder=0.02,reorder-by=30us");
        stage.network.faults("b").parse::<FaultScript>().unwrap();
        stage.perform(&part(false)).unwrap();
        assert_eq!(stage.undo.len(), 2);
        stage.end().unwrap();
        assert_eq!(stage.network.end_trouble().unwrap(), Vec::<String>::new());
        assert!(stage.undo.is_empty());
    }
}
