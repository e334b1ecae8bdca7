//! Programs of arbitrary bytes: those that the verifier accepts must run to their end within their fuel, must ask for
//! nothing outside their grant, and must do the same as machine code.
#![no_main]

use bareverbs_fuzz::Bytes;
use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::{Event, Step};
use bareverbs_offload::program::{Executable, Fuel, Program, ProgramInvocation};
use bareverbs_offload_native::NativeProgram;
use libfuzzer_sys::fuzz_target;

const HOST: u64 = 0x7000_0000;
const REGION: u64 = 4096;
/// More steps than the fuel allows: each takes at least one unit.
const MOST_STEPS: u32 = 16 * 1024 + 1;

/// A request, and the memory that it reads and writes.
struct Request<'a, E> {
    program: &'a E,
    grant: &'a Grant,
    invocation: ProgramInvocation,
    memory: Vec<u8>,
}

impl<E: Executable> Request<'_, E> {
    /// Does what a step asks for, and goes on; `None` at the end.
    fn advance(&mut self, step: Step) -> Option<Step> {
        let Self { program, grant, invocation, memory } = self;
        Some(match step {
            Step::Fetch(range) | Step::Refetch { range, .. } => {
                let at = (range.address() - HOST) as usize;
                invocation.dma_done(*program, &memory[at..at + range.length() as usize], grant)
            }
            Step::Write { to, from } => {
                let (range, from) = (to.range(), from as usize);
                let at = (range.address() - HOST) as usize;
                // The runtime ends a request that asks for bytes outside its state.
                let bytes = invocation.state().get(from..)?.get(..range.length() as usize)?;
                memory[at..at + bytes.len()].copy_from_slice(bytes);
                invocation.resumed(*program, Event::Written, grant)
            }
            Step::CompareAndSwap { word, expected, desired } => {
                let at = (word.range().address() - HOST) as usize;
                let place: &mut [u8; 8] = memory[at..].first_chunk_mut().expect("the grant has the word");
                let found = u64::from_be_bytes(*place);
                if found == expected {
                    *place = desired.to_be_bytes();
                }
                invocation.resumed(*program, Event::Compared { found }, grant)
            }
            Step::AwaitPayload => invocation.payload(*program, &memory[..64], grant),
            // An answer, the end, or a step for which programs have no verb.
            _ => return None,
        })
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Bytes(data);
    let length = usize::from(input.u16() % 513) * 8;
    let Ok(program) = Program::verify(input.take(length)) else { return };
    let parameters = input.take(64);
    let mut memory: Vec<u8> = input.0.iter().copied().cycle().take(REGION as usize).collect();
    memory.resize(REGION as usize, 0);
    let grant = Grant::new(HOST, REGION).expect("no wrap").writable();
    let native = NativeProgram::new(program.clone());
    let invocation = ProgramInvocation::idle(Fuel::default());
    let mut interpreted =
        Request { program: &program, grant: &grant, invocation: invocation.clone(), memory: memory.clone() };
    let mut translated = Request { program: &native, grant: &grant, invocation, memory };
    let mut step = interpreted.invocation.begin(&program, parameters, &grant).expect("they fit");
    let mut other = translated.invocation.begin(&native, parameters, &grant).expect("they fit");
    for _ in 0..MOST_STEPS {
        let (one, two) = (&interpreted.invocation, &translated.invocation);
        assert_eq!((other, two.fault(), two.fuel_used()), (step, one.fault(), one.fuel_used()));
        assert_eq!(two.state(), one.state());
        assert!(one.fuel_used() <= Fuel::default().invocation);
        match (interpreted.advance(step), translated.advance(other)) {
            (Some(next), Some(same)) => (step, other) = (next, same),
            (None, None) => return assert_eq!(translated.memory, interpreted.memory),
            ends => panic!("only one of them ends: {ends:?}"),
        }
    }
    panic!("the program never ends");
});
