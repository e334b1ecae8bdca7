//! Locks that a panic elsewhere does not close for ever.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The guard of `mutex`. What is guarded here is whole after every statement, so a panic of another thread left nothing half
/// done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
