//! Three ports of one guest at a switch, of which the first speaks with the others over the wire: what the judges of storage and of
//! programs have in common.

use super::machine::Machine;
use super::mlx5::cases::Mlx5Case;

/// Functions of the shell for such ports, and what they are called in the guest.
pub(super) const PORTS: (&str, &str) = ("ports.sh", include_str!("ports.sh"));

/// A question made of the functions of [`PORTS`] and of another file.
pub(super) fn case(
    name: impl Into<String>,
    wanted: &'static str,
    functions: &str,
    command: &str,
) -> Mlx5Case {
    let [ports, functions] = [PORTS.0, functions].map(Machine::path_inside);
    Mlx5Case::new(name, wanted, format!(". {ports}; name_ports; . {functions}\n{command}"))
}
