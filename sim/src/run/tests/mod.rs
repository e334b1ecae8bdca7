//! The world with a test device.

mod fabric;
mod latency;
mod management_lane;
mod player;
mod station;
mod subnet;
mod worlds;
