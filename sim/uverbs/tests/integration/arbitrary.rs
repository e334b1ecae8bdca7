//! Requests that no library would send: arbitrary bytes, unknown methods, wrong attributes.

use crate::support;

use bareverbs_uverbs::Errno;
use bareverbs_uverbs::uapi::*;
use proptest::prelude::*;
use support::{BASE, Program, attribute, device, open, request};

fn attributes() -> impl Strategy<Value = Vec<IoctlAttribute>> {
    let id = prop_oneof![0_u16..4, 0x1000_u16..0x1006, any::<u16>()];
    let length = prop_oneof![0_usize..9, Just(32), Just(72), Just(304), 0_usize..65536];
    let data = prop_oneof![0_u64..40, BASE..BASE + 0x1_1000, any::<u64>()];
    let one = (id, length, data, 0_u16..4, prop_oneof![9 => Just(0_u8), 1 => any::<u8>()]);
    let one = one.prop_map(|(id, length, data, flags, element)| IoctlAttribute {
        flags,
        attr_data: [element, 0],
        ..attribute(id, length, data)
    });
    proptest::collection::vec(one, 0..7)
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut program = Program::default();
        let mut uverbs = device(&mut program);
        let file = open(&mut uverbs, &mut program);
        let mut bytes = bytes;
        prop_assert!(uverbs.ioctl(&mut program, file, &mut bytes).is_err());
    }

    #[test]
    fn arbitrary_attributes_are_answered_and_leave_a_device_that_works(
        calls in proptest::collection::vec((0_usize..12, 0_u16..9, any::<bool>(), attributes()), 1..20)
    ) {
        const OBJECTS: [u16; 12] = [0, 0, 0, 1, 16, 0x1008, 3, 4, 5, 6, 7, 8];
        let mut program = Program::default();
        let mut uverbs = device(&mut program);
        let before = uverbs.nic().live_objects();
        let file = open(&mut uverbs, &mut program);
        for (object, method, driver, attributes) in calls {
            let method = if driver { 0x1000 | method } else { method };
            let mut bytes = request(OBJECTS[object], method, &attributes);
            let _ = uverbs.ioctl(&mut program, file, &mut bytes);
        }
        uverbs.close(&mut program, file);
        prop_assert_eq!(uverbs.nic().live_objects(), before);
        open(&mut uverbs, &mut program);
    }

    #[test]
    fn an_unknown_method_is_never_a_success(object in any::<u16>(), method in any::<u16>()) {
        let known = [(0, 0), (0, 2), (0, 3), (0, 5), (0, 6), (1, 0), (3, 0), (3, 1), (4, 0), (4, 1), (5, 0), (5, 1), (6, 0), (7, 1), (8, 0), (10, 0), (16, 0), (0x1008, 0x1000), (0x1008, 0x1001)];
        prop_assume!(!known.contains(&(object, method)));
        let mut program = Program::default();
        let mut uverbs = device(&mut program);
        let file = open(&mut uverbs, &mut program);
        let mut bytes = request(object, method, &[]);
        prop_assert_eq!(uverbs.ioctl(&mut program, file, &mut bytes), Err(Errno::ProtocolNotSupported));
    }
}

#[test]
fn attributes_are_compared_with_the_schema() {
    let mut program = Program::default();
    let mut uverbs = device(&mut program);
    let file = open(&mut uverbs, &mut program);
    let port =
        |attributes: &[IoctlAttribute]| request(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, attributes);
    let (number, room) = (attribute(0, 1, 1), attribute(1, 48, BASE));
    let unknown = attribute(0x77, 8, 0);
    let cases = [
        (vec![number, room], Ok(())),
        (vec![number, room, IoctlAttribute { flags: 0, ..unknown }], Ok(())),
        (vec![number, room, unknown], Err(Errno::ProtocolNotSupported)),
        (vec![number, room, room], Err(Errno::Invalid)),
        (vec![number], Err(Errno::Invalid)),
        (vec![number, attribute(1, 39, BASE)], Err(Errno::Invalid)),
        (vec![attribute(0, 9, 1), room], Err(Errno::Invalid)),
        (vec![number, attribute(1, 48, 0)], Err(Errno::Fault)),
        (vec![IoctlAttribute { attr_data: [1, 0], ..number }, room], Err(Errno::Invalid)),
    ];
    for (attributes, expected) in cases {
        let response = uverbs.ioctl(&mut program, file, &mut port(&attributes));
        assert_eq!(response, expected, "{attributes:?}");
    }
}

#[test]
fn headers_that_do_not_fit_their_request_are_refused() {
    let mut program = Program::default();
    let mut uverbs = device(&mut program);
    let file = open(&mut uverbs, &mut program);
    let whole = request(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, &[attribute(0, 1, 1)]);
    for (at, value, expected) in [
        (0, 0xff, Errno::Invalid),
        (6, 2, Errno::Invalid),
        (8, 1, Errno::ProtocolNotSupported),
        (16, 2, Errno::Invalid),
        (20, 1, Errno::ProtocolNotSupported),
    ] {
        let mut bytes = whole.clone();
        bytes[at] = value;
        assert_eq!(uverbs.ioctl(&mut program, file, &mut bytes), Err(expected), "byte {at}");
    }
}
