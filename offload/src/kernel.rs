//! The contract between a kernel and its runner.
//!
//! A kernel is a value of bounded size that is handed bytes and answers with one [`Step`]. It owns no memory, reads no
//! clock and never loops over remote data: each element that it wants to see is a step, so its runner can count,
//! charge, interleave and stop it. It sees neither keys nor addresses, only offsets into its [`Grant`].

use crate::grant::{Checked, Grant, Writable};
pub use crate::status::Status;
use core::fmt;
use core::marker::PhantomData;

/// Most bytes of the state of one invocation.
pub const MAX_STATE: usize = 256;

/// What a request asks for: 64 bits, the space of the address field of StRoM's RETH.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(pub u64);

/// Ranges that one step may ask for.
pub const MAX_PARTS: usize = 4;

/// One to [`MAX_PARTS`] ranges that are read at once.
///
/// ```
/// use bareverbs_offload::grant::Grant;
/// use bareverbs_offload::kernel::Ranges;
///
/// let grant = Grant::new(0x1000, 4096)?;
/// let both = Ranges::of(&[grant.check(0, 64)?, grant.check(640, 64)?]).unwrap();
/// assert_eq!(both.iter().map(|range| range.offset()).sum::<u64>(), 640);
/// assert!(Ranges::of(&[]).is_none());
/// # Ok::<(), bareverbs_offload::grant::GrantFault>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranges([Option<Checked>; MAX_PARTS]);

impl Ranges {
    /// These ranges; `None` if there are none or too many.
    pub fn of(ranges: &[Checked]) -> Option<Self> {
        let mut all = [None; MAX_PARTS];
        for (place, range) in all.get_mut(..ranges.len())?.iter_mut().zip(ranges) {
            *place = Some(*range);
        }
        (!ranges.is_empty()).then_some(Self(all))
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Checked> {
        self.0.iter().map_while(|range| *range)
    }
}

// ANCHOR: step
/// What a kernel wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a step that nobody takes leaves the invocation hanging"]
pub enum Step {
    /// Read this range and come back through [`Kernel::dma_done`].
    Fetch(Checked),
    /// The bytes that were read cannot be trusted: read this range instead. If no retry is left, the
    /// invocation ends with `otherwise`.
    Refetch {
        /// Where to restart.
        range: Checked,
        /// The status if there is no retry left.
        otherwise: Status,
    },
    /// Read all of these at once; each comes back through [`Kernel::resumed`] as it completes, in any order. Any
    /// following step but [`Step::AwaitPart`] discards the rest, so a kernel may read ahead speculatively.
    FetchEach(Ranges),
    /// Wait for the next range of a [`Step::FetchEach`].
    AwaitPart,
    /// Write computed bytes, from `from` on, to the whole of `to`, and come back through [`Kernel::resumed`].
    Write {
        /// Destination.
        to: Writable,
        /// Offset of the first byte within [`Kernel::computed`].
        from: u32,
    },
    /// Replace the big-endian word by `desired` if it equals `expected`, and come back through [`Kernel::resumed`] with
    /// the previous word. Ends with [`Status::NoAtomics`] where the path to the memory cannot compare and swap.
    CompareAndSwap {
        /// The word.
        word: Writable,
        /// The value that it must have.
        expected: u64,
        /// The value that it gets.
        desired: u64,
    },
    /// Hand over the payload through [`Kernel::payload`].
    AwaitPayload,
    /// The answer: a part of the bytes that were just handed over.
    Emit(Emission),
    /// The answer: a part of what the kernel computed, [`Kernel::computed`].
    Reply(Emission),
    /// The invocation ends without an answer.
    Done(Status),
}
// ANCHOR_END: step

/// An answer within the bytes last handed to the kernel, or within those that it computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emission {
    /// Offset of its first byte.
    pub offset: u32,
    /// Its length in bytes; an empty answer is valid.
    pub length: u32,
    /// The version of the data found.
    pub version: u64,
}

/// What a kernel waited for, other than a single range or the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// A range of [`Step::FetchEach`] was read.
    Part {
        /// Its index among them.
        part: usize,
        /// All its bytes.
        bytes: &'a [u8],
    },
    /// The bytes of [`Step::Write`] are written.
    Written,
    /// [`Step::CompareAndSwap`] found this word. It was swapped if it equals the expected one.
    Compared {
        /// The word that was there.
        found: u64,
    },
}

/// A state machine that walks remote data.
pub trait Kernel: Sized {
    /// The op-code it answers to.
    const OPCODE: Opcode;
    /// Fails to compile if the state is too large; a runner of kernels must name it.
    const STATE_FITS: () =
        assert!(size_of::<Self>() <= MAX_STATE, "the state of a kernel is at most 256 bytes");

    /// Begins. The parameters are unchecked.
    fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status>;

    /// Begins in the place to which `put` moves the kernel. One that fills a part of its state there, and does not move
    /// it, is faster than this default. It must not fail after it called `put`.
    #[inline]
    fn start_in<'p>(
        parameters: &[u8],
        grant: &Grant,
        put: impl FnOnce(Self) -> &'p mut Self,
    ) -> Result<Step, Status>
    where
        Self: 'p,
    {
        let (kernel, step) = Self::start(parameters, grant)?;
        let _ = put(kernel);
        Ok(step)
    }

    /// Continues with all bytes of the range that was requested last.
    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step;

    /// Continues with payload of the request. Kernels that never ask for payload keep this default.
    fn payload(&mut self, chunk: &[u8], last: bool, grant: &Grant) -> Step {
        let _ = (chunk, last, grant);
        Step::Done(Status::BadParameters)
    }

    /// Continues after [`Step::FetchEach`], [`Step::Write`] or [`Step::CompareAndSwap`]. Kernels that never
    /// return these keep this default.
    fn resumed(&mut self, event: Event<'_>, grant: &Grant) -> Step {
        let _ = (event, grant);
        Step::Done(Status::BadParameters)
    }

    /// What the kernel has computed, for [`Step::Reply`] and [`Step::Write`]. Kernels that answer with what
    /// they read keep this default.
    fn computed(&self) -> &[u8] {
        &[]
    }
}

/// Who sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// The number of the connection.
    pub connection: u16,
    /// Whether it may deploy and remove programs.
    pub may_deploy: bool,
}

/// A request, and what its sender may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelCall<'a> {
    /// Who sent it.
    pub caller: Caller,
    /// Its parameters, unchecked.
    pub parameters: &'a [u8],
    /// The region that it may access.
    pub grant: &'a Grant,
}

/// What a runtime runs: compiled-in kernels, deployed programs, or both.
pub trait Deployment {
    /// One request in progress.
    type Invocation;
    /// Whether requests of this op-code need a region; the others may name any.
    fn needs_region(&self, opcode: Opcode) -> bool;
    /// Begins what answers to `opcode`, in `place`, which is empty and stays so if this fails; [`Status::NoKernel`]
    /// if nothing answers.
    fn start(
        &mut self,
        place: &mut Option<Self::Invocation>,
        opcode: Opcode,
        call: &KernelCall<'_>,
    ) -> Result<Step, Status>;
    /// See [`Kernel::dma_done`].
    fn dma_done(&self, invocation: &mut Self::Invocation, bytes: &[u8], grant: &Grant) -> Step;
    /// See [`Kernel::payload`]; messages carry their payload whole.
    fn payload(&self, invocation: &mut Self::Invocation, payload: &[u8], grant: &Grant) -> Step;
    /// See [`Kernel::resumed`].
    fn resumed(&self, invocation: &mut Self::Invocation, event: Event<'_>, grant: &Grant) -> Step;
    /// See [`Kernel::computed`].
    fn computed<'a>(&'a self, invocation: &'a Self::Invocation) -> &'a [u8];
    /// Fuel that an invocation has used so far; compiled-in kernels use none.
    fn fuel_used(&self, invocation: &Self::Invocation) -> u32 {
        let _ = invocation;
        0
    }
    /// Reports that an invocation has ended. Called once for each that was started.
    fn ended(&mut self, invocation: &Self::Invocation);
}

/// A deployment that never changes: the compiled-in kernels of a set.
#[derive(Debug, Clone, Copy)]
pub struct CompiledIn<S>(PhantomData<fn() -> S>);

impl<S> Default for CompiledIn<S> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<S: KernelSet> Deployment for CompiledIn<S> {
    type Invocation = S;
    fn needs_region(&self, _opcode: Opcode) -> bool {
        true
    }
    #[inline]
    fn start(
        &mut self,
        place: &mut Option<S>,
        opcode: Opcode,
        call: &KernelCall<'_>,
    ) -> Result<Step, Status> {
        S::start_in(place, opcode, call)
    }
    #[inline]
    fn dma_done(&self, invocation: &mut S, bytes: &[u8], grant: &Grant) -> Step {
        invocation.dma_done(bytes, grant)
    }
    fn payload(&self, invocation: &mut S, payload: &[u8], grant: &Grant) -> Step {
        invocation.payload(payload, true, grant)
    }
    fn resumed(&self, invocation: &mut S, event: Event<'_>, grant: &Grant) -> Step {
        invocation.resumed(event, grant)
    }
    fn computed<'a>(&'a self, invocation: &'a S) -> &'a [u8] {
        invocation.computed()
    }
    fn ended(&mut self, _invocation: &S) {}
}

/// A set of compiled-in kernels: an enum over them, selected by op-code.
pub trait KernelSet: Sized {
    /// Whether a kernel of the set answers to `opcode`.
    fn has(opcode: Opcode) -> bool;
    /// Begins the kernel that answers to `opcode`; [`Status::NoKernel`] if there is none.
    fn start(opcode: Opcode, parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status>;
    /// Begins it in `place`, which stays as it is if this fails. A set that moves only the kernel, and not the room for
    /// its largest one, is faster than this default.
    #[inline]
    fn start_in(place: &mut Option<Self>, opcode: Opcode, call: &KernelCall<'_>) -> Result<Step, Status> {
        let (kernel, step) = Self::start(opcode, call.parameters, call.grant)?;
        *place = Some(kernel);
        Ok(step)
    }
    /// See [`Kernel::dma_done`].
    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step;
    /// See [`Kernel::payload`].
    fn payload(&mut self, chunk: &[u8], last: bool, grant: &Grant) -> Step;
    /// See [`Kernel::resumed`].
    fn resumed(&mut self, event: Event<'_>, grant: &Grant) -> Step;
    /// See [`Kernel::computed`].
    fn computed(&self) -> &[u8];
}

/// A single kernel is a set, too.
impl<K: Kernel> KernelSet for K {
    fn start(opcode: Opcode, parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
        let () = K::STATE_FITS;
        if opcode == K::OPCODE { K::start(parameters, grant) } else { Err(Status::NoKernel) }
    }
    fn has(opcode: Opcode) -> bool {
        opcode == K::OPCODE
    }
    fn dma_done(&mut self, bytes: &[u8], grant: &Grant) -> Step {
        Kernel::dma_done(self, bytes, grant)
    }
    fn payload(&mut self, chunk: &[u8], last: bool, grant: &Grant) -> Step {
        Kernel::payload(self, chunk, last, grant)
    }
    fn resumed(&mut self, event: Event<'_>, grant: &Grant) -> Step {
        Kernel::resumed(self, event, grant)
    }
    fn computed(&self) -> &[u8] {
        Kernel::computed(self)
    }
}

/// Makes an enum of kernels a [`KernelSet`]: a request goes to the kernel that has its op-code.
///
/// ```
/// use bareverbs_offload::kernels::kv_lookup::KvLookup;
///
/// bareverbs_offload::kernel_set! {
///     /// What our DPU runs.
///     pub enum OurKernels {
///         /// Looks keys up.
///         Lookup(KvLookup),
///     }
/// }
/// ```
#[macro_export]
macro_rules! kernel_set {
    ($(#[$about:meta])* $vis:vis enum $set:ident { $($(#[$doc:meta])* $name:ident($kernel:ty)),+ $(,)? }) => {
        $(#[$about])*
        $vis enum $set { $($(#[$doc])* $name($kernel)),+ }

        const _: () = $crate::kernel::assert_distinct(&[$(<$kernel as $crate::kernel::Kernel>::OPCODE),+]);

        impl $crate::kernel::KernelSet for $set {
            fn has(opcode: $crate::kernel::Opcode) -> bool {
                [$(<$kernel as $crate::kernel::Kernel>::OPCODE),+].contains(&opcode)
            }
            fn start(
                opcode: $crate::kernel::Opcode,
                parameters: &[u8],
                grant: &$crate::grant::Grant,
            ) -> Result<(Self, $crate::kernel::Step), $crate::kernel::Status> {
                $(if opcode == <$kernel as $crate::kernel::Kernel>::OPCODE {
                    let () = <$kernel as $crate::kernel::Kernel>::STATE_FITS;
                    let (kernel, step) = <$kernel as $crate::kernel::Kernel>::start(parameters, grant)?;
                    return Ok((Self::$name(kernel), step));
                })+
                Err($crate::kernel::Status::NoKernel)
            }
            #[inline]
            fn start_in(
                place: &mut Option<Self>,
                opcode: $crate::kernel::Opcode,
                call: &$crate::kernel::KernelCall<'_>,
            ) -> Result<$crate::kernel::Step, $crate::kernel::Status> {
                $(if opcode == <$kernel as $crate::kernel::Kernel>::OPCODE {
                    let () = <$kernel as $crate::kernel::Kernel>::STATE_FITS;
                    return <$kernel as $crate::kernel::Kernel>::start_in(
                        call.parameters,
                        call.grant,
                        |kernel| match place.insert(Self::$name(kernel)) {
                            Self::$name(kernel) => kernel,
                            #[allow(unreachable_patterns, reason = "a set of one kernel")]
                            _ => unreachable!("it was put there"),
                        },
                    );
                })+
                Err($crate::kernel::Status::NoKernel)
            }
            #[inline]
            fn dma_done(&mut self, bytes: &[u8], grant: &$crate::grant::Grant) -> $crate::kernel::Step {
                match self { $(Self::$name(kernel) => $crate::kernel::dma_done(kernel, bytes, grant)),+ }
            }
            fn payload(&mut self, chunk: &[u8], last: bool, grant: &$crate::grant::Grant) -> $crate::kernel::Step {
                match self { $(Self::$name(kernel) => $crate::kernel::Kernel::payload(kernel, chunk, last, grant)),+ }
            }
            fn resumed(
                &mut self,
                event: $crate::kernel::Event<'_>,
                grant: &$crate::grant::Grant,
            ) -> $crate::kernel::Step {
                match self { $(Self::$name(kernel) => $crate::kernel::Kernel::resumed(kernel, event, grant)),+ }
            }
            fn computed(&self) -> &[u8] {
                match self { $(Self::$name(kernel) => $crate::kernel::Kernel::computed(kernel)),+ }
            }
        }
    };
}

/// See [`Kernel::dma_done`]. A kernel of a set has a function of its own for it: a part of one that is inlined into its
/// caller would cost the other kernels registers.
#[doc(hidden)]
#[inline(never)]
pub fn dma_done<K: Kernel>(kernel: &mut K, bytes: &[u8], grant: &Grant) -> Step {
    kernel.dma_done(bytes, grant)
}

/// Fails to compile if two kernels of a set have the same op-code.
#[doc(hidden)]
pub const fn assert_distinct(opcodes: &[Opcode]) {
    let mut first = 0;
    while first < opcodes.len() {
        let mut second = first + 1;
        while second < opcodes.len() {
            assert!(opcodes[first].0 != opcodes[second].0, "two kernels of a set have the same op-code");
            second += 1;
        }
        first += 1;
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op-code {:#018x}", self.0)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers with the first bytes; its parameter says how many.
    struct Head(u32);

    impl Kernel for Head {
        const OPCODE: Opcode = Opcode(1);

        fn start(parameters: &[u8], grant: &Grant) -> Result<(Self, Step), Status> {
            let length = u32::from(*parameters.first().ok_or(Status::BadParameters)?);
            let range = grant.check(0, length)?;
            Ok((Self(length), Step::Fetch(range)))
        }

        fn dma_done(&mut self, _: &[u8], _: &Grant) -> Step {
            Step::Emit(Emission { offset: 0, length: self.0, version: 0 })
        }
    }

    /// Awaits payload and ends with it.
    struct Sink;

    impl Kernel for Sink {
        const OPCODE: Opcode = Opcode(2);

        fn start(_: &[u8], _: &Grant) -> Result<(Self, Step), Status> {
            Ok((Self, Step::AwaitPayload))
        }

        fn dma_done(&mut self, _: &[u8], _: &Grant) -> Step {
            Step::Done(Status::BadParameters)
        }

        fn payload(&mut self, _: &[u8], _: bool, _: &Grant) -> Step {
            Step::Done(Status::Ok)
        }
    }

    kernel_set! {
        enum Both {
            Head(Head),
            Sink(Sink),
        }
    }

    #[test]
    fn a_set_finds_the_kernel_by_its_opcode() {
        let grant = Grant::new(0x1000, 64).unwrap();
        let (mut head, step) = Both::start(Opcode(1), &[8], &grant).ok().unwrap();
        assert!(matches!(step, Step::Fetch(range) if range.length() == 8));
        assert_eq!(head.dma_done(&[0; 8], &grant), Step::Emit(Emission { offset: 0, length: 8, version: 0 }));
        assert_eq!(head.payload(&[], true, &grant), Step::Done(Status::BadParameters));
        let (mut sink, step) = Both::start(Opcode(2), &[], &grant).ok().unwrap();
        assert_eq!(step, Step::AwaitPayload);
        assert_eq!(sink.payload(b"all of it", true, &grant), Step::Done(Status::Ok));
        assert_eq!(Both::start(Opcode(3), &[], &grant).err(), Some(Status::NoKernel));
        assert_eq!([1, 2, 3].map(|n| Both::has(Opcode(n))), [true, true, false]);
        assert_eq!(Both::start(Opcode(1), &[65], &grant).err(), Some(Status::OutOfBounds));
    }
}
