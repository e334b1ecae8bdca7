//! What is asked of whoever runs the program.

use crate::Errno;
use bareverbs_prm::time::Time;
use bareverbs_sim::nic::HostMemory;

/// What an operating system does for the program that asks: its memory, the time, and files for events.
pub trait Process: HostMemory {
    /// Time since the device was made.
    fn now(&mut self) -> Time;
    /// Opens a file from which the program reads asynchronous events, and gives its number.
    fn open_event_file(&mut self) -> Result<i32, Errno>;
}
