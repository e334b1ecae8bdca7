//! Processors of the test: `--pin_cores`, `--numa_node`.

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::path::Path;

/// The directory of NUMA nodes, with the processors of each.
const NODES: &str = "/sys/devices/system/node";

/// Options of placement.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlacementArguments {
    /// Run on these processors, such as "0,2-4".
    #[arg(long = "pin_cores", alias = "pin-cores", value_name = "LIST", conflicts_with = "node")]
    cores: Option<String>,
    /// Run on the processors of this NUMA node.
    #[arg(long = "numa_node", alias = "numa-node", value_name = "NODE")]
    node: Option<u32>,
}

impl PlacementArguments {
    /// Binds this thread, and the threads it starts, to the requested processors.
    pub(crate) fn apply(&self) -> Result<()> {
        let (list, option) = match (&self.cores, self.node) {
            (Some(list), _) => (list.clone(), format!("--pin_cores {list}")),
            (None, Some(node)) => {
                let path = Path::new(NODES).join(format!("node{node}/cpulist"));
                let list = std::fs::read_to_string(&path);
                let list = list.with_context(|| format!("--numa_node {node}: reading {}", path.display()))?;
                (list.trim().to_owned(), format!("--numa_node {node}"))
            }
            (None, None) => return Ok(()),
        };
        let mut set = CpuSet::new();
        for core in cores(&list).with_context(|| option.clone())? {
            set.set(core);
        }
        sched_setaffinity(None, &set)
            .with_context(|| format!("{option}: this process may run on none of these processors"))
    }
}

/// The numbers in a list of processors in Linux's format.
fn cores(list: &str) -> Result<Vec<usize>> {
    let mut all = Vec::new();
    for part in list.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else {
            bail!("{part:?} does not name processors; write them as 0,2-4");
        };
        ensure!(first <= last, "{part:?}: the first is after the last");
        ensure!(last < CpuSet::MAX_CPU, "{part:?}: processor numbers go up to {}", CpuSet::MAX_CPU - 1);
        all.extend(first..=last);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_processors_is_read_as_linux_writes_it() {
        assert_eq!(cores("0,2-4, 7").unwrap(), [0, 2, 3, 4, 7]);
        for wrong in ["", "x", "3-1", "1-", "0,,1", "0-99999"] {
            assert!(cores(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_processor_that_is_not_there_is_refused() {
        let apply = |cores: Option<&str>, node| {
            PlacementArguments { cores: cores.map(str::to_owned), node }
                .apply()
                .map_err(|error| format!("{error:#}"))
        };
        assert!(apply(Some("1023"), None).unwrap_err().contains("--pin_cores 1023"));
        assert!(apply(None, Some(4_000_000)).unwrap_err().contains("--numa_node 4000000"));
        assert_eq!(apply(None, None), Ok(()));
    }
}
