//! The driver against a device that writes what the input says, to any memory that it was lent, whenever it
//! gets a chance. Nothing may complete that was not posted, and no call may take longer than the commands it
//! consists of.
#![no_main]

use bareverbs_core::{CompletionQueue, CompletionQueueConfig, WorkCompletion, WorkRequest};
use bareverbs_fuzz::Bytes;
use bareverbs_fuzz::driver_place::FakeHal;
use bareverbs_fuzz::driver_place::objects::{Rig, Shape};
use bareverbs_prm::time::Duration;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;

/// Four commands of 10 ms.
const LONGEST_CALL: Duration = Duration::from_millis(40);

/// One write of the device.
fn scribble(hal: &FakeHal, input: &mut Bytes<'_>) {
    if input.is_empty() {
        return;
    }
    let (which, at, shape) = (input.u8(), input.u16(), input.u8());
    let spans = hal.world.memory.spans();
    let (base, length) = spans[usize::from(which) % spans.len()];
    let unit = if shape & 0x80 != 0 { 64 } else { 4 };
    let offset = usize::from(at) * unit % length.max(1);
    let mut bytes: [u8; 64] = [0; 64];
    let given = input.take(usize::from(shape & 0x3f) + 1);
    bytes[..given.len()].copy_from_slice(given);
    let count = given.len().min(length - offset);
    hal.world.memory.write(base + offset as u64, &bytes[..count]);
}

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let calls = {
        let count = usize::from(input.u8() & 0x1f);
        input.take(count).to_vec()
    };
    let mut rig = Rig::new(Shape::default());
    let hal = rig.hal.clone();
    hal.firmware().asleep = calls.first().is_some_and(|first| first & 0x80 != 0);
    let (device, rest) = (hal.clone(), input.0.to_vec());
    let mut taken = 0;
    *hal.world.device.borrow_mut() = Some(Box::new(move || {
        let mut input = Bytes(&rest[taken..]);
        scribble(&device, &mut input);
        taken = rest.len() - input.0.len();
    }));
    let (mut next, mut posted, mut spare) = (1 << 40, BTreeSet::new(), Vec::new());
    for call in calls {
        let start = hal.world.now.get();
        let mut done = [WorkCompletion::EMPTY; 8];
        let count = match call & 7 {
            0 | 1 => {
                next += 1;
                if rig.pair.post_send(&WorkRequest::nop(next)).is_ok() {
                    posted.insert(next);
                }
                0
            }
            2 => rig.send.poll(&mut done).unwrap_or(0),
            3 => rig.receive.poll(&mut done).unwrap_or(0),
            4 => rig.device.poll_event().map_or(0, |_| 0),
            5 => rig.device.ping().map_or(0, |()| 0),
            6 => {
                let config = CompletionQueueConfig { entries: 8 };
                spare.extend(CompletionQueue::create(rig.device.clone(), config).ok());
                0
            }
            _ => rig.pair.query().map_or(0, |_| 0),
        };
        for done in &done[..count] {
            assert!(
                posted.remove(&done.wr_id),
                "identifier {:#x} was never posted, or completed before",
                done.wr_id
            );
        }
        let took = hal.world.now.get().since(start);
        assert!(took < LONGEST_CALL, "call {} took {took}", call & 7);
    }
    drop((rig, spare));
    hal.world.device.borrow_mut().take();
    // SAFETY: the driver's objects were dropped above; those that it gave up for lost are forgotten.
    unsafe { hal.world.memory.reclaim() };
});
