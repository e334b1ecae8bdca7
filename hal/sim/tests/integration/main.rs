//! The driver on simulated devices in virtual time: one program, because linking one takes longer than its tests.

mod card;
mod first_light;
mod support;
