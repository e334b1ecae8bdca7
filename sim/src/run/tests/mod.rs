//! The world with a device made for tests.

mod latency;
mod player;
mod subnet;
mod worlds;
