//! The world with a device made for tests.

mod fabric;
mod latency;
mod player;
mod station;
mod subnet;
mod worlds;
