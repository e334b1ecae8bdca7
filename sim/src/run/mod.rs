//! Runners: the world in virtual time.
