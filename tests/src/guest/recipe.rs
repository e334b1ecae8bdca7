//! The packages of the guest's root, and the Debian mirror to get them from.

use super::process;
use std::process::Command;

/// Raise this when the lists below change: a root built from another version is completed again.
pub const VERSION: u32 = 7;
/// Debian release of the guest.
pub const SUITE: &str = "trixie";
/// Suite that holds a QEMU with `vfio-user-pci`.
pub const BACKPORTS: &str = "trixie-backports";
/// What debootstrap adds to a minimal system.
pub const BASE: &str = "ca-certificates,kmod,iproute2,busybox";
/// Packages from [`SUITE`].
pub const PACKAGES: &[&str] = &[
    "linux-image-amd64",
    "initramfs-tools",
    "rdma-core",
    "ibverbs-utils",
    "ibverbs-providers",
    "perftest",
    "infiniband-diags",
    "opensm",
    "rdmacm-utils",
    "python3-pyverbs",
    "pciutils",
    "tcpdump",
    "iputils-ping",
    "ethtool",
    "iperf3",
    "strace",
    "python3-scapy",
    "fio",
    "nfs-common",
    "nfs-kernel-server",
    "open-iscsi",
    "ucx-utils",
    "openmpi-bin",
    "python3-mpi4py",
    "libfabric-bin",
    "qperf",
    "dpdk-dev",
    "librte-net-mlx5-25",
];
/// Packages of a root whose programs run without a guest, in any suite.
pub const PROGRAMS: &[&str] = &[
    "rdma-core",
    "ibverbs-utils",
    "ibverbs-providers",
    "libibverbs-dev",
    "librdmacm-dev",
    "rdmacm-utils",
    "python3-pyverbs",
    "perftest",
    "qperf",
    "ucx-utils",
    "openmpi-bin",
    "libopenmpi-dev",
    "libfabric-bin",
    "gcc",
    "libc6-dev",
    "valgrind",
];
/// Packages from [`BACKPORTS`].
pub const BACKPORTED_PACKAGES: &[&str] = &["qemu-system-x86", "qemu-system-arm"];
/// Modules that the kernel needs to mount its root.
pub const BOOT_MODULES: &[&str] = &["9p", "9pnet_virtio", "virtio_pci", "virtio_net", "virtio_console"];
/// Drivers of the simulated device, which the initial RAM disk loads if the guest has one.
const DEVICE_MODULES: &[&str] = &["mlx5_core", "mlx5_ib", "ib_uverbs"];
/// Names a mirror if the machine's own package manager knows none.
pub const MIRROR_VARIABLE: &str = "BAREVERBS_DEBIAN_MIRROR";

/// A hook of initramfs-tools that adds the drivers of the simulated device, to be loaded when udev finds it.
pub fn initramfs_hook() -> String {
    format!(
        "#!/bin/sh\n[ \"$1\" != prereqs ] || exit 0\n. /usr/share/initramfs-tools/hook-functions\nmanual_add_modules {}\n",
        DEVICE_MODULES.join(" ")
    )
}

/// The Debian mirror: from the environment, else from apt's own configuration, else `None` (debootstrap's default).
pub fn mirror() -> Option<String> {
    std::env::var(MIRROR_VARIABLE).ok().filter(|value| !value.is_empty()).or_else(mirror_of_apt)
}

fn mirror_of_apt() -> Option<String> {
    let mut command = Command::new("apt-get");
    command.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
    first_debian_archive(&process::output(&mut command).ok()?)
}

/// The first archive of Debian itself in a list of repositories, one per line: neither security nor another
/// vendor.
fn first_debian_archive(repositories: &str) -> Option<String> {
    repositories
        .lines()
        .map(|line| line.trim().trim_end_matches('/'))
        .find(|uri| uri.starts_with("http") && uri.rsplit('/').next() == Some("debian"))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::first_debian_archive;

    #[test]
    fn takes_the_archive_and_neither_security_nor_a_vendor() {
        let list = "https://packages.example/apt/\nhttp://mirror.example/debian-security/\nhttp://mirror.example/debian/\n";
        assert_eq!(first_debian_archive(list).as_deref(), Some("http://mirror.example/debian"));
    }

    #[test]
    fn sources_without_debian_give_no_archive() {
        assert_eq!(first_debian_archive("http://mirror.example/ubuntu/\n"), None);
        assert_eq!(first_debian_archive(""), None);
    }
}
