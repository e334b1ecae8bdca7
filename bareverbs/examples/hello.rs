//! Hello, RDMA: two hosts and every operation, each verified. `cargo run -p bareverbs --features cluster --example hello`

use bareverbs::cluster::{SimCluster, Station, TaskResult};
use bareverbs::prelude::*;
use bareverbs::prm::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(1);

/// Runs both hosts for at most one second of virtual time.
pub fn main() -> TaskResult {
    let cluster = SimCluster::new(1, 2);
    cluster.boot(0, |host| async move {
        let station = Station::open(&host, 16, 4096)?;
        let peer = station.dial("hello", TIMEOUT).await?;
        let memory = RemoteSlice::from_bytes(&station.hear(&peer, TIMEOUT).await?)?;
        let mut buffer = station.pool.take().await;
        buffer.fill_from(b"written")?;
        let mut buffer = peer.write(buffer, memory).await?.buffer;
        buffer.fill_from(b"nothing")?;
        let buffer = peer.read(buffer, memory).await?.buffer;
        assert_eq!(buffer.to_vec(), b"written");
        let buffer = peer.fetch_add(buffer, memory.part(64, 8)?, 5).await?.buffer;
        assert_eq!(buffer.load_u64(0)?, 0);
        let buffer = peer.compare_swap(buffer, memory.part(64, 8)?, 5, 9).await?.buffer;
        assert_eq!(buffer.load_u64(0)?, 5);
        station.tell(&peer, b"goodbye").await
    });
    cluster.boot(1, |host| async move {
        let (station, mut calls, mut bytes) = (Station::open(&host, 16, 4096)?, 0, [0; 7]);
        let memory = station.pool.take().await;
        let peer = station.accept("hello", &mut calls).await?;
        station.tell(&peer, &memory.remote().to_bytes()).await?;
        assert_eq!(station.hear(&peer, TIMEOUT).await?, b"goodbye");
        memory.copy_out(0, &mut bytes)?;
        assert_eq!((&bytes, memory.load_u64(64)?), (b"written", 9));
        Ok(())
    });
    let report = cluster.run(Duration::from_secs(1))?;
    println!("SEND, WRITE, READ and two atomics, all verified, in {} (sim)", report.at);
    Ok(())
}
