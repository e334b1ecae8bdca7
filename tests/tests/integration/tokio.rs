//! Examples of the facade over vfio-user: futures on tokio, a hand-written event loop, two threads on one
//! device.

use bareverbs_prm::ids::MacAddress;
use bareverbs_serve::real_time::Outside;
use bareverbs_serve::vfio_user::{Attachment, Server, ServerConfig};
use bareverbs_sim::nic::NicConfig;
use std::path::PathBuf;
use tempfile::TempDir;

#[path = "../../../bareverbs/examples/event_loop.rs"]
mod event_loop;
#[path = "../../../bareverbs/examples/tokio_echo.rs"]
mod tokio_echo;
#[path = "../../../bareverbs/examples/two_threads.rs"]
mod two_threads;

/// Two servers, each a thread with a device, joined by a wire of datagrams.
fn serve() -> (TempDir, [PathBuf; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    for (number, own, peer) in [(1, "wire.a", "wire.b"), (2, "wire.b", "wire.a")] {
        let nic = NicConfig::new(MacAddress([2, 0, 0, 0, 2, number]));
        let config = ServerConfig {
            attachment: Attachment::Wire(Outside::datagram(path(own), path(peer))),
            ..ServerConfig::new(nic)
        };
        let mut server = Server::bind(&path(&format!("nic{number}")), config).unwrap();
        std::thread::spawn(move || while server.serve().is_ok() {});
    }
    let sockets = [path("nic1"), path("nic2")];
    (directory, sockets)
}

/// Interrupts wake tokio; a message longer than a packet comes back byte for byte.
#[tokio::test]
async fn the_example_echoes() {
    let (_directory, sockets) = serve();
    let text: String = ('a'..='z').cycle().take(4000).collect();
    assert_eq!(tokio_echo::echo(&sockets, &text).await.unwrap(), text);
}

/// Two hundred WRITEs, each after the interrupt of the one before. A lost interrupt fails the example after
/// ten seconds.
#[test]
fn the_event_loop_misses_no_interrupt() {
    let (_directory, sockets) = serve();
    event_loop::run(&sockets[0], 200).unwrap();
}

#[test]
fn two_threads_share_a_device_and_a_region() {
    let (_directory, sockets) = serve();
    assert_eq!(two_threads::run(&sockets[0], 200).unwrap(), [200, 200]);
}
