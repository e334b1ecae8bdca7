//! The world with a test device.

mod fabric;
mod latency;
mod player;
mod station;
mod subnet;
mod worlds;
