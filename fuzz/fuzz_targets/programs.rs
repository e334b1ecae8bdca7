//! Programs of arbitrary bytes: those that the verifier accepts must run to their end within their fuel, and
//! must ask for nothing outside their grant.
#![no_main]

use bareverbs_fuzz::Bytes;
use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::{Event, Step};
use bareverbs_offload::program::{Fuel, Program, ProgramInvocation};
use libfuzzer_sys::fuzz_target;

const HOST: u64 = 0x7000_0000;
const REGION: u64 = 4096;
/// More steps than the fuel allows: each takes at least one unit.
const MOST_STEPS: u32 = 16 * 1024 + 1;

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let length = usize::from(input.u16() % 513) * 8;
    let Ok(program) = Program::verify(input.take(length)) else { return };
    let parameters = input.take(64);
    let mut memory: Vec<u8> = input.0.iter().copied().cycle().take(REGION as usize).collect();
    memory.resize(REGION as usize, 0);
    let grant = Grant::new(HOST, REGION).expect("no wrap").writable();
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
            Step::Write { to, from } => {
                let (range, from) = (to.range(), from as usize);
                let at = (range.address() - HOST) as usize;
                // The runtime ends a request that asks for bytes outside its state.
                let Some(bytes) = run.state().get(from..).and_then(|rest| rest.get(..range.length() as usize))
                else {
                    return;
                };
                memory[at..at + bytes.len()].copy_from_slice(bytes);
                run.resumed(&program, Event::Written, &grant)
            }
            Step::CompareAndSwap { word, expected, desired } => {
                let at = (word.range().address() - HOST) as usize;
                let place: &mut [u8; 8] = memory[at..].first_chunk_mut().expect("the grant has the word");
                let found = u64::from_be_bytes(*place);
                if found == expected {
                    *place = desired.to_be_bytes();
                }
                run.resumed(&program, Event::Compared { found }, &grant)
            }
            Step::AwaitPayload => run.payload(&program, &memory[..64], &grant),
            // An answer, the end, or a step for which programs have no verb.
            _ => return,
        };
    }
    panic!("the program never ends");
});
