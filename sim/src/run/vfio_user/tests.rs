//! The server against a client of the protocol.
