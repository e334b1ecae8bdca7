//! Three ports of one guest at a switch; the first talks to the others over the wire. The judges of storage
//! and of programs share them.

use super::machine::Machine;
use super::mlx5::cases::Mlx5Case;

/// Shell functions for these ports, and the name of their file in the guest.
pub(super) const PORTS: (&str, &str) = ("ports.sh", include_str!("ports.sh"));

/// A case made of the functions of [`PORTS`] and of another file.
pub(super) fn case(
    name: impl Into<String>,
    wanted: &'static str,
    functions: &str,
    command: &str,
) -> Mlx5Case {
    let [ports, functions] = [PORTS.0, functions].map(Machine::path_inside);
    Mlx5Case::new(name, wanted, format!(". {ports}; name_ports; . {functions}\n{command}"))
}
