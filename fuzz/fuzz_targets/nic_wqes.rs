//! Work requests of a connected queue pair: arbitrary blocks, most of them with a matching control segment.
#![no_main]

use bareverbs_fuzz::Bytes;
use bareverbs_fuzz::nic::NicConfig;
use bareverbs_fuzz::pair::Pair;
use bareverbs_prm::time::Duration;
use libfuzzer_sys::fuzz_target;

/// Fills in offsets and keys that exist, which the fuzzer would not find by chance.
fn make_real(pair: &Pair, block: &mut [u8; 64], choice: u8) {
    for segment in 0..3 {
        let at = 16 + segment * 16;
        match choice >> (2 * segment) & 3 {
            // A remote address, then a data segment.
            1 => {
                block[at..at + 8].copy_from_slice(&pair.b.mr.va.to_be_bytes());
                block[at + 8..at + 12].copy_from_slice(&pair.b.mr.key.value().to_be_bytes());
            }
            2 => {
                block[at] &= 0x80;
                block[at + 1] = 0;
                block[at + 4..at + 8].copy_from_slice(&pair.a.mr.key.value().to_be_bytes());
                block[at + 8..at + 16].copy_from_slice(&pair.a.mr.va.to_be_bytes());
            }
            _ => {}
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let (strict, jump) = (input.u8() & 1 != 0, u16::from(input.u8() & 0x3f));
    let mut pair = Pair::with(NicConfig { strict, ..NicConfig::default() }, |_| {});
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        let (good, choice) = (input.u8(), input.u8());
        let mut block: [u8; 64] = input.array();
        if good & 3 != 0 {
            block[..3].copy_from_slice(&[0, (pair.a.qp.posted >> 8) as u8, pair.a.qp.posted as u8]);
            block[4..7].copy_from_slice(&pair.a.qp.qpn.value().to_be_bytes()[1..]);
            block[7] &= 0xf;
            make_real(&pair, &mut block, choice);
        }
        pair.a.write_blocks(&block);
    }
    let receives = [pair.b.mr.sge(0, 4096)];
    pair.b.post_receive(&receives);
    pair.a.host.memory.put(pair.a.qp.record + 6, &pair.a.qp.posted.wrapping_add(jump).to_be_bytes());
    pair.a.ring();
    pair.run();
    pair.pass_time(Duration::from_millis(10), 3);
    while pair.a.poll().is_some() {}
    for node in [&pair.a, &pair.b] {
        let writes = node.host.memory.faults.iter().filter(|fault| fault.write).count();
        assert_eq!(writes, 0, "the device wrote outside its memory keys");
    }
});
