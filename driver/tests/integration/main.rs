//! The driver against firmware that follows a script: one program, because linking one takes longer than its tests.

mod boot;
mod completion_queue;
mod compressed;
mod data_path;
mod datagram;
mod errors;
mod fast_path;
mod hostile;
mod memory_keys;
mod objects;
mod properties;
mod shared_receive;
mod support;
mod turns;
