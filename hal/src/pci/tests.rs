use super::fake::FakeTree;
use super::*;

const NIC: &str = "0000:3b:00.0";
const CONNECTX5: u16 = 0x1017;

fn need(memory: usize, locked_limit: Option<u64>) -> Need {
    Need { memory, no_iommu: false, locked_limit }
}

fn finding(fake: &FakeTree, address: Address, need: &Need, check: Check) -> Finding {
    let findings = fake.tree().preflight(address, need).unwrap();
    findings.into_iter().find(|finding| finding.check == check).unwrap()
}

/// A function bound to vfio-pci, in its own group, whose files can be opened.
fn ready() -> (FakeTree, Address) {
    let fake = FakeTree::new();
    let address = fake.function(NIC, CONNECTX5, Some(VFIO_PCI), Some(7));
    fake.file("dev/vfio/7", "");
    fake.file("dev/vfio/vfio", "");
    fake.file("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64");
    fake.file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "64");
    (fake, address)
}

#[test]
fn functions_are_listed_with_all_that_is_known() {
    let (fake, address) = ready();
    fake.function("0000:3b:00.1", 0x1018, None, None);
    fake.file("sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086");
    fake.file("sys/bus/pci/devices/0000:00:1f.0/device", "0x1234");
    let functions = fake.tree().functions();
    assert_eq!(functions.len(), 2, "another vendor's is not listed");
    let first = &functions[0];
    assert_eq!(
        (first.address, first.name(), first.group, first.numa_node),
        (address, "ConnectX-5", Some(7), Some(1))
    );
    assert_eq!((first.driver.as_deref(), first.driver_override.as_deref()), (Some(VFIO_PCI), None));
    assert_eq!((functions[1].driver.as_deref(), functions[1].group), (None, None));
    let missing = fake.tree().function("0000:99:00.0".parse().unwrap()).unwrap_err();
    assert!(missing.to_string().contains("0000:99:00.0"));
}

#[test]
fn a_device_that_is_ready_passes_every_check() {
    let (fake, address) = ready();
    for finding in fake.tree().preflight(address, &need(32 << 20, None)).unwrap() {
        assert_eq!((finding.state, &finding.repair), (State::Good, &None), "{finding}");
    }
}

#[test]
fn each_obstacle_is_explained_with_its_command() {
    let (fake, address) = ready();
    let (all, plenty) = (need(32 << 20, None), need(32 << 20, Some(64 << 10)));
    let assert_bad = |found: Finding, state: State, words: [&str; 2]| {
        assert_eq!(found.state, state, "{found}");
        assert!(found.seen.contains(words[0]), "{found}");
        assert!(found.repair.as_ref().is_some_and(|repair| repair.contains(words[1])), "{found}");
    };
    assert_bad(finding(&fake, address, &plenty, Check::LockedMemory), State::Bad, ["64 KiB", "ulimit -l"]);
    assert_bad(
        finding(&fake, address, &need(1 << 30, None), Check::HugePages),
        State::Warning,
        ["64 of 64", "echo 512"],
    );
    fake.driven_by(NIC, Some("mlx5_core"));
    assert_bad(
        finding(&fake, address, &all, Check::Driver),
        State::Bad,
        ["mlx5_core", "vfio bind 0000:3b:00.0"],
    );
    let old = fake.function("0000:3b:00.2", 0x1003, None, None);
    assert_bad(finding(&fake, old, &all, Check::DeviceId), State::Bad, ["mlx4", "vfio list"]);
    assert_bad(finding(&fake, old, &all, Check::Iommu), State::Bad, ["is in none", "dmesg"]);
    let alone = FakeTree::new();
    let nic = alone.function(NIC, CONNECTX5, None, None);
    assert_bad(finding(&alone, nic, &all, Check::Iommu), State::Bad, ["no IOMMU", "intel_iommu=on"]);
    let unsafe_need = Need { no_iommu: true, ..all };
    assert_eq!(finding(&alone, nic, &unsafe_need, Check::Iommu).state, State::Good);
}

#[test]
fn a_group_is_viable_when_nobody_else_in_it_has_a_driver_of_the_kernel() {
    let (fake, address) = ready();
    let all = need(1, None);
    fake.function("0000:3b:00.1", 0x1017, None, Some(7));
    fake.function("0000:00:01.0", 0x1017, Some("pcieport"), Some(7));
    assert_eq!(finding(&fake, address, &all, Check::Group).state, State::Good);
    fake.driven_by("0000:3b:00.1", Some("mlx5_core"));
    let found = finding(&fake, address, &all, Check::Group);
    assert_eq!(found.state, State::Bad);
    assert!(found.seen.contains("0000:3b:00.1 (mlx5_core)"), "{found}");
    assert!(!found.seen.contains("pcieport"), "{found}");
    assert!(found.repair.unwrap().contains("bind --force 0000:3b:00.1"));
}

#[test]
fn missing_and_forbidden_group_files_are_distinguished() {
    let fake = FakeTree::new();
    let address = fake.function(NIC, CONNECTX5, Some(VFIO_PCI), Some(7));
    let found = finding(&fake, address, &need(1, None), Check::Permission);
    assert!(found.state == State::Bad && found.seen.contains("/dev/vfio/7 is missing"), "{found}");
}

#[test]
fn binding_writes_the_override_unbinds_and_probes() {
    let fake = FakeTree::new();
    let address = fake.function(NIC, CONNECTX5, Some("mlx5_core"), Some(7));
    assert!(matches!(fake.tree().bind(address, false), Err(BindError::NoModule)));
    fake.directory("sys/bus/pci/drivers/vfio-pci");
    // The fake tree has no kernel behind it, so the driver does not change, and `bind` must notice.
    let error = fake.tree().bind(address, false).unwrap_err();
    assert!(
        matches!(error, BindError::NotTaken { .. }) && error.to_string().contains("mlx5_core"),
        "{error}"
    );
    assert_eq!(
        fake.read("sys/bus/pci/devices/0000:3b:00.0/driver_override").trim_end_matches("ull)\n"),
        "vfio-pci"
    );
    assert_eq!(fake.read("sys/bus/pci/drivers/mlx5_core/unbind"), NIC);
    assert_eq!(fake.read("sys/bus/pci/drivers_probe"), NIC);
    fake.driven_by(NIC, Some(VFIO_PCI));
    assert_eq!(
        fake.tree().bind(address, false).unwrap().driver.as_deref(),
        Some(VFIO_PCI),
        "it is there already"
    );
    fake.driven_by(NIC, None);
    assert_eq!(fake.tree().unbind(address).unwrap().driver, None);
    assert!(fake.read("sys/bus/pci/devices/0000:3b:00.0/driver_override").starts_with('\n'));
}

fn refused(fake: &FakeTree, address: Address) -> String {
    match fake.tree().bind(address, false) {
        Err(error @ (BindError::InUse { .. } | BindError::Unsupported { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn functions_that_the_system_needs_are_not_taken_from_it() {
    let fake = FakeTree::new();
    let address = fake.function(NIC, CONNECTX5, Some("mlx5_core"), Some(7));
    fake.directory("sys/bus/pci/devices/0000:3b:00.0/net/eth2");
    let route = |interface: &str| {
        fake.file(
            "proc/net/route",
            &format!("Iface\n{interface}\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"),
        );
    };
    route("eth2");
    assert!(refused(&fake, address).contains("default route uses its interface eth2"));
    route("bond0");
    fake.directory("sys/class/net/eth2/upper_bond0");
    assert!(refused(&fake, address).contains("default route"), "through a bond");
    route("eth0");
    assert!(fake.tree().system_uses(&fake.tree().function(address).unwrap()).is_empty());
    fake.file(
        "proc/net/ipv6_route",
        &format!("{} 00 {} 00 {} 00000400 1 0 3 eth2\n", "0".repeat(32), "0".repeat(32), "f".repeat(32)),
    );
    assert!(refused(&fake, address).contains("default route"), "of IPv6");
    fake.file("proc/net/ipv6_route", "");
    fake.file("proc/self/mounts", "10.0.0.1:/root / nfs4 rw 0 0\n");
    fake.file("sys/class/net/eth2/operstate", "up\n");
    assert!(refused(&fake, address).contains("mounted over the network (nfs4)"));
    assert!(matches!(fake.tree().bind(address, true), Err(BindError::NoModule)), "forced: the next obstacle");
}

#[test]
fn the_disk_of_the_root_and_strange_devices_are_refused() {
    let fake = FakeTree::new();
    let address = fake.function(NIC, CONNECTX5, Some("mlx5_core"), None);
    let disk = fake.tree().root().join("sys/devices/pci0000:3a/0000:3b:00.0/nvme/nvme0n1");
    std::fs::create_dir_all(&disk).unwrap();
    fake.directory("sys/class/block");
    std::os::unix::fs::symlink(&disk, fake.tree().root().join("sys/class/block/nvme0n1")).unwrap();
    fake.file("proc/self/mounts", "/dev/nvme0n1 / ext4 rw 0 0\n");
    assert!(refused(&fake, address).contains("block device /dev/nvme0n1"));
    let old = fake.function("0000:3b:00.2", 0x1003, None, None);
    assert!(refused(&fake, old).contains("mlx4"));
}
