use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

const NIC: &str = "0000:3b:00.0";

/// A tree with one ConnectX-5, bound to mlx5_core, in its own group.
fn tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let device = format!("sys/bus/pci/devices/{NIC}");
    write(&format!("{device}/vendor"), "0x15b3\n");
    write(&format!("{device}/device"), "0x1017\n");
    write(&format!("{device}/class"), "0x020000\n");
    write(&format!("{device}/numa_node"), "-1\n");
    write(&format!("{device}/driver_override"), "(null)\n");
    write(&format!("{device}/net/eth2/mtu"), "1500\n");
    write("sys/bus/pci/drivers/mlx5_core/unbind", "");
    write("sys/bus/pci/drivers_probe", "");
    write("proc/net/route", "Iface Destination\neth2 00000000 01000000 3 0 0 0 00000000 0 0 0\n");
    let groups = format!("sys/kernel/iommu_groups/7/devices/{NIC}");
    fs::create_dir_all(root.path().join(groups)).unwrap();
    let link = |to: &str, at: &str| symlink(root.path().join(to), root.path().join(at)).unwrap();
    link("sys/bus/pci/drivers/mlx5_core", &format!("{device}/driver"));
    link("sys/kernel/iommu_groups/7", &format!("{device}/iommu_group"));
    root
}

fn parse(root: &Path, words: &[&str]) -> VfioArguments {
    crate::test_arguments::parsed(&[words, &["--root", root.to_str().unwrap()]].concat())
}

fn text(root: &Path, words: &[&str]) -> String {
    let arguments = parse(root, words);
    let tree = Tree::at(&arguments.root);
    match &arguments.action {
        VfioAction::List => list::run(&tree, arguments.json),
        VfioAction::Check(wanted) => check::run(&tree, wanted, arguments.json).map(|(text, _)| text),
        VfioAction::Bind(wanted) => bind::bind(&tree, wanted, arguments.json),
        VfioAction::Unbind(wanted) => bind::unbind(&tree, wanted, arguments.json),
    }
    .unwrap_or_else(|failure| match failure {
        Failure::Input(error) => format!("input: {error:#}"),
        Failure::Run(error) => format!("run: {error:#}"),
    })
}

#[test]
fn the_list_shows_driver_group_and_huge_pages() {
    let root = tree();
    let shown = text(root.path(), &["list"]);
    for word in [NIC, "15b3:1017", "ConnectX-5", "mlx5_core", "eth2", "supported", "2 MiB pages: 0 of 0 free"]
    {
        assert!(shown.contains(word), "{word}:\n{shown}");
    }
    let object: serde_json::Value = serde_json::from_str(&text(root.path(), &["list", "--json"])).unwrap();
    assert_eq!(object["schema"], "bareverbs.functions.v1");
    let function = &object["functions"]["list"][0];
    assert_eq!((&function["iommu_group"], &function["numa_node"]), (&7.into(), &serde_json::Value::Null));
    assert!(function["needed_by_the_system"][0].as_str().unwrap().contains("default route"));
    let empty = tempfile::tempdir().unwrap();
    assert!(text(empty.path(), &["list"]).starts_with("no PCI function of vendor 15b3"));
}

#[test]
fn a_check_names_the_command_and_its_verdict() {
    let root = tree();
    let shown = text(root.path(), &["check", "3b:00.0"]);
    assert!(shown.contains("bad      driver: the kernel driver mlx5_core"), "{shown}");
    assert!(shown.contains("sudo bareverbs vfio bind 0000:3b:00.0"), "{shown}");
    assert!(shown.ends_with("0000:3b:00.0 cannot be opened"), "{shown}");
    assert_eq!(run(&parse(root.path(), &["check", NIC])).ok(), Some(false));
    let object: serde_json::Value =
        serde_json::from_str(&text(root.path(), &["check", NIC, "--json"])).unwrap();
    assert_eq!(object["check"]["ready"], false);
    assert!(text(root.path(), &["check", "00:00.0"]).starts_with("input: there is no PCI function"));
}

#[test]
fn a_device_in_use_is_taken_by_force_alone() {
    let root = tree();
    let refused = text(root.path(), &["bind", NIC]);
    assert!(refused.contains("the default route uses its interface eth2; --force"), "{refused}");
    assert!(text(root.path(), &["bind", NIC, "--force"]).contains("sudo modprobe vfio-pci"));
    fs::create_dir_all(root.path().join("sys/bus/pci/drivers/vfio-pci")).unwrap();
    let forced = text(root.path(), &["bind", NIC, "--force"]);
    assert!(
        forced.starts_with("run: 0000:3b:00.0 should be bound to vfio-pci and is bound to mlx5_core"),
        "{forced}"
    );
    assert_eq!(fs::read_to_string(root.path().join("sys/bus/pci/drivers/mlx5_core/unbind")).unwrap(), NIC);
    let back = text(root.path(), &["unbind", NIC]);
    assert_eq!(back, "0000:3b:00.0 (ConnectX-5) is bound to mlx5_core, IOMMU group 7");
}
