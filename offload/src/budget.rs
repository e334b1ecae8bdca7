//! The budget of one invocation, charged by the runner of the kernel and never by the kernel.

use crate::grant::{Checked, Writable};
use crate::kernel::{Emission, Ranges, Step};
use crate::kernels::kv_layout::MAX_OBJECT;
use crate::status::Status;
use bareverbs_prm::time::{Duration, Time};

/// Most bytes that one step may read or write: a hash table object with the longest key and value. A staging buffer
/// holds that much.
pub const MAX_READ: u32 = MAX_OBJECT;

/// Limits of one invocation.
///
/// ```
/// use bareverbs_offload::budget::Limits;
/// use bareverbs_prm::time::Duration;
///
/// let limits = Limits { hops: 16, ..Limits::default() };
/// // A request may ask for less than the server allows, not for more.
/// assert_eq!(limits.tightened(8, Duration::ZERO).hops, 8);
/// assert_eq!(limits.tightened(100, Duration::ZERO).hops, 16);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Elements that may be read or written.
    pub hops: u16,
    /// Bytes that may be read.
    pub bytes: u32,
    /// Times that a read may be restarted because its bytes were changing.
    pub retries: u16,
    /// Time from acceptance to the reply.
    pub time: Duration,
}

impl Default for Limits {
    /// 64 elements, 512 KiB (a value of 64 KiB read again a few times), 8 retries, 1 ms.
    fn default() -> Self {
        Self { hops: 64, bytes: 512 * 1024, retries: 8, time: Duration::from_millis(1) }
    }
}

impl Limits {
    /// The tighter of `self` and what the request asks for. A zero in the request leaves the limit to the server.
    pub fn tightened(self, hops: u16, time: Duration) -> Self {
        let hops = if hops == 0 { self.hops } else { hops.min(self.hops) };
        let time = if time == Duration::ZERO { self.time } else { time.min(self.time) };
        Self { hops, time, ..self }
    }
}

/// What an invocation has consumed of its limits.
///
/// ```
/// use bareverbs_offload::budget::{Budget, Limits, Next};
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::kernel::{Status, Step};
/// use bareverbs_prm::time::Time;
///
/// let line = Grant::new(0x1000, 64)?.check(0, 64)?;
/// let mut budget = Budget::new(Limits { hops: 1, ..Limits::default() }, Time::ZERO);
/// assert_eq!(budget.charge(Step::Fetch(line), Time::ZERO), Next::Read(line));
/// assert_eq!(budget.charge(Step::Fetch(line), Time::ZERO), Next::End(Status::HopLimit));
/// # Ok::<(), bareverbs_offload::grant::GrantFault>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    limits: Limits,
    deadline: Time,
    hops: u16,
    retries: u16,
    bytes: u32,
}

/// What to do after a step was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Read this range.
    Read(Checked),
    /// Read these ranges at once.
    ReadEach(Ranges),
    /// Wait for the next of the ranges that are being read.
    AwaitPart,
    /// Write what the kernel computed.
    Write {
        /// Destination.
        to: Writable,
        /// Offset of the first byte to write within [`Kernel::computed`](crate::kernel::Kernel::computed).
        from: u32,
    },
    /// Compare and swap this word.
    CompareAndSwap {
        /// The word.
        word: Writable,
        /// The value that it must have.
        expected: u64,
        /// The value that it gets.
        desired: u64,
    },
    /// Hand over the payload.
    Payload,
    /// Answer with this part of the bytes that were read.
    Emit(Emission),
    /// Answer with this part of the bytes that the kernel computed.
    Reply(Emission),
    /// The invocation ends.
    End(Status),
}

impl Budget {
    /// A fresh budget for something that begins `now`.
    pub fn new(limits: Limits, now: Time) -> Self {
        Self { limits, deadline: now + limits.time, hops: 0, retries: 0, bytes: 0 }
    }

    /// The time at which the invocation must have ended.
    pub const fn deadline(&self) -> Time {
        self.deadline
    }
    /// Elements read so far, repeated reads included.
    pub const fn hops(&self) -> u16 {
        self.hops
    }
    /// Retries so far.
    pub const fn retries(&self) -> u16 {
        self.retries
    }
    /// Bytes read so far.
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Charges a step and returns what may be done.
    #[inline]
    pub fn charge(&mut self, step: Step, now: Time) -> Next {
        match step {
            Step::Done(status) => Next::End(status),
            _ if now >= self.deadline => Next::End(Status::Deadline),
            Step::Fetch(range) => self.charge_bytes(range.length(), 1, Next::Read(range)),
            Step::FetchEach(ranges) => self.charge_each(ranges),
            Step::AwaitPart => Next::AwaitPart,
            Step::Write { to, from } => self.charge_bytes(to.range().length(), 1, Next::Write { to, from }),
            Step::CompareAndSwap { word, expected, desired } => {
                self.charge_bytes(word.range().length(), 1, Next::CompareAndSwap { word, expected, desired })
            }
            Step::Refetch { range, otherwise } => self.charge_retry(range, otherwise),
            Step::AwaitPayload => Next::Payload,
            Step::Emit(emission) => Next::Emit(emission),
            Step::Reply(emission) => Next::Reply(emission),
        }
    }

    fn charge_retry(&mut self, range: Checked, otherwise: Status) -> Next {
        if self.retries >= self.limits.retries {
            return Next::End(otherwise);
        }
        self.retries += 1;
        self.charge_bytes(range.length(), 1, Next::Read(range))
    }

    /// All of them have to fit into the staging buffer together.
    fn charge_each(&mut self, ranges: Ranges) -> Next {
        let lengths = ranges.iter().map(Checked::length);
        let (count, all) = lengths.fold((0, 0_u32), |(n, all), length| (n + 1, all.saturating_add(length)));
        self.charge_bytes(all, count, Next::ReadEach(ranges))
    }

    fn charge_bytes(&mut self, length: u32, elements: u16, allowed: Next) -> Next {
        match self.take(length, elements) {
            Ok(()) => allowed,
            Err(status) => Next::End(status),
        }
    }

    /// Charges a [`Step::Fetch`] of so many bytes, without the detour by [`Next`], which is large.
    #[inline]
    pub(crate) fn charge_fetch(&mut self, length: u32, now: Time) -> Result<(), Status> {
        if now >= self.deadline {
            return Err(Status::Deadline);
        }
        self.take(length, 1)
    }

    #[inline]
    fn take(&mut self, length: u32, elements: u16) -> Result<(), Status> {
        if self.limits.hops.saturating_sub(self.hops) < elements {
            return Err(Status::HopLimit);
        }
        if length > MAX_READ {
            return Err(Status::ByteLimit);
        }
        match self.bytes.checked_add(length) {
            Some(bytes) if bytes <= self.limits.bytes => {
                self.bytes = bytes;
                self.hops += elements;
                Ok(())
            }
            _ => Err(Status::ByteLimit),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::Grant;

    fn range(length: u32) -> Checked {
        Grant::new(0, 1 << 40).and_then(|g| g.check(0, length)).expect("inside")
    }

    #[test]
    fn hops_are_bounded() {
        let mut budget = Budget::new(Limits { hops: 2, ..Limits::default() }, Time::ZERO);
        assert!(matches!(budget.charge(Step::Fetch(range(64)), Time::ZERO), Next::Read(_)));
        assert!(matches!(budget.charge(Step::Fetch(range(64)), Time::ZERO), Next::Read(_)));
        assert_eq!(budget.charge(Step::Fetch(range(64)), Time::ZERO), Next::End(Status::HopLimit));
        assert_eq!(budget.hops(), 2);
    }

    #[test]
    fn ranges_that_are_read_at_once_count_each_and_fit_together() {
        let mut budget = Budget::new(Limits { hops: 5, ..Limits::default() }, Time::ZERO);
        let each = |lengths: &[u32]| {
            Ranges::of(&lengths.iter().copied().map(range).collect::<Vec<_>>()).expect("some")
        };
        let both = each(&[64, 1]);
        assert_eq!(budget.charge(Step::FetchEach(both), Time::ZERO), Next::ReadEach(both));
        assert_eq!((budget.hops(), budget.bytes()), (2, 65));
        let large = Step::FetchEach(each(&[MAX_READ, 1]));
        assert_eq!(budget.charge(large, Time::ZERO), Next::End(Status::ByteLimit));
        assert_eq!(budget.charge(Step::FetchEach(each(&[1; 4])), Time::ZERO), Next::End(Status::HopLimit));
        assert_eq!(budget.charge(Step::AwaitPart, Time::ZERO), Next::AwaitPart);
        assert_eq!((budget.hops(), budget.bytes()), (2, 65));
        assert_eq!(Ranges::of(&[range(1); 5]), None);
    }

    #[test]
    fn bytes_are_bounded_in_one_read_and_in_all() {
        let mut budget = Budget::new(Limits { bytes: MAX_READ, ..Limits::default() }, Time::ZERO);
        assert_eq!(budget.charge(Step::Fetch(range(u32::MAX)), Time::ZERO), Next::End(Status::ByteLimit));
        assert_eq!(budget.charge(Step::Fetch(range(MAX_READ + 1)), Time::ZERO), Next::End(Status::ByteLimit));
        assert!(matches!(budget.charge(Step::Fetch(range(MAX_READ)), Time::ZERO), Next::Read(_)));
        assert_eq!(budget.charge(Step::Fetch(range(1)), Time::ZERO), Next::End(Status::ByteLimit));
    }

    #[test]
    fn retries_end_with_the_status_of_the_kernel() {
        let mut budget = Budget::new(Limits { retries: 1, ..Limits::default() }, Time::ZERO);
        let step = Step::Refetch { range: range(64), otherwise: Status::Busy };
        assert!(matches!(budget.charge(step, Time::ZERO), Next::Read(_)));
        assert_eq!(budget.charge(step, Time::ZERO), Next::End(Status::Busy));
    }

    #[test]
    fn a_late_response_is_ignored() {
        let mut budget = Budget::new(Limits::default(), Time::ZERO);
        let emit = Step::Emit(Emission { offset: 0, length: 0, version: 0 });
        assert_eq!(budget.charge(emit, budget.deadline()), Next::End(Status::Deadline));
    }

    #[test]
    fn a_request_can_only_tighten() {
        let limits = Limits::default();
        assert_eq!(limits.tightened(0, Duration::ZERO), limits);
        assert_eq!(limits.tightened(u16::MAX, Duration::from_secs(9)), limits);
        assert_eq!(limits.tightened(3, Duration::from_micros(5)).hops, 3);
    }
}
