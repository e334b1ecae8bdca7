//! QEMU's monitor (QMP): pulls a device out of the running guest.

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// Asks for a device to be unplugged, as a hand at the latch of the slot does.
pub fn unplug(socket: &Path, device: &str) -> Result<()> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("no monitor at {}", socket.display()))?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut lines = BufReader::new(stream.try_clone()?);
    ask(&mut stream, &mut lines, &json!({"execute": "qmp_capabilities"}))?;
    ask(&mut stream, &mut lines, &json!({"execute": "device_del", "arguments": {"id": device}}))
}

fn ask(stream: &mut UnixStream, lines: &mut impl BufRead, command: &Value) -> Result<()> {
    writeln!(stream, "{command}")?;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            bail!("the monitor is closed");
        }
        let answer: Value =
            serde_json::from_str(&line).with_context(|| format!("the monitor says {line:?}"))?;
        if let Some(error) = answer.get("error") {
            bail!("the monitor refuses {command}: {error}");
        }
        if answer.get("return").is_some() {
            return Ok(());
        }
    }
}
