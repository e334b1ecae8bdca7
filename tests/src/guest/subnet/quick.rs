//! The short form: rows that cannot pass unless most of the subnet works. They take two to four minutes.
//!
//! It leaves out `bareverbs ipoib` and `bareverbs perf`, which run on this machine, and most rows that query a single attribute. The OpenSM rows
//! depend on their order: OpenSM starts, takes over the subnet, restarts with partitions, and ends.

/// Names of the rows. Rows that others need run too.
pub(super) const ROWS: &[&str] = &[
    "ibnetdiscover",
    "ibnetdiscover from the other port",
    "iblinkinfo",
    "ibroute of the other switch",
    "ibtracert",
    "smpquery nodeinfo along a directed route",
    "smpquery pkeys of a switch",
    "perfquery -x -r",
    "perfquery -a of a switch",
    "ibqueryerrors",
    "saquery --src-to-dst",
    "osmtest writes an inventory",
    "osmtest finds all as in the inventory",
    "osmtest makes groups and joins them",
    "paths from two ports to two",
    "a service is offered, found and ends with its lease",
    "IPoIB joins the group of broadcasts",
    "saquery MFTR",
    "ibping",
    "OpenSM of higher priority becomes the master",
    "the built-in manager stands by",
    "ports keep their LIDs",
    "ibnetdiscover under OpenSM",
    "saquery SMIR of OpenSM",
    "OpenSM reads a file of partitions",
    "RDMA in a partition of full members",
    "RDMA between limited members is refused",
    "the built-in manager has the subnet again",
    "ibnetdiscover after OpenSM",
    "kernel log",
    "IPoIB ping",
    "IPoIB ping of IPv6",
    "IPoIB TCP",
    "IPoIB multicast",
    "IPoIB addresses: rping",
    "IPoIB addresses: ib_write_bw -R",
];

#[cfg(test)]
mod tests {
    use super::super::{built, rows};
    use super::ROWS;

    #[test]
    fn each_row_is_one_of_the_judge() {
        let built = built::example();
        let all: Vec<&str> = rows::all(&built).iter().map(|row| row.name).collect();
        for name in ROWS {
            assert_eq!(all.iter().filter(|known| known == &name).count(), 1, "{name}");
        }
    }
}
