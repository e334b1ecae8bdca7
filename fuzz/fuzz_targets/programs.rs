//! Programs of any bytes: what the verifier accepts runs to its end, inside its fuel, and asks for nothing beyond its grant.
#![no_main]

use bareverbs_fuzz::Bytes;
use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::Step;
use bareverbs_offload::program::{Fuel, Program, ProgramInvocation};
use libfuzzer_sys::fuzz_target;

const HOST: u64 = 0x7000_0000;
const REGION: u64 = 4096;
/// More steps than fuel: each takes one unit at least.
const MOST_STEPS: u32 = 16 * 1024 + 1;

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let length = usize::from(input.u16() % 513) * 8;
    let Ok(program) = Program::verify(input.take(length)) else { return };
    let parameters = input.take(64);
    let memory: Vec<u8> = input.0.iter().copied().cycle().take(REGION as usize).collect();
    let memory = if memory.is_empty() { vec![0; REGION as usize] } else { memory };
    let grant = Grant::new(HOST, REGION).expect("no wrap");
    let Ok((mut run, mut step)) = ProgramInvocation::start(&program, Fuel::default(), parameters, &grant)
    else {
        return;
    };
    for _ in 0..MOST_STEPS {
        assert!(run.fuel_used() <= Fuel::default().invocation);
        step = match step {
            Step::Fetch(range) | Step::Refetch { range, .. } => {
                let at = (range.address() - HOST) as usize;
                run.dma_done(&program, &memory[at..at + range.length() as usize], &grant)
            }
            Step::AwaitPayload => run.payload(&program, &memory[..64], &grant),
            // An answer, the end, or what a program has no verb for.
            _ => return,
        };
    }
    panic!("the program never ends");
});
