//! Whether this system's UCX supports RDMA at all.

use std::process::Command;

/// Part of a command that makes UCX use our device.
const DEVICE: &str = "UCX_NET_DEVICES=";

/// Why a command cannot run here: it needs UCX with verbs, and this UCX was built without them, like Debian's 1.23.0~rc1.
pub(super) fn missing(command: &[String]) -> Option<String> {
    if !command.iter().any(|word| word.starts_with(DEVICE)) {
        return None;
    }
    let built = Command::new("ucx_info").arg("-b").output().ok()?;
    let built = String::from_utf8_lossy(&built.stdout).into_owned();
    (!has_verbs(&built)).then(|| "UCX was built without its module for InfiniBand verbs here".to_owned())
}

/// Whether UCT's modules, as `ucx_info -b` lists them, include the one for verbs.
fn has_verbs(built: &str) -> bool {
    let modules = built.lines().filter_map(|line| line.strip_prefix("#define uct_MODULES"));
    modules.flat_map(|names| names.trim().trim_matches('"').split(':')).any(|name| name == "ib")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_for_verbs_is_found_among_those_of_uct() {
        assert!(has_verbs(
            "#define uct_ib_MODULES            \"\"\n#define uct_MODULES               \":ib:rdmacm:cma\"\n"
        ));
        assert!(!has_verbs(
            "#define uct_MODULES               \":rocm:ze:cma\"\n#define uct_ib_MODULES            \":ib\"\n"
        ));
        assert_eq!(missing(&["ibv_devices".to_owned()]), None, "it does not ask for UCX");
    }
}
