//! How an invocation ended: one numbering for the wire, the kernels and the client.

use core::fmt;

macro_rules! statuses {
    ($($(#[$meta:meta])* $name:ident = $number:literal, $text:literal;)*) => {
        /// How an invocation ended.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Status {
            $($(#[$meta])* $name,)*
            /// A number this version does not know.
            Unknown(u8),
        }

        impl Status {
            /// Decodes the number on the wire.
            pub const fn from_number(number: u8) -> Self {
                match number { $($number => Self::$name,)* other => Self::Unknown(other) }
            }
            /// The number on the wire.
            pub const fn number(self) -> u8 {
                match self { $(Self::$name => $number,)* Self::Unknown(other) => other }
            }
            const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* Self::Unknown(_) => "unknown status" }
            }
        }

        #[cfg(test)]
        const NUMBERS: &[u8] = &[$($number),*];
    };
}

statuses! {
    /// The answer is complete.
    Ok = 0, "ok";
    /// The walk reached the end of the structure without finding the key.
    NotFound = 1, "not found";
    /// No kernel is deployed under this op-code.
    NoKernel = 2, "no kernel is deployed under this op-code";
    /// The kernel cannot decode the request or its parameters.
    BadParameters = 3, "request or parameters are malformed";
    /// A pointer or the region named in the request lies outside what this connection was granted.
    OutOfBounds = 4, "a pointer left the granted region";
    /// More elements were visited than the request allows.
    HopLimit = 5, "hop limit reached: raise it or look for an endless chain";
    /// More bytes would have been read than the request allows.
    ByteLimit = 6, "byte limit reached";
    /// The request was not finished in time.
    Deadline = 7, "deadline passed";
    /// The data did not become consistent within the retry budget.
    Inconsistent = 8, "data stayed inconsistent over all retries";
    /// Somebody else kept the place busy; trying again later is sensible.
    Busy = 9, "busy: try again later";
    /// The grant was withdrawn while the kernel ran.
    Revoked = 10, "the grant was revoked";
    /// The memory did not answer a DMA.
    DmaFault = 11, "a DMA faulted";
    /// The answer is larger than the space that the client offered; the reply states its size.
    Truncated = 12, "the answer is larger than the response slot";
    /// The request was handed to the host processor.
    Fallback = 13, "handed to the host processor";
    /// A deployed program left its memory, or returned an unknown verb.
    ProgramFault = 14, "the deployed program accessed memory outside its segments or returned something that is not a verb: run it with `bareverbs kernel run`";
    /// A deployed program used up its fuel for a step or an invocation.
    OutOfFuel = 15, "the deployed program ran out of fuel: look for a loop without end";
    /// The connection may not do this.
    NotAllowed = 16, "this connection may not deploy programs: the owner of the DPU allows it";
    /// The host took the memory back while it was being read, or was reset.
    TakenBack = 17, "the host no longer shares the memory: ask its owner to share it again";
    /// The server finishes what is running and begins nothing new.
    ShuttingDown = 18, "the server is being shut down: ask again when it is back";
    /// A write was requested where the connection may only read.
    ReadOnly = 19, "the grant is read-only: its owner can grant the right to write";
    /// The path to the memory cannot compare and swap.
    NoAtomics = 20, "this path to the memory has no compare-and-swap: DMA work requests lack it, a kernel in the NIC may use it";
    /// The client withdrew the request.
    Withdrawn = 21, "the client withdrew the request";
    /// The bytes belong to no open stream: it has ended, or never began.
    NoStream = 22, "no such stream is open: its call was answered, or the server has no streams";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(number) => write!(f, "unknown status {number}"),
            known => f.write_str(known.text()),
        }
    }
}

impl core::error::Error for Status {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_survives_the_way_there_and_back() {
        for number in 0..=u8::MAX {
            assert_eq!(Status::from_number(number).number(), number);
            let known = !matches!(Status::from_number(number), Status::Unknown(_));
            assert_eq!(known, NUMBERS.contains(&number));
        }
    }
}
