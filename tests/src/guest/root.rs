//! The guest's root file system: built once from Debian's packages, and completed if it is incomplete.
//!
//! Every step first checks whether it was already done, so an interrupted build continues where it stopped
//! and a root that somebody made by hand is adopted. A stamp with the version of the recipe says that all
//! steps were done.

use super::kernel::Kernel;
use super::{Skipped, process, recipe};
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Shell commands that give `$root` the file systems that programs expect.
pub(super) const MOUNTS: &str = r#"
    mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
    mountpoint -q "$root/sys" || mount -t sysfs sysfs "$root/sys"
    mountpoint -q "$root/dev" || mount --rbind /dev "$root/dev"
"#;

/// Installs packages.
const INSTALL: &str = "apt-get install -qy --no-install-recommends -o Dpkg::Options::=--force-confold \"$@\"";

/// Installs a suite's kernel of the given series, or says which kernel the suite has.
const INSTALL_KERNEL: &str = r#"
    version=$(apt-cache madison linux-image-amd64 | awk -v suite="$1/main" '$0 ~ " " suite " " { print $3; exit }')
    test -n "$version" || { echo "$1 has no linux-image-amd64" >&2; exit 1; }
    package=$(apt-cache show "linux-image-amd64=$version" | sed -n '/^Depends:/s/.*\(linux-image-[0-9][^ ,]*\).*/\1/p' | head -n 1)
    case $package in
        "linux-image-$2."*) ;;
        *) echo "$1 has $package by now, and no kernel $2" >&2; exit 1 ;;
    esac
    apt-get install -qy --no-install-recommends -t "$1" "$package"
"#;

/// A complete root.
#[derive(Debug, Clone)]
pub struct Root {
    directory: PathBuf,
    kernel: Kernel,
}

impl Root {
    /// The root in the user's cache, built or completed if need be, with the default kernel.
    pub fn prepare() -> Result<Self> {
        Self::with_kernel(Kernel::default())
    }

    /// The same, with a kernel that is installed into it if it is not there.
    pub fn with_kernel(kernel: Kernel) -> Result<Self> {
        require_rights()?;
        let cache = cache_directory()?;
        fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
        let root = Self { directory: cache.join("root"), kernel };
        if !root.is_whole() {
            let lock = fs::File::create(cache.join("lock"))?;
            rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
            root.complete(&cache)?;
        }
        Ok(root)
    }

    /// A root of a suite of Debian with programs that run without a guest, and nothing to boot. It is built
    /// once: if the suite changes, as unstable does, the root keeps the programs of that day until it is
    /// removed.
    pub fn of_programs(suite: &str) -> Result<Self> {
        require_rights()?;
        if suite.is_empty() || !suite.bytes().all(|byte| byte.is_ascii_lowercase()) {
            bail!("{suite:?} names no suite of Debian, as bookworm, trixie or sid does");
        }
        let cache = cache_directory()?;
        fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
        let root = Self { directory: cache.join(format!("programs-{suite}")), kernel: Kernel::default() };
        let lock = fs::File::create(cache.join("lock"))?;
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)?;
        if root.stamp() != Some(recipe::VERSION) {
            RootBuilder { root: &root, log: cache.join("build.log") }.build_programs(suite)?;
        }
        Ok(root)
    }

    /// Builds what is missing, unless another process did so while this one waited for the lock.
    fn complete(&self, cache: &Path) -> Result<()> {
        let builder = RootBuilder { root: self, log: cache.join("build.log") };
        if self.stamp() != Some(recipe::VERSION) {
            builder.build()?;
        }
        if self.kernel().is_err() { builder.add_kernel(self.kernel) } else { Ok(()) }
    }

    fn is_whole(&self) -> bool {
        self.stamp() == Some(recipe::VERSION) && self.kernel().is_ok()
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Kernel and initial RAM disk, as seen from inside.
    pub fn kernel(&self) -> Result<(String, String)> {
        let release = self.kernel.newest_release(&self.directory.join("boot"))?;
        Ok((format!("/boot/vmlinuz-{release}"), format!("/boot/initrd.img-{release}")))
    }

    fn stamp_path(&self) -> PathBuf {
        self.directory.join("etc/bareverbs-guest")
    }

    fn stamp(&self) -> Option<u32> {
        fs::read_to_string(self.stamp_path()).ok()?.trim().strip_prefix("recipe ")?.parse().ok()
    }
}

/// `$BAREVERBS_CACHE/guest`, `~/.cache/bareverbs/guest` by default.
fn cache_directory() -> Result<PathBuf> {
    if let Some(cache) = std::env::var_os("BAREVERBS_CACHE").filter(|value| !value.is_empty()) {
        return Ok(PathBuf::from(cache).join("guest"));
    }
    let home = std::env::var_os("HOME").context("neither BAREVERBS_CACHE nor HOME is set")?;
    Ok(PathBuf::from(home).join(".cache/bareverbs/guest"))
}

/// Returns [`Skipped`] unless this machine can run the guest's programs and this process may create mounts
/// and change its root.
fn require_rights() -> Result<()> {
    if std::env::consts::ARCH != "x86_64" {
        return Err(Skipped("the Linux guest's programs need an x86-64 machine to run on".into()).into());
    }
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Err(Skipped(
            "the Linux guest needs root (for debootstrap and chroot); run it as root".into(),
        )
        .into());
    }
    for program in ["unshare", "setpriv", "chroot", "mount"] {
        if !process::exists(program) {
            return Err(Skipped(format!("the Linux guest needs the program {program}")).into());
        }
    }
    let mut probe = private_mounts("true");
    process::output(&mut probe)
        .map(drop)
        .map_err(|error| Skipped(format!("no mount namespace for the Linux guest here: {error:#}")).into())
}

/// A shell script in a mount namespace of its own, whose mounts end with it. `chroot` is tried too, on `/`.
fn private_mounts(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-e", "-c"]);
    command.arg(format!("chroot / true\n{script}"));
    command
}

struct RootBuilder<'a> {
    root: &'a Root,
    log: PathBuf,
}

impl RootBuilder<'_> {
    fn build(&self) -> Result<()> {
        eprintln!("guest: preparing {} (about 1 GB, some minutes, once)", self.root.directory.display());
        self.bootstrap(recipe::SUITE)?;
        self.write_sources()?;
        self.install()?;
        self.make_bootable()?;
        self.stamp()
    }

    fn build_programs(&self, suite: &str) -> Result<()> {
        eprintln!("guest: preparing {} (half a GB, a minute or two, once)", self.root.directory.display());
        self.bootstrap(suite)?;
        self.prepare_installation()?;
        // A stale mirror's lists of unstable are past their validity date.
        self.chroot("package lists", "apt-get update -q -o Acquire::Check-Valid-Until=false", &[])?;
        self.chroot("verbs and programs", INSTALL, recipe::PROGRAMS)?;
        self.chroot("removing downloads", "apt-get clean", &[])?;
        self.stamp()
    }

    /// Records that all steps were done.
    fn stamp(&self) -> Result<()> {
        Ok(fs::write(self.root.stamp_path(), format!("recipe {}\n", recipe::VERSION))?)
    }

    /// Installs a minimal Debian beside the root and moves it into place when it is complete.
    fn bootstrap(&self, suite: &str) -> Result<()> {
        if self.path("var/lib/dpkg/status").is_file() {
            return Ok(());
        }
        if self.root.directory.exists() {
            bail!("{} is no Debian root: remove it or set BAREVERBS_CACHE", self.root.directory.display());
        }
        self.install_debootstrap()?;
        let partial = self.root.directory.with_extension("partial");
        self.remove_partial(&partial)?;
        let mut command = private_mounts("exec debootstrap \"$@\"");
        command.args(["debootstrap", "--variant=minbase"]).arg(format!("--include={}", recipe::BASE));
        command.arg(suite).arg(&partial).args(recipe::mirror());
        self.run("minimal system", &mut command)?;
        fs::rename(&partial, &self.root.directory).context("cannot move the new root in place")
    }

    fn install_debootstrap(&self) -> Result<()> {
        if process::exists("debootstrap") {
            return Ok(());
        }
        if !process::exists("apt-get") {
            return Err(Skipped("debootstrap is missing and there is no apt-get to install it".into()).into());
        }
        let mut command = Command::new("sh");
        command.args(["-ec", "apt-get update -q; apt-get install -qy --no-install-recommends debootstrap"]);
        self.run("installing debootstrap", command.env("DEBIAN_FRONTEND", "noninteractive"))
    }

    fn remove_partial(&self, partial: &Path) -> Result<()> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let prefix = format!("{}/", partial.display());
        if let Some(mount) = mounts.split_whitespace().find(|word| word.starts_with(&prefix)) {
            bail!("{mount} is still mounted: unmount it, then start again");
        }
        match fs::remove_dir_all(partial) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Adds the backports.
    fn write_sources(&self) -> Result<()> {
        self.add_suite(recipe::BACKPORTS)
    }

    /// Adds a suite of the mirror that the root itself was made from.
    fn add_suite(&self, suite: &str) -> Result<()> {
        let path = self.path("etc/apt/sources.list");
        let sources = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if sources.split_whitespace().any(|word| word == suite) {
            return Ok(());
        }
        let mirror = sources
            .lines()
            .filter_map(|line| {
                line.strip_prefix("deb ")?.split_whitespace().find(|word| word.contains("://"))
            })
            .next()
            .with_context(|| format!("no mirror in {}", path.display()))?;
        let mut file = fs::File::options().append(true).open(&path)?;
        writeln!(file, "deb {mirror} {suite} main")?;
        Ok(())
    }

    fn install(&self) -> Result<()> {
        let status = fs::read_to_string(self.path("var/lib/dpkg/status"))?;
        let missing = |packages: &[&'static str]| -> Vec<&'static str> {
            packages.iter().copied().filter(|package| !is_installed(&status, package)).collect()
        };
        let (stable, backported) = (missing(recipe::PACKAGES), missing(recipe::BACKPORTED_PACKAGES));
        if stable.is_empty() && backported.is_empty() {
            return Ok(());
        }
        self.prepare_installation()?;
        self.chroot("package lists", "apt-get update -q", &[])?;
        if !stable.is_empty() {
            self.chroot("kernel, verbs and tools", INSTALL, &stable)?;
        }
        if !backported.is_empty() {
            let install = INSTALL.replace("install -qy", &format!("install -qy -t {}", recipe::BACKPORTS));
            self.chroot("QEMU", &install, &backported)?;
        }
        self.chroot("removing downloads", "apt-get clean", &[])
    }

    /// Adds a kernel that the suite of the root does not have.
    fn add_kernel(&self, kernel: Kernel) -> Result<()> {
        let suite = kernel.suite();
        self.add_suite(suite)?;
        self.prepare_installation()?;
        self.chroot("package lists", "apt-get update -q", &[])?;
        let title = format!("Linux {}", kernel.series());
        self.chroot(&title, INSTALL_KERNEL, &[suite, kernel.series()])?;
        self.chroot("removing downloads", "apt-get clean", &[])
    }

    /// Uses the host's name resolution and keeps services from starting.
    fn prepare_installation(&self) -> Result<()> {
        let resolver = self.path("etc/resolv.conf");
        if let Ok(servers) = fs::read("/etc/resolv.conf") {
            fs::write(&resolver, servers).with_context(|| format!("cannot write {}", resolver.display()))?;
        }
        let policy = self.path("usr/sbin/policy-rc.d");
        fs::write(&policy, "#!/bin/sh\nexit 101\n")?;
        fs::set_permissions(&policy, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// The kernel mounts its root over 9p, so this adds the modules to the initial RAM disk and rebuilds it. The
    /// disk holds no other drivers than those of the simulated device: an emulated guest would spend a fifth of
    /// its start on unpacking and loading them.
    fn make_bootable(&self) -> Result<()> {
        self.write_initramfs_file("conf.d/bareverbs", "MODULES=list\n", 0o644)?;
        let hook = recipe::initramfs_hook();
        self.write_initramfs_file("hooks/bareverbs", &hook, 0o755)?;
        let path = self.path("etc/initramfs-tools/modules");
        let mut modules =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        for module in recipe::BOOT_MODULES {
            if !modules.lines().any(|line| line == *module) {
                modules.push_str(module);
                modules.push('\n');
            }
        }
        fs::write(&path, modules)?;
        self.chroot("initial RAM disk", "update-initramfs -u -k all", &[])
    }

    /// Writes a file of the configuration from which the initial RAM disk is made.
    fn write_initramfs_file(&self, name: &str, text: &str, mode: u32) -> Result<()> {
        let path = self.path("etc/initramfs-tools").join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(())
    }

    /// Runs a script inside the root, with the file systems that programs expect.
    fn chroot(&self, title: &str, script: &str, arguments: &[&str]) -> Result<()> {
        let mut command = private_mounts(&format!(
            "root=$1; script=$2; shift 2
             {MOUNTS}
             exec chroot \"$root\" sh -e -c \"$script\" sh \"$@\""
        ));
        command.arg("sh").arg(&self.root.directory).arg(script).args(arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        self.run(title, &mut command)
    }

    fn run(&self, title: &str, command: &mut Command) -> Result<()> {
        process::run_shown(title, command, &self.log, Duration::from_secs(1800))
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.root.directory.join(relative)
    }
}

/// Whether dpkg's status file says that a package is installed and configured.
fn is_installed(status: &str, package: &str) -> bool {
    let name = format!("Package: {package}");
    status.split("\n\n").any(|paragraph| {
        paragraph.lines().any(|line| line == name)
            && paragraph.lines().any(|line| line == "Status: install ok installed")
    })
}

#[cfg(test)]
mod tests {
    use super::is_installed;

    #[test]
    fn a_package_counts_only_when_it_is_configured() {
        let status =
            "Package: one\nStatus: install ok installed\n\nPackage: two\nStatus: install ok unpacked\n";
        assert!(is_installed(status, "one"));
        assert!(!is_installed(status, "two"));
        assert!(!is_installed(status, "on"));
    }
}
