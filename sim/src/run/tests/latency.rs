//! In a world, the presets reproduce the figures they were made from.

use super::player::{Bytes, Player, ScriptedResponse};
use crate::run::device::TransmitClass;
use crate::run::{NodeId, Preset, World};
use bareverbs_prm::time::{Duration, Time};

fn pair(preset: Preset, response: ScriptedResponse) -> (World<Bytes, Player>, NodeId) {
    let mut world = World::new(1);
    let client = world.add_node("client", Player::new(1), Bytes::default(), preset.node);
    let server = world.add_node("server", Player::new(2), Bytes::default(), preset.node);
    world.connect(client, server, preset.link).unwrap();
    world.with_device(server, |device, _, _| device.response = Some(response));
    world.run_until(Time::ZERO + Duration::from_micros(100));
    (world, client)
}

/// Time from the doorbell of a request until the response takes effect.
fn round_trip(preset: Preset, request: u64, response: ScriptedResponse) -> Duration {
    let (mut world, client) = pair(preset, response);
    let start = world.now();
    world.mmio_write(client, request, &[0, 0, 0, 2]);
    world.run_until_idle(Time::MAX);
    let (end, _) = world.device(client).received[0];
    end.since(start)
}

#[test]
fn a_read_takes_the_published_time() {
    let response =
        ScriptedResponse { class: TransmitClass::ReadResponse, length: 126, after: Duration::ZERO };
    let read = |preset| round_trip(preset, 74, response);
    assert_eq!(read(Preset::STROM_10G), Duration::from_nanos(6_080));
    assert_eq!(read(Preset::STROM_100G), Duration::from_nanos(4_140));
    assert_eq!(read(Preset::BF3_ARM), Duration::from_nanos(3_600));
}

#[test]
fn a_kernel_in_the_nic_takes_the_published_time() {
    let kernel = |preset: Preset, elements: u64| {
        let cost = preset.nic_kernel;
        let after = cost.dispatch + cost.per_dma.saturating_mul(elements + 1);
        round_trip(preset, 138, ScriptedResponse { class: TransmitClass::Request, length: 170, after })
    };
    for elements in [1, 2, 8] {
        let model = |base, hop| Duration::from_nanos(base + hop * (elements + 1));
        assert_eq!(kernel(Preset::STROM_10G, elements), model(4_970, 1_110));
        assert_eq!(kernel(Preset::STROM_100G, elements), model(3_140, 1_000));
        assert_eq!(kernel(Preset::BF3_ARM, elements), model(5_800, 900));
    }
}

#[test]
fn a_kernel_on_a_dpu_takes_the_published_time() {
    for (preset, base, hop) in [(Preset::STROM_10G, 4_970, 1_110), (Preset::BF3_ARM, 6_800, 2_000)] {
        let work = preset.dpu_kernel.dispatch
            + (preset.dpu_kernel.per_dma + preset.dpu_dma.alone(64)).saturating_mul(3);
        // Posting the response is a doorbell of the DPU, so charge its delay like a driver's post.
        let after = work + preset.node.doorbell_to_wire;
        let response = ScriptedResponse { class: TransmitClass::Request, length: 174, after };
        assert_eq!(
            round_trip(preset, 186, response),
            Duration::from_nanos(base + 3 * hop),
            "{}",
            preset.name
        );
    }
}
