//! The vfio-user socket of `bareverbs serve`: each case is a conversation over a real socket. The first
//! message is the version; the others are headers with a valid size and arbitrary bodies, or just bytes.
#![no_main]

use bareverbs_fuzz::Bytes;
use bareverbs_fuzz::nic::NicConfig;
use bareverbs_serve::vfio_user::{Server, ServerConfig};
use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The server, which serves one client after another until this process ends.
fn socket() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = tempfile::tempdir().expect("a directory").keep().join("socket");
        let mut server = Server::bind(&path, ServerConfig::new(NicConfig::default())).expect("it listens");
        std::thread::spawn(move || {
            while server.serve().is_ok() {}
            eprintln!("the device ended");
            std::process::abort();
        });
        path
    })
}

fn message(id: u16, command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let size = 16 + body.len() as u32;
    let words = [size, flags, 0].map(u32::to_le_bytes).concat();
    [&id.to_le_bytes()[..], &command.to_le_bytes(), &words, body].concat()
}

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let mut said = message(0, 1, 0, &[0, 0, 1, 0, b'{', b'}', 0]);
    for id in 1..64 {
        if input.is_empty() {
            break;
        }
        let (command, flags, length) = (input.u8(), input.u8(), input.u8());
        if command == 0xff {
            said.extend(input.take(length.into()));
            break;
        }
        said.extend(message(id, u16::from(command) % 20, u32::from(flags) & 0x3f, input.take(length.into())));
    }
    let mut stream = UnixStream::connect(socket()).expect("the server listens");
    let _ = stream.write_all(&said);
    let _ = stream.shutdown(Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
});
