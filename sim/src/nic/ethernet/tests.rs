//! Tests of the Ethernet room.
