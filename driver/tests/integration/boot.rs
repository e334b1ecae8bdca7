//! Opening and closing against scripted firmware: statuses, delivery errors, time-outs, page requests, missing memory.

use crate::support::{FakeHal, Misbehaviour};
use bareverbs_core::command::CommandFailure;
use bareverbs_core::device::{BootStep, CloseCause, OpenCause, PageError};
use bareverbs_core::{AsyncEvent, Device, DeviceConfig, GidEntry};
use bareverbs_prm::ids::{Gid, MacAddress};
use bareverbs_prm::numbering::{CommandOpcode as Op, CommandStatus, DeliveryStatus, HealthSyndrome};
use bareverbs_prm::time::{Duration, Time};

fn config() -> DeviceConfig {
    DeviceConfig { command_timeout: Duration::from_millis(10), ..DeviceConfig::default() }
}

fn open(hal: &FakeHal) -> Device<FakeHal> {
    Device::open(hal.clone(), config()).expect("the device opens")
}

fn commands_to_open() -> usize {
    let hal = FakeHal::new();
    let _device = open(&hal);
    hal.firmware().opcodes().len()
}

/// Something that a test changes in the firmware before the device is opened.
type Change = fn(&FakeHal);

#[test]
fn open_and_close_send_their_commands_in_order() {
    let hal = FakeHal::new();
    let device = open(&hal);
    assert!(hal.firmware().initialised && hal.firmware().roce_enabled);
    assert_eq!(device.pages_held(), 303);
    let up = hal.firmware().opcodes();
    let expected = [
        (Op::EnableHca, 1),
        (Op::QueryIssi, 1),
        (Op::SetIssi, 1),
        (Op::QueryPages, 1),
        (Op::ManagePages, 1),
        (Op::AccessReg, 1),
        (Op::QueryHcaCap, 2),
        (Op::SetHcaCap, 1),
        (Op::QueryHcaCap, 1),
        (Op::SetHcaCap, 1),
        (Op::QueryHcaCap, 2),
        (Op::SetHcaCap, 1),
        (Op::QueryPages, 1),
        (Op::ManagePages, 3),
        (Op::InitHca, 1),
        (Op::QueryHcaCap, 3),
        (Op::AllocUar, 1),
        (Op::CreateEq, 1),
        (Op::ModifyNicVportContext, 1),
    ];
    let expected: Vec<Op> = expected.iter().flat_map(|&(op, n)| vec![op; n]).collect();
    assert_eq!(up, expected);
    device.close().expect("the device closes");
    let down = hal.firmware().opcodes()[up.len()..].to_vec();
    let expected = [Op::ModifyNicVportContext, Op::DestroyEq, Op::DeallocUar, Op::TeardownHca];
    assert_eq!(down[..4], expected);
    assert_eq!(down[4..], [Op::ManagePages, Op::ManagePages, Op::ManagePages, Op::DisableHca]);
    assert!(hal.firmware().is_down());
    assert_eq!((hal.world.memory.regions(), hal.world.memory.faults.get()), (0, 0));
}

#[test]
fn pages_go_through_the_reserved_slot() {
    let hal = FakeHal::new();
    let device = open(&hal);
    let firmware = hal.firmware();
    let pages = firmware.log.iter().filter(|(op, ..)| *op == Op::ManagePages).count();
    assert_eq!(firmware.doorbells.iter().filter(|&&value| value == 1 << 31).count(), pages);
    assert!(firmware.doorbells.iter().all(|&value| value == 1 || value == 1 << 31));
    drop(firmware);
    drop(device);
    assert!(hal.firmware().is_down(), "dropping closes");
}

#[test]
fn a_device_opens_again_after_it_was_closed() {
    let hal = FakeHal::new();
    for _ in 0..3 {
        open(&hal).close().expect("the device closes");
    }
    assert_eq!(hal.world.memory.regions(), 0);
}

#[test]
fn a_refusal_of_any_command_undoes_the_earlier_ones() {
    let commands = commands_to_open();
    for at in 0..commands {
        let hal = FakeHal::new();
        hal.firmware().at_command = Some((at, Misbehaviour::Status(0x3, 0xabcd_ef01)));
        let error = Device::open(hal.clone(), config()).map(|_| ()).expect_err("a command was refused");
        let refused = CommandFailure::Refused { status: CommandStatus::BadParameter, syndrome: 0xabcd_ef01 };
        match error.cause {
            OpenCause::Command(e) | OpenCause::Pages(PageError::Command(e)) => {
                assert_eq!(e.failure, refused, "{at}")
            }
            other => panic!("command {at}: {other}"),
        }
        assert!(hal.firmware().is_down(), "after command {at}, {error}");
        assert_eq!((hal.world.memory.regions(), hal.world.memory.faults.get()), (0, 0), "after command {at}");
        assert!(error.to_string().contains("BAD_PARAM_ERR(0x3), syndrome 0xabcdef01"), "{error}");
    }
}

#[test]
fn silence_at_any_command_is_a_time_out_and_frees_nothing_that_the_device_may_use() {
    let commands = commands_to_open();
    for at in 0..commands {
        let hal = FakeHal::new();
        hal.firmware().at_command = Some((at, Misbehaviour::Silence));
        let error = Device::open(hal.clone(), config()).map(|_| ()).expect_err("a command was not answered");
        match error.cause {
            OpenCause::Command(e) | OpenCause::Pages(PageError::Command(e)) => {
                assert!(
                    matches!(e.failure, CommandFailure::TimedOut { waited, .. } if waited >= Duration::from_millis(10))
                );
            }
            other => panic!("command {at}: {other}"),
        }
        // The slot is still the device's: when it answers at last, its write must not fault.
        hal.firmware().unstick(&hal.world.memory);
        assert_eq!(hal.world.memory.faults.get(), 0, "a late answer to command {at} found its memory gone");
    }
}

#[test]
fn a_failure_of_any_allocation_undoes_the_earlier_commands() {
    let mut failures = 0;
    for allowance in 0.. {
        let hal = FakeHal::new();
        hal.world.memory.allowance.set(Some(allowance));
        let Err(error) = Device::open(hal.clone(), config()).map(|_| ()) else { break };
        assert!(
            matches!(error.cause, OpenCause::Memory(_) | OpenCause::Pages(PageError::Memory(_))),
            "allocation {allowance}: {error}"
        );
        assert!(hal.firmware().is_down(), "after allocation {allowance}");
        assert_eq!(hal.world.memory.regions(), 0, "after allocation {allowance}");
        failures += 1;
    }
    assert!(failures >= 5, "{failures} allocations only");
}

#[test]
fn an_undelivered_command_has_a_reason() {
    let hal = FakeHal::new();
    hal.firmware().misbehave(Op::InitHca, Misbehaviour::Delivery(0x7));
    let error = Device::open(hal.clone(), config()).map(|_| ()).unwrap_err();
    assert_eq!(error.step, BootStep::InitHca);
    let OpenCause::Command(error) = error.cause else { panic!("{error}") };
    assert_eq!(error.failure, CommandFailure::NotDelivered(DeliveryStatus::InputLength));
    assert!(hal.firmware().is_down());
}

#[test]
fn a_time_out_reports_the_health_of_firmware() {
    let hal = FakeHal::new();
    hal.firmware().misbehave(Op::QueryIssi, Misbehaviour::Silence);
    hal.firmware().health[15] = 0x0008_1234;
    let error = Device::open(hal.clone(), config()).map(|_| ()).unwrap_err();
    let OpenCause::Command(error) = error.cause else { panic!("{error}") };
    let CommandFailure::TimedOut { health, .. } = error.failure else { panic!("{error}") };
    assert_eq!((health.syndrome, health.extended_syndrome), (HealthSyndrome::HwFatalErr, 0x1234));
    assert!(error.to_string().contains("HW_FATAL_ERR"), "{error}");
}

#[test]
fn a_slow_command_is_waited_for() {
    let hal = FakeHal::new();
    hal.firmware().misbehave(Op::SetHcaCap, Misbehaviour::Delay(Duration::from_millis(9)));
    let device = open(&hal);
    assert!(hal.world.now.get() >= Time::ZERO + Duration::from_millis(9));
    device.close().expect("the device closes");
}

#[test]
fn slow_firmware_is_waited_for_and_a_hang_is_reported() {
    let hal = FakeHal::new();
    hal.firmware().initializing_until = Time::ZERO + Duration::from_millis(500);
    open(&hal).close().expect("the device closes");
    let hal = FakeHal::new();
    hal.firmware().initializing_until = Time::MAX;
    let error = Device::open(hal.clone(), config()).map(|_| ()).unwrap_err();
    assert_eq!(error.step, BootStep::WaitForFirmware);
    assert!(
        matches!(error.cause, OpenCause::FirmwareNotReady { waited, .. } if waited >= Duration::from_secs(120))
    );
    assert!(hal.firmware().log.is_empty());
}

#[test]
fn strange_devices_are_refused() {
    let cases: [(Change, BootStep); 5] = [
        (|hal| hal.firmware().cmdif_rev = 4, BootStep::CheckInterface),
        (|hal| hal.firmware().geometry = 0x66, BootStep::CheckInterface),
        (|hal| hal.firmware().geometry = 0x55, BootStep::CheckInterface),
        (|hal| hal.firmware().supported_issi = 1, BootStep::SetIssi),
        (
            |hal| {
                hal.firmware().general.set_cqe_version(0);
            },
            BootStep::SetCapabilities,
        ),
    ];
    for (change, step) in cases {
        let hal = FakeHal::new();
        change(&hal);
        let error = Device::open(hal.clone(), config()).map(|_| ()).unwrap_err();
        assert_eq!(error.step, step, "{error}");
        assert_eq!(hal.world.memory.regions(), 0);
    }
}

#[test]
fn page_requests_are_served_while_a_command_waits_for_them() {
    let hal = FakeHal::new();
    let device = open(&hal);
    hal.firmware().misbehave(Op::Nop, Misbehaviour::WantPages(200));
    device.ping().expect("the command got its pages");
    assert_eq!(device.pages_held(), 503);
    hal.firmware().misbehave(Op::Nop, Misbehaviour::WantPages(-100));
    device.ping().expect("the command gave pages back");
    assert_eq!(device.pages_held(), 403);
    device.close().expect("the device closes");
    assert!(hal.firmware().is_down());
}

#[test]
fn a_page_request_that_cannot_be_served_is_refused_and_reported() {
    let hal = FakeHal::new();
    let device = open(&hal);
    hal.world.memory.allowance.set(Some(0));
    hal.firmware().misbehave(Op::Nop, Misbehaviour::WantPages(5000));
    device.ping().expect("the device went on without");
    assert_eq!(hal.firmware().refused_pages, 1);
    let event = device.poll_event().unwrap();
    assert!(matches!(event, Some(AsyncEvent::PagesFailed(PageError::Memory(_)))), "{event:?}");
    device.close().expect("the device closes");
    assert!(hal.firmware().is_down());
}

#[test]
fn refused_give_of_pages_leaves_the_books_right() {
    let hal = FakeHal::new();
    let device = open(&hal);
    hal.firmware().misbehave(Op::Nop, Misbehaviour::WantPages(10));
    hal.firmware().misbehave(Op::ManagePages, Misbehaviour::Status(0x8, 0));
    device.ping().expect_err("nobody gives the pages");
    assert_eq!(device.pages_held(), 303);
    let error = device.close().expect_err("the command is under way for ever");
    assert_eq!(error.cause, CloseCause::CommandsUnderWay);
}

#[test]
fn pages_that_are_not_ours_are_not_believed() {
    let hal = FakeHal::new();
    let device = open(&hal);
    let mut foreign = vec![0, 0, 0, 1, 0, 0, 0, 0];
    foreign.extend_from_slice(&0xdead_0000u64.to_be_bytes());
    hal.firmware().misbehave(Op::ManagePages, Misbehaviour::Garbage(foreign));
    let error = device.close().expect_err("a foreign page came back");
    assert_eq!(error.cause, CloseCause::Pages(PageError::ForeignPage { address: 0xdead_0000 }));
}

#[test]
fn a_failing_close_continues_and_reports_the_failure() {
    let hal = FakeHal::new();
    let device = open(&hal);
    hal.firmware().misbehave(Op::DeallocUar, Misbehaviour::Status(0x5, 1));
    let error = device.close().expect_err("DEALLOC_UAR was refused");
    assert!(matches!(error.cause, CloseCause::Command { step: BootStep::AllocateUar, .. }));
    assert!(hal.firmware().is_down(), "the other steps were undone");
}

#[test]
fn checksums_are_verified_if_they_were_agreed_on() {
    let hal = FakeHal::new();
    let device = Device::open(hal.clone(), DeviceConfig { checked: true, ..config() })
        .expect("all answers are signed");
    assert_eq!(hal.firmware().general.cmdif_checksum(), 3);
    device.close().expect("the device closes");
    let hal = FakeHal::new();
    open(&hal).close().expect("the device closes");
    assert_eq!(hal.firmware().general.cmdif_checksum(), 0);
}

#[test]
fn capabilities_port_and_addresses() {
    let hal = FakeHal::new();
    let device = open(&hal);
    let capabilities = device.capabilities();
    assert!(capabilities.atomics && capabilities.roce && capabilities.blue_flame);
    assert_eq!((capabilities.roce_addresses, capabilities.log_max_message), (16, 30));
    let port = device.port().unwrap();
    assert_eq!(
        (port.mac, port.operational_mtu, port.max_mtu),
        (MacAddress([2, 0, 0, 0, 0xaa, 7]), 4200, 9000)
    );
    let entry = GidEntry::roce_v2(Gid::from_ipv4([10, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 1]));
    device.set_gid(3, entry).unwrap();
    assert_eq!((device.gid(3), device.gid(2)), (Some(entry), None));
    let expected: [u8; 32] = {
        let mut bytes = [0; 32];
        bytes[10..16].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        bytes[18..24].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        bytes[27] = 2;
        bytes
    };
    assert_eq!(hal.firmware().addresses[&3], expected);
    device.set_gid(16, entry).expect_err("the table has 16 entries");
}

#[test]
fn a_device_is_small_to_move() {
    let size = size_of::<Device<FakeHal>>();
    assert!(size <= 1024, "{size} bytes");
}
