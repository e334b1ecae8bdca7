//! One guest under QEMU: software emulation, root file system read-only over 9p, a control port, wires of Ethernet
//! frames to this process, and TCP to this process over loopback only.

use super::control::Control;
use super::interrupt;
use super::process::{self, KillOnDrop};
use super::root::{MOUNTS, Root};
use crate::free_port::free_port;
use anyhow::{Context, Result, bail};
use bareverbs_prm::ids::MacAddress;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where the guest's programs find this machine's loopback addresses.
pub const HOST_FROM_GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
/// Address of the guest on the network card for TCP.
pub const GUEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
/// MAC address of the network card for TCP.
const TCP_MAC: MacAddress = MacAddress([0x52, 0x54, 0, 0, 0, 1]);
/// Where the root has the directory with the sockets and the init script.
pub(super) const MOUNT_POINT: &str = "/mnt";
/// An x86-64-v2 processor, which is what DPDK needs. A boot with a few rows takes about three quarters of the processor time
/// that it takes on QEMU's `max`.
const PROCESSOR: &str = "Westmere-v1";
/// How long a boot may take.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
const INIT: &str = include_str!("init.sh");

/// What a guest is to have.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// Memory in MiB.
    pub memory: u32,
    /// Virtual processors.
    pub processors: u32,
    /// Network cards whose frames this process sees, by MAC address.
    pub wires: Vec<MacAddress>,
    /// TCP ports of the guest that this process can connect to.
    pub tcp_ports: Vec<u16>,
    /// Sockets of vfio-user servers, each of which becomes a PCI Express function. They must be on the file system of
    /// the temporary directory.
    pub vfio_user: Vec<PathBuf>,
    /// More sockets on the same file system, by the names under which [`Machine::path_inside`] finds them.
    pub sockets: Vec<(String, PathBuf)>,
    /// More words for the kernel's command line.
    pub kernel_words: Vec<String>,
    /// More arguments for QEMU, in front of the network cards. Paths are inside the root; see [`Machine::path_inside`].
    pub devices: Vec<String>,
    /// Whether the guest may reboot; otherwise QEMU ends when it does.
    pub reboots: bool,
    /// Files that the guest finds under [`Machine::path_inside`], by name.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            memory: 1024,
            processors: 2,
            wires: Vec::new(),
            tcp_ports: Vec::new(),
            vfio_user: Vec::new(),
            sockets: Vec::new(),
            kernel_words: Vec::new(),
            devices: Vec::new(),
            reboots: false,
            files: Vec::new(),
        }
    }
}

/// A running guest. Dropping it ends the guest and everything it started outside.
#[derive(Debug)]
pub struct Machine {
    /// Commands in the guest.
    pub control: Control,
    configuration: Configuration,
    forwards: Vec<(u16, SocketAddrV4)>,
    console: PathBuf,
    // Dropped in this order: QEMU first, then its directory.
    qemu: KillOnDrop,
    directory: TempDir,
}

impl Machine {
    /// Boots a guest; a boot that fails is tried once more. The console goes to `console`.
    pub fn boot(root: &Root, configuration: &Configuration, console: &Path) -> Result<Self> {
        Self::boot_once(root, configuration, console).or_else(|error| {
            interrupt::check()?;
            eprintln!("guest: did not boot ({error:#}); once more");
            let _ = fs::copy(console, console.with_extension("first.log"));
            Self::boot_once(root, configuration, console)
        })
    }

    fn boot_once(root: &Root, configuration: &Configuration, console: &Path) -> Result<Self> {
        let started = Instant::now();
        let directory = tempfile::Builder::new().prefix("bareverbs-guest-").tempdir()?;
        write_init(directory.path())?;
        for (index, socket) in configuration.vfio_user.iter().enumerate() {
            fs::hard_link(socket, directory.path().join(format!("nic{index}")))
                .with_context(|| format!("no vfio-user server at {}", socket.display()))?;
        }
        for (name, socket) in &configuration.sockets {
            fs::hard_link(socket, directory.path().join(name))
                .with_context(|| format!("no socket at {}", socket.display()))?;
        }
        for (name, bytes) in &configuration.files {
            fs::write(directory.path().join(name), bytes)?;
        }
        let listener = UnixListener::bind(directory.path().join("control"))?;
        listener.set_nonblocking(true)?;
        let forwards = free_ports(&configuration.tcp_ports)?;
        let arguments = QemuArguments { root, configuration, forwards: &forwards }.build()?;
        let program = RootProgram { name: "qemu-system-x86_64", arguments };
        let mut qemu = KillOnDrop(spawn(root, directory.path(), &program, console)?);
        let control = accept(&listener, &mut qemu.0)?;
        let configuration = configuration.clone();
        let mut machine =
            Self { control, configuration, forwards, console: console.to_owned(), qemu, directory };
        let kernel = machine.wait_until_ready(started)?;
        machine.configure_tcp()?;
        eprintln!("guest: Linux {kernel} is up after {:.0} s", started.elapsed().as_secs_f64());
        Ok(machine)
    }

    /// Reboots the guest in the same machine and returns the release of its kernel.
    pub fn reboot(&mut self) -> Result<String> {
        let started = Instant::now();
        self.control.restart("sync; echo b >/proc/sysrq-trigger")?;
        let kernel = self.wait_until_ready(started)?;
        self.configure_tcp()?;
        Ok(kernel)
    }

    /// Ends the machine at once, as a loss of power would. Dropping a guest does the same.
    pub fn kill(&mut self) -> Result<()> {
        self.qemu.0.kill().context("cannot end QEMU")?;
        self.qemu.0.wait().map(drop).context("QEMU does not end")
    }

    /// Sockets of wire `index`: where this process has to listen and where it has to send.
    pub fn wire_sockets(&self, index: usize) -> (PathBuf, PathBuf) {
        let path = |end| self.directory.path().join(format!("wire{index}.{end}"));
        (path("host"), path("guest"))
    }

    /// Address on this machine that leads to a TCP port of the guest.
    pub fn forward(&self, port: u16) -> Option<SocketAddrV4> {
        self.forwards.iter().find(|(guest, _)| *guest == port).map(|(_, host)| *host)
    }

    /// Name of the network card of wire `index` in the guest.
    pub fn wire_interface(&mut self, index: usize) -> Result<String> {
        let mac = self.configuration.wires.get(index).copied().context("no such wire")?;
        self.interface(mac)
    }

    /// Log of the guest's console.
    pub fn console(&self) -> &Path {
        &self.console
    }

    /// Path inside the root of a file in the directory that guest and host share.
    pub fn path_inside(name: &str) -> String {
        format!("{MOUNT_POINT}/{name}")
    }

    fn interface(&mut self, mac: MacAddress) -> Result<String> {
        let command = format!("grep -l {mac} /sys/class/net/*/address");
        let path = self.control.require(&command, Duration::from_secs(10))?;
        path.trim().split('/').nth(4).map(str::to_owned).with_context(|| format!("no card with {mac}"))
    }

    fn wait_until_ready(&mut self, started: Instant) -> Result<String> {
        loop {
            if let Some(kernel) = self.control.kernel()? {
                return Ok(kernel.to_owned());
            }
            interrupt::check()?;
            if let Some(status) = self.qemu.0.try_wait()? {
                bail!("QEMU ended with {status}; see {}", self.console.display());
            }
            if started.elapsed() > BOOT_LIMIT {
                bail!("not up after {} s; see {}", BOOT_LIMIT.as_secs(), self.console.display());
            }
            std::thread::sleep(process::TICK);
        }
    }

    fn configure_tcp(&mut self) -> Result<()> {
        let interface = self.interface(TCP_MAC)?;
        let command = format!("ip addr add {GUEST_ADDRESS}/24 dev {interface} && ip link set {interface} up");
        self.control.require(&command, Duration::from_secs(20)).map(drop)
    }
}

fn write_init(directory: &Path) -> Result<()> {
    let init = directory.join("init");
    fs::write(&init, INIT)?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Picks a free TCP port on loopback for each port of the guest. If another process takes one before QEMU
/// does, the guest does not boot and is started once more.
fn free_ports(guest: &[u16]) -> Result<Vec<(u16, SocketAddrV4)>> {
    let pair = |guest: &u16| {
        let host = free_port().context("every TCP port is in use")?;
        Ok((*guest, SocketAddrV4::new(Ipv4Addr::LOCALHOST, host)))
    };
    guest.iter().map(pair).collect()
}

/// A program of the root.
#[derive(Debug)]
pub(super) struct RootProgram {
    pub(super) name: &'static str,
    pub(super) arguments: Vec<String>,
}

/// Starts QEMU from inside the root, where its libraries are, in a mount namespace that ends with it. It is killed when
/// the thread that calls this ends.
pub(super) fn spawn(root: &Root, directory: &Path, program: &RootProgram, console: &Path) -> Result<Child> {
    if let Some(parent) = console.parent() {
        fs::create_dir_all(parent)?;
    }
    let log = fs::File::create(console).with_context(|| format!("cannot write {}", console.display()))?;
    let script = format!(
        "root=$1; shared=$2; shift 2
         {MOUNTS}
         mount --bind \"$shared\" \"$root{MOUNT_POINT}\"
         exec chroot \"$root\" \"$@\""
    );
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", "unshare", "--mount", "--propagation", "private"]);
    command.args(["sh", "-e", "-c", &script, "sh"]).arg(root.directory()).arg(directory).arg(program.name);
    command.args(&program.arguments);
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").process_group(0);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().context("cannot start QEMU")
}

fn accept(listener: &UnixListener, qemu: &mut Child) -> Result<Control> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Control::new(stream),
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) => {}
        }
        interrupt::check()?;
        if let Some(status) = qemu.try_wait()? {
            bail!("QEMU ended with {status} before it opened its control port");
        }
        if Instant::now() > deadline {
            bail!("QEMU did not open its control port");
        }
        std::thread::sleep(process::TICK);
    }
}

/// The command line of QEMU.
struct QemuArguments<'a> {
    root: &'a Root,
    configuration: &'a Configuration,
    forwards: &'a [(u16, SocketAddrV4)],
}

impl QemuArguments<'_> {
    fn build(&self) -> Result<Vec<String>> {
        let (kernel, initrd) = self.root.kernel()?;
        let mut list = self.machine();
        push(&mut list, &[("-kernel", kernel), ("-initrd", initrd), ("-append", self.kernel_line())]);
        push(&mut list, &[("-virtfs", root_file_system())]);
        push(&mut list, &control_port());
        list.extend(self.configuration.devices.iter().cloned());
        for index in 0..self.configuration.vfio_user.len() {
            push(&mut list, &vfio_user_card(index));
        }
        push(&mut list, &self.tcp_card());
        for (index, mac) in self.configuration.wires.iter().enumerate() {
            push(&mut list, &wire_card(index, *mac));
        }
        Ok(list)
    }

    /// Shared memory lets a device process map the guest's memory.
    fn machine(&self) -> Vec<String> {
        let Configuration { memory, processors, .. } = *self.configuration;
        let mut list = Vec::new();
        let backend = format!("memory-backend-memfd,id=mem,size={memory}M,share=on");
        push(
            &mut list,
            &[
                ("-machine", "q35,accel=tcg,memory-backend=mem".into()),
                ("-object", backend),
                ("-cpu", PROCESSOR.into()),
                ("-smp", processors.to_string()),
                ("-m", memory.to_string()),
                ("-display", "none".into()),
                ("-monitor", "none".into()),
                ("-serial", "stdio".into()),
            ],
        );
        list.push("-nodefaults".into());
        if !self.configuration.reboots {
            list.push("-no-reboot".into());
        }
        list
    }

    fn kernel_line(&self) -> String {
        let mut line = format!(
            "console=ttyS0 root=hostshare rootfstype=9p \
             rootflags=trans=virtio,version=9p2000.L,msize=262144,cache=loose ro init={MOUNT_POINT}/init \
             panic=-1 loglevel=4 net.ifnames=0 mitigations=off no_timer_check init_on_alloc=0"
        );
        for word in &self.configuration.kernel_words {
            line.push(' ');
            line.push_str(word);
        }
        line
    }

    fn tcp_card(&self) -> [(&'static str, String); 2] {
        let mut backend = "user,id=tcp,ipv6=off".to_owned();
        for (guest, host) in self.forwards {
            backend.push_str(&format!(",hostfwd=tcp:{host}-{GUEST_ADDRESS}:{guest}"));
        }
        [("-netdev", backend), ("-device", format!("virtio-net-pci,netdev=tcp,mac={TCP_MAC},romfile="))]
    }
}

fn push(list: &mut Vec<String>, pairs: &[(&str, String)]) {
    for (option, value) in pairs {
        list.push((*option).to_owned());
        list.push(value.clone());
    }
}

fn root_file_system() -> String {
    "local,path=/,mount_tag=hostshare,security_model=none,id=h,readonly=on,multidevs=remap".into()
}

fn control_port() -> [(&'static str, String); 3] {
    let socket = format!("socket,id=control,path={MOUNT_POINT}/control");
    [
        ("-device", "virtio-serial-pci".into()),
        ("-chardev", socket),
        ("-device", "virtserialport,chardev=control,name=bareverbs.control".into()),
    ]
}

/// A function behind a port of its own: only there is it a PCI Express endpoint with a link.
fn vfio_user_card(index: usize) -> [(&'static str, String); 2] {
    let socket = format!(r#"{{"type":"unix","path":"{MOUNT_POINT}/nic{index}"}}"#);
    let card = format!(r#"{{"driver":"vfio-user-pci","bus":"port{index}","socket":{socket}}}"#);
    [("-device", format!("pcie-root-port,id=port{index},chassis={0},slot={0}", index + 1)), ("-device", card)]
}

/// One Ethernet frame a datagram. 9000 bytes of MTU hold a path MTU of 4096 with all headers.
fn wire_card(index: usize, mac: MacAddress) -> [(&'static str, String); 2] {
    let path = |end| format!("{MOUNT_POINT}/wire{index}.{end}");
    let backend = format!(
        "dgram,id=wire{index},local.type=unix,local.path={},remote.type=unix,remote.path={}",
        path("guest"),
        path("host")
    );
    [
        ("-netdev", backend),
        ("-device", format!("virtio-net-pci,netdev=wire{index},mac={mac},host_mtu=9000,romfile=")),
    ]
}
