//! Faults that `.ci/mutations` injects into driver or simulator, one at a time, and that a test has to notice.
//!
//! They exist only where the compiler is told `--cfg bareverbs_mutations`, on a host and for its tests: there the environment variable
//! `BAREVERBS_MUTATION` names the fault, so that one build serves all of them. In every other build the answer is a constant.

/// Whether the fault `name` is active.
#[cfg(not(bareverbs_mutations))]
#[inline(always)]
pub const fn mutated(_name: &str) -> bool {
    false
}

/// Whether the fault `name` is active.
#[cfg(bareverbs_mutations)]
pub fn mutated(name: &str) -> bool {
    extern crate std;
    static ACTIVE: std::sync::OnceLock<std::string::String> = std::sync::OnceLock::new();
    ACTIVE.get_or_init(|| std::env::var("BAREVERBS_MUTATION").unwrap_or_default()) == name
}
