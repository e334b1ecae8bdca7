//! QEMU with an image, a NIC behind vfio-user, and a serial console that this process reads and writes.

use super::super::machine::{MOUNT_POINT, RootProgram, spawn};
use super::super::process::KillOnDrop;
use super::super::root::Root;
use super::image::{Image, Processor};
use anyhow::{Context, Result, bail};
use bareverbs_prm::ids::MacAddress;
use bareverbs_serve::real_time::Outside;
use bareverbs_serve::vfio_user::{Attachment, Server, ServerConfig};
use bareverbs_sim::nic::NicConfig;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MAC: MacAddress = MacAddress([0x02, 0x02, 0xc9, 0x05, 0x00, 0x01]);
/// Longest line that an image may print.
const LONGEST_LINE: usize = 4096;

/// A machine that runs an image. Dropping it ends the machine.
pub(super) struct Emulator {
    console: UnixStream,
    log: File,
    pending: Vec<u8>,
    // Dropped in this order: QEMU first, then its directory.
    qemu: KillOnDrop,
    directory: TempDir,
}

impl Emulator {
    pub(super) fn start(root: &Root, image: &Image, log: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("bareverbs-bare-metal-").tempdir()?;
        let place = directory.path();
        fs::copy(&image.path, place.join("image"))
            .with_context(|| format!("no image at {}", image.path.display()))?;
        serve(place)?;
        let listener = UnixListener::bind(place.join("console"))?;
        listener.set_nonblocking(true)?;
        let program = program(image.processor);
        let errors = log.with_extension("qemu.log");
        let mut qemu = KillOnDrop(spawn(root, place, &program, &errors)?);
        let console = accept(&listener, &mut qemu, &errors)?;
        let log = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        Ok(Self { console, log, pending: Vec::new(), qemu, directory })
    }

    /// The sockets of the peer's NIC: where it listens and where it sends.
    pub(super) fn far_wire(&self) -> (PathBuf, PathBuf) {
        let [near, far] = wire(self.directory.path());
        (far, near)
    }

    /// The next whole line of the console, if one has come.
    pub(super) fn line(&mut self) -> Result<Option<String>> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim().to_owned()));
            }
            if self.pending.len() > LONGEST_LINE {
                bail!("the image printed {LONGEST_LINE} bytes without an end of line");
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Reads what has arrived and returns whether anything has.
    fn read(&mut self) -> Result<bool> {
        let mut buffer = [0; 1024];
        match self.console.read(&mut buffer) {
            Ok(length) => {
                let bytes = buffer.get(..length).unwrap_or_default();
                self.log.write_all(bytes)?;
                self.pending.extend_from_slice(bytes);
                Ok(length > 0)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionReset) => {
                Ok(false)
            }
            Err(error) => Err(error).context("reading the console"),
        }
    }

    /// Types a line on the console.
    pub(super) fn say(&mut self, line: &str) -> Result<()> {
        writeln!(self.log, "> {line}")?;
        self.console.set_nonblocking(false)?;
        self.console.set_write_timeout(Some(Duration::from_secs(10)))?;
        let written = self.console.write_all(format!("{line}\n").as_bytes());
        self.console.set_nonblocking(true)?;
        written.context("writing to the console")
    }

    /// How the machine ended, if it has. Lines that it printed before its end can still be read.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.qemu.0.try_wait()?)
    }
}

fn wire(place: &Path) -> [PathBuf; 2] {
    ["near", "far"].map(|end| place.join(end))
}

/// Serves the NIC from a thread that lives as long as this process.
fn serve(place: &Path) -> Result<()> {
    let [near, far] = wire(place);
    let nic = NicConfig { strict: true, ..NicConfig::new(MAC) };
    let config =
        ServerConfig { attachment: Attachment::Wire(Outside::datagram(near, far)), ..ServerConfig::new(nic) };
    let mut server = Server::bind(&place.join("nic"), config)?;
    std::thread::Builder::new().name("vfio-user".into()).spawn(move || while server.serve().is_ok() {})?;
    Ok(())
}

fn program(processor: Processor) -> RootProgram {
    let (name, machine, processor) = match processor {
        Processor::X86 => ("qemu-system-x86_64", "q35", "max"),
        Processor::Arm => ("qemu-system-aarch64", "virt", "cortex-a72"),
    };
    let socket = format!(r#"{{"type":"unix","path":"{MOUNT_POINT}/nic"}}"#);
    let card = format!(r#"{{"driver":"vfio-user-pci","bus":"pcie.0","socket":{socket}}}"#);
    let arguments = [
        ("-machine", format!("{machine},accel=tcg,memory-backend=mem")),
        ("-object", "memory-backend-memfd,id=mem,size=256M,share=on".into()),
        ("-cpu", processor.into()),
        ("-m", "256".into()),
        ("-display", "none".into()),
        ("-monitor", "none".into()),
        ("-chardev", format!("socket,id=console,path={MOUNT_POINT}/console")),
        ("-serial", "chardev:console".into()),
        ("-device", card),
        ("-kernel", format!("{MOUNT_POINT}/image")),
    ];
    let mut list = vec!["-nodefaults".to_owned(), "-no-reboot".into()];
    list.extend(arguments.into_iter().flat_map(|(option, value)| [option.to_owned(), value]));
    RootProgram { name, arguments: list }
}

fn accept(listener: &UnixListener, qemu: &mut KillOnDrop, errors: &Path) -> Result<UnixStream> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
            Err(_) => {}
        }
        if let Some(status) = qemu.0.try_wait()? {
            let said = fs::read_to_string(errors).unwrap_or_default();
            bail!("QEMU ended with {status} before it opened the console: {}", said.trim());
        }
        if Instant::now() > deadline {
            bail!("QEMU did not open the console");
        }
        std::thread::sleep(super::super::process::TICK);
    }
}
