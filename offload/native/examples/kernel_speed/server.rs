//! A whole server on memory of this process: requests arrive in its receive buffers, and its answers are
//! counted.

use bareverbs_offload::budget::Limits;
use bareverbs_offload::cost::KernelCost;
use bareverbs_offload::dpu::{DpuServer, memory_size};
use bareverbs_offload::endpoint::{Completion, Endpoint, Outcome, Part, PostError, Work};
use bareverbs_offload::grant::Grant;
use bareverbs_offload::kernel::{CompiledIn, Kernel};
use bareverbs_offload::kernels::BuiltInKernels;
use bareverbs_offload::kernels::kv_lookup::{KvLookup, MAX_PARAMETERS};
use bareverbs_offload::own_memory::OwnMemory;
use bareverbs_offload::runtime::{ResponseWindow, Runtime};
use bareverbs_offload::table::{TableConfig, TableDescriptor, TablePolicy, TableWriter};
use bareverbs_offload::wire::{RegionHandle, ReplyTo, Request};
use bareverbs_prm::time::{Duration, Time};
use std::collections::VecDeque;

/// Requests that run at a time.
pub const SLOTS: usize = 64;
/// Where answers go, as the server knows it.
const WINDOW: u64 = 0x9_0000;
/// Rows of the table: chains of one to three lines.
const ROWS: u32 = 512;

/// The memory, and counts of what happened to it.
struct Local {
    memory: Vec<u8>,
    receives: VecDeque<(u64, Part)>,
    completions: VecDeque<Completion>,
    responses: usize,
}

impl Local {
    /// Delivers a request.
    fn deliver(&mut self, message: &[u8]) {
        let Some((id, into)) = self.receives.pop_front() else { panic!("no receive buffer is posted") };
        self.memory[into.offset..][..message.len()].copy_from_slice(message);
        let outcome = Outcome::Received { length: message.len() as u32, immediate: None };
        self.completions.push_back(Completion { connection: 0, id, outcome });
    }
}

impl Endpoint for Local {
    fn post(&mut self, connection: usize, id: u64, work: Work<'_>) -> Result<(), PostError> {
        match work {
            Work::WriteImmediate { from, .. } if from.length > 64 => self.responses += 1,
            other => panic!("not the answer to a lookup: {other:?}"),
        }
        self.completions.push_back(Completion { connection, id, outcome: Outcome::Done });
        Ok(())
    }

    fn has_room(&self, _connection: usize) -> bool {
        true
    }

    fn post_receive(&mut self, _connection: usize, id: u64, into: Part) -> Result<(), PostError> {
        self.receives.push_back((id, into));
        Ok(())
    }

    fn poll(&mut self) -> Option<Completion> {
        self.completions.pop_front()
    }

    fn refresh(&self) {}

    fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), PostError> {
        let place = self.memory.get_mut(offset..).and_then(|rest| rest.get_mut(..bytes.len()));
        place.ok_or(PostError::BadRequest)?.copy_from_slice(bytes);
        Ok(())
    }

    fn copy_out(&self, offset: usize, buffer: &mut [u8]) -> Result<(), PostError> {
        let place = self.memory.get(offset..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(place.ok_or(PostError::BadRequest)?);
        Ok(())
    }
}

/// A table whose values all have this length, and the memory that it is in.
pub fn table(value: usize) -> (Vec<u8>, TableDescriptor) {
    let policy = TablePolicy::default();
    let config = TableConfig { buckets: ROWS / 2, overflow_lines: ROWS / 2, seed: [7; 16], policy };
    let mut memory = vec![0; 64 * 1024 + ROWS as usize * (value * 5 / 4 + 512)];
    let mut writer = TableWriter::create(&mut memory[..], &config).expect("room for the table");
    for row in 0..ROWS {
        writer.insert(Time::ZERO, &key(row), &vec![row as u8; value]).expect("room for the row");
    }
    let descriptor = *writer.descriptor();
    (memory, descriptor)
}

/// The key of a row.
pub fn key(row: u32) -> [u8; 16] {
    let mut key = *b"key of row ....!";
    key[11..15].copy_from_slice(&row.to_be_bytes());
    key
}

/// The parameters of a lookup.
pub fn parameters(table: &TableDescriptor, row: u32) -> Vec<u8> {
    let mut buffer = [0; MAX_PARAMETERS];
    table.lookup(&key(row)).encode(&mut buffer).expect("they fit").to_vec()
}

/// Requests [`SLOTS`] values of this length and runs until all are answered.
pub fn lookups(value: usize) -> Box<dyn FnMut()> {
    let (memory, descriptor) = table(value);
    let grant = Grant::new(0, memory.len() as u64).expect("no wrap");
    let limits = Limits { time: Duration::from_secs(1), ..Limits::default() };
    let runtime = Runtime::new(limits, KernelCost::FREE);
    let mut server = Box::new(DpuServer::<CompiledIn<BuiltInKernels>, SLOTS, 1, SLOTS>::new(runtime));
    let window = ResponseWindow { address: WINDOW, length: 1 << 20, rkey: 7 };
    let id = server.runtime().connect(window, SLOTS as u16).expect("a place");
    let region = server.runtime().grant(id, grant).expect("a place").0;
    let (receives, completions) = (VecDeque::new(), VecDeque::new());
    let mut local = Local { memory: vec![0; memory_size(SLOTS, SLOTS)], receives, completions, responses: 0 };
    server.serve(&mut local, 0, id).expect("receives are posted");
    let memory: &'static mut [u8] = Box::leak(memory.into_boxed_slice());
    let mut dma = OwnMemory::<_, SLOTS>::new(memory);
    let mut scratch = vec![0; 70_000];
    let messages: Vec<Vec<u8>> = (0..ROWS).map(|row| message(&descriptor, row, value, region)).collect();
    let mut first = 0;
    Box::new(move || {
        for slot in 0..SLOTS {
            local.deliver(&messages[(first + slot) % messages.len()]);
        }
        first += SLOTS;
        local.responses = 0;
        while server.poll(Time::ZERO, &mut local, &mut dma, &mut scratch) {}
        assert_eq!(local.responses, SLOTS, "all are answered");
    })
}

fn message(table: &TableDescriptor, row: u32, value: usize, region: u32) -> Vec<u8> {
    let max_response = (value as u32 + 256).next_multiple_of(8);
    let request = Request {
        opcode: KvLookup::OPCODE,
        request_id: row.into(),
        reply: ReplyTo { address: WINDOW, rkey: 7, max_response, slot: 0 },
        deadline: Duration::ZERO,
        hop_limit: 0,
        region: RegionHandle(region),
        parameters: &parameters(table, row),
        payload: &[],
    };
    let mut buffer = [0; 512];
    request.encode_message(&mut buffer).expect("it fits").to_vec()
}
