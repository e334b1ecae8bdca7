//! `run-judge` with the programs of another Debian: in the guest's root or one of its own, but on this
//! machine's kernel and without a guest.

use super::machine::MOUNT_POINT;
use super::recipe;
use super::root::{MOUNTS, Root};
use anyhow::{Context, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// The programs under test, and their judge. They lie beside this program.
const FILES: [&str; 3] = ["run-judge", "bareverbs", "libbareverbs_preload.so"];
/// Where the lists of the source tree are.
const LISTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/judges");

/// Runs the judge to its end with the programs of a suite of Debian, in a mount namespace that ends with it.
///
/// # Errors
/// The root cannot be built, or the judge cannot be started.
pub fn run_judge(suite: &str, arguments: &[String]) -> Result<ExitStatus> {
    let root = if suite == recipe::SUITE { Root::prepare()? } else { Root::of_programs(suite)? };
    let own = std::env::current_exe().context("where am I")?;
    let built = own.parent().context("a program is in a directory")?;
    let shared = tempfile::Builder::new().prefix("bareverbs-judge-").tempdir()?;
    std::fs::set_permissions(shared.path(), std::fs::Permissions::from_mode(0o755))?;
    for name in FILES {
        let copied = std::fs::copy(built.join(name), shared.path().join(name));
        copied.with_context(|| format!("{name}: cargo build --release makes it"))?;
    }
    std::fs::create_dir(shared.path().join("judges"))?;
    let mut command = in_root(&root, shared.path());
    command.args(arguments);
    command.status().context("cannot run setpriv")
}

/// The command that runs the judge in `root`, with `shared` at the guest's mount point and a `/tmp` of its own.
fn in_root(root: &Root, shared: &Path) -> Command {
    let script = format!(
        "root=$1; shared=$2; lists=$3; shift 3
         {MOUNTS}
         mount -t tmpfs tmpfs \"$root/tmp\"
         mount --bind \"$lists\" \"$shared/judges\"
         mount --rbind \"$shared\" \"$root{MOUNT_POINT}\"
         exec chroot \"$root\" {MOUNT_POINT}/run-judge \"$@\""
    );
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "unshare", "--mount", "--propagation", "private"]);
    command.args(["sh", "-e", "-c", &script, "sh"]).arg(root.directory()).arg(shared).arg(LISTS);
    command
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("HOME", "/tmp")
        .env("TMPDIR", "/tmp");
    command.env("BAREVERBS_JUDGES", format!("{MOUNT_POINT}/judges")).stdin(Stdio::null());
    command
}
