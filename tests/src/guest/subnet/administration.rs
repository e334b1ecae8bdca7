//! The SA, judged by `osmtest`, which comes with OpenSM, and by a program of libibumad for requests that `osmtest` does not send: paths between many
//! ports, services, and Reports of events.
//!
//! `osmtest` first writes an inventory of all SA records. Then it queries everything again in many ways, some of which have to be refused, and compares
//! the records; it subscribes, and creates, joins and leaves groups.

use super::built::BuiltSubnet;
use super::row::{DiagnosticRow, gid, row};
use bareverbs_sim::net::MANAGER_LID;

/// A program for the guest.
pub(super) const FILES: &[(&str, &str)] = &[("administration.py", include_str!("administration.py"))];

/// Rows that run before the IPoIB interfaces join groups, since osmtest counts groups.
pub(super) fn all(built: &BuiltSubnet) -> Vec<DiagnosticRow> {
    let mut rows = osmtest();
    rows.push(paths(built));
    rows.push(service(built));
    rows
}

fn osmtest() -> Vec<DiagnosticRow> {
    let passes = |name, arguments: &str, flow: &str| {
        row(name, format!("osmtests {arguments}"), [format!("OSMTEST: TEST \"{flow}\" PASS")])
    };
    vec![
        passes("osmtest writes an inventory", "c", "Create Inventory"),
        passes("osmtest finds all as in the inventory", "v", "Validate Inventory"),
        passes("osmtest makes groups and joins them", "m", "Multicast"),
        passes("osmtest stresses the SA", "f -s 2", "Stress SA"),
    ]
}

/// A service that one program registers and another one finds, until its lease ends. osmtest's own rows for
/// services are left out: it writes the prefix of ServiceGID in host byte order, which OpenSM does not check.
fn service(built: &BuiltSubnet) -> DiagnosticRow {
    row(
        "a service is offered, found and ends with its lease",
        format!(
            "administration service $near {MANAGER_LID} {} 4 && saquery -C $far SR && within \"! saquery -C \\$far SR | grep -q ServiceID\" && echo gone",
            gid(&built.near)
        ),
        [
            "ServiceID 0x0000000000001234".to_owned(),
            format!("ServiceGID {}", gid(&built.near)),
            "gone".to_owned(),
        ],
    )
}

/// MultiPathRecord by SubnAdmGetMulti.
fn paths(built: &BuiltSubnet) -> DiagnosticRow {
    let (near, far) = (&built.near, &built.far);
    let path = |from: &super::built::BuiltPort, to: &super::built::BuiltPort| {
        format!("path {} {} to {} {}", gid(from), from.lid, gid(to), to.lid)
    };
    let gids = format!("{},{}", gid(near), gid(far));
    row(
        "paths from two ports to two",
        format!("administration paths $near {MANAGER_LID} {gids} {gids}"),
        [path(near, far), path(far, near), path(near, near), path(far, far)],
    )
}
