//! Faults as values: drawn from a seed, removed one by one when shrinking, formatted and parsed.

use crate::cluster::SimCluster;
use bareverbs_prm::time::Duration;
use bareverbs_sim::net::RandomFaults;
use core::fmt;
use core::str::FromStr;

/// A fault that lasts for a while.
///
/// Its text form is what a failing trial prints, and what `bareverbs inject` applies to the programs of a `bareverbs
/// run` network.
///
/// ```
/// use bareverbs_cluster::{Fault, FaultKind};
/// use bareverbs_prm::time::Duration;
///
/// let fault: Fault = "partition:0:2@5ms+250us".parse().unwrap();
/// assert_eq!(fault.kind, FaultKind::Partition { with: 2 });
/// assert_eq!((fault.after, fault.lasts), (Duration::from_millis(5), Duration::from_micros(250)));
/// assert_eq!(fault.to_string(), "partition:0:2@5000000ns+250000ns");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// The affected host.
    pub host: usize,
    /// Start, relative to [`SimCluster::inject`].
    pub after: Duration,
    /// Duration.
    pub lasts: Duration,
}

/// Kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The host loses power, then boots again.
    Crash,
    /// The host's processes are paused; its NICs keep running.
    Pause,
    /// The host's links are down.
    Cut,
    /// The host and another one cannot reach each other.
    Partition {
        /// The other host.
        with: usize,
    },
    /// The host's cables drop `per_mille` of the frames in both directions, and delay as many.
    Loss {
        /// Frames per thousand.
        per_mille: u16,
    },
    /// The host's clock runs at the wrong rate.
    Skew {
        /// Parts per million; negative when slow.
        ppm: i64,
    },
}

/// Longest delay of a delayed frame.
const LATE: Duration = Duration::from_micros(30);

impl Fault {
    /// Whether the fault names a host outside `0..hosts`.
    pub(crate) fn is_beyond(&self, hosts: usize) -> bool {
        let other = if let FaultKind::Partition { with } = self.kind { with } else { 0 };
        self.host >= hosts || other >= hosts
    }

    fn begin(self, cluster: &SimCluster) {
        let host = self.host;
        match self.kind {
            FaultKind::Crash => cluster.crash(host),
            FaultKind::Pause => cluster.pause(host),
            FaultKind::Cut => set_links(cluster, host, false),
            FaultKind::Partition { with } => cluster.partition(host, with),
            FaultKind::Loss { per_mille } => set_loss(cluster, host, per_mille),
            FaultKind::Skew { ppm } => cluster.set_clock_rate(host, ppm),
        }
    }

    fn end(self, cluster: &SimCluster) {
        let host = self.host;
        match self.kind {
            FaultKind::Crash => cluster.restart(host),
            FaultKind::Pause => cluster.resume(host),
            FaultKind::Cut => set_links(cluster, host, true),
            FaultKind::Partition { with } => cluster.heal(host, with),
            FaultKind::Loss { .. } => set_loss(cluster, host, 0),
            FaultKind::Skew { .. } => cluster.set_clock_rate(host, 0),
        }
    }
}

impl SimCluster {
    /// Schedules the start and the end of each fault.
    pub fn inject(&self, faults: &[Fault]) {
        for &fault in faults {
            self.schedule(fault.after, move |cluster| fault.begin(cluster));
            self.schedule(fault.after + fault.lasts, move |cluster| fault.end(cluster));
        }
    }
}

fn ports(cluster: &SimCluster, host: usize) -> usize {
    cluster.state.host(host, |state| state.ports.len())
}

/// Sets the links of a host that is up. The links of a host that is down stay down.
fn set_links(cluster: &SimCluster, host: usize, up: bool) {
    let is_up = cluster.state.host(host, |state| state.is_up);
    (0..ports(cluster, host)).filter(|_| is_up).for_each(|port| cluster.set_link_up(host, port, up));
}

fn set_loss(cluster: &SimCluster, host: usize, per_mille: u16) {
    let loss = RandomFaults::loss(f64::from(per_mille) / 1000.0);
    let faults = RandomFaults { reorder: loss.loss, reorder_by: LATE, ..loss };
    (0..ports(cluster, host)).for_each(|port| cluster.set_faults(host, port, faults));
}

/// Formats as `crash:1@120000ns+2000000ns`: kind, host, start, duration.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, host, after, lasts } = self;
        match kind {
            FaultKind::Crash => write!(f, "crash:{host}")?,
            FaultKind::Pause => write!(f, "pause:{host}")?,
            FaultKind::Cut => write!(f, "cut:{host}")?,
            FaultKind::Partition { with } => write!(f, "partition:{host}:{with}")?,
            FaultKind::Loss { per_mille } => write!(f, "loss:{host}:{per_mille}")?,
            FaultKind::Skew { ppm } => write!(f, "skew:{host}:{ppm}")?,
        }
        write!(f, "@{}ns+{}ns", after.as_nanos(), lasts.as_nanos())
    }
}

/// Parses times in `ns`, `us`, `ms` or `s`.
impl FromStr for Fault {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (what, when) = text.split_once('@').ok_or(())?;
        let (after, lasts) = when.split_once('+').ok_or(())?;
        let mut parts = what.split(':');
        let (name, host) = (parts.next().ok_or(())?, number(parts.next())?);
        let kind = match name {
            "crash" => FaultKind::Crash,
            "pause" => FaultKind::Pause,
            "cut" => FaultKind::Cut,
            "partition" => FaultKind::Partition { with: number(parts.next())? },
            "loss" => FaultKind::Loss { per_mille: number(parts.next())? },
            "skew" => FaultKind::Skew { ppm: number(parts.next())? },
            _ => return Err(()),
        };
        match parts.next() {
            None => Ok(Self { kind, host, after: span(after)?, lasts: span(lasts)? }),
            Some(_) => Err(()),
        }
    }
}

fn number<T: FromStr>(text: Option<&str>) -> Result<T, ()> {
    text.and_then(|text| text.parse().ok()).ok_or(())
}

/// Parses an integer with a unit: `ns`, `us`, `ms` or `s`.
fn span(text: &str) -> Result<Duration, ()> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: fn(u64) -> Duration = match &text[digits.len()..] {
        "ns" => Duration::from_nanos,
        "us" => Duration::from_micros,
        "ms" => Duration::from_millis,
        "s" => Duration::from_secs,
        _ => return Err(()),
    };
    number(Some(digits)).map(unit)
}
