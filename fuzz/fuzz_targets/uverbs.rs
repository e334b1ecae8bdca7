//! Requests of a program to the uverbs file: ioctls with any attributes over memory with any bytes. When the
//! file is closed, everything created through it must be gone.
#![no_main]

use bareverbs_fuzz::Bytes;
use bareverbs_fuzz::program::{BASE, Program, attribute, device, open, request};
use bareverbs_uverbs::uapi::IoctlAttribute;
use libfuzzer_sys::fuzz_target;

const OBJECTS: [u16; 16] = [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 16, 0x1008, 0x100a];

fn one(input: &mut Bytes<'_>) -> IoctlAttribute {
    let (id, shape) = (input.u8(), input.u8());
    let id = if shape & 1 != 0 { 0x1000 | u16::from(id) } else { id.into() };
    let length = [0, 1, 2, 4, 8, 16, 32, 40, 48, 64, 72, 96, 128, 144, 304, 4096][usize::from(shape >> 4)];
    let data = match shape >> 1 & 3 {
        0 => input.u8().into(),
        1 => BASE + u64::from(input.u16()) * 16,
        2 => input.u32().into(),
        _ => input.u64(),
    };
    let mandatory = attribute(id, length, data);
    let flags = if shape & 8 != 0 { 0 } else { mandatory.flags };
    IoctlAttribute { flags, ..mandatory }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let mut program = Program::default();
    let mut uverbs = device(&mut program);
    let before = uverbs.nic().live_objects();
    let file = open(&mut uverbs, &mut program);
    for _ in 0..24 {
        if input.is_empty() {
            break;
        }
        let (which, method, count) = (input.u8(), input.u8(), input.u8());
        let length = usize::from(count >> 3) * 8;
        let bytes = input.take(length);
        program.put(BASE, bytes);
        let method =
            if method & 0x80 != 0 { 0x1000 | u16::from(method & 0xf) } else { (method & 0x1f).into() };
        let attributes: Vec<IoctlAttribute> = (0..count & 7).map(|_| one(&mut input)).collect();
        let mut bytes = request(OBJECTS[usize::from(which) % OBJECTS.len()], method, &attributes);
        let _ = uverbs.ioctl(&mut program, file, &mut bytes);
    }
    uverbs.close(&mut program, file);
    assert_eq!(uverbs.nic().live_objects(), before, "objects outlived their file");
});
