//! A child process that ends with its owner.

use std::process::Child;

/// A child that does not outlive its owner.
#[derive(Debug)]
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // The child may have ended already; then there is nothing to report.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
