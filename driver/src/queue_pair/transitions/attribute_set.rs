//! Sets of attributes of a queue pair.

use core::fmt;
use core::ops::BitOr;

/// A set of attributes of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
#[doc(alias = "ibv_qp_attr_mask")]
pub struct Attributes(u32);

macro_rules! attributes {
    ($($bit:literal $name:ident $label:literal;)*) => {
        impl Attributes {
            $(
                #[doc = concat!("The ", $label, ".")]
                pub const $name: Self = Self(1 << $bit);
            )*
            const NAMES: &'static [(Self, &'static str)] = &[$((Self::$name, $label)),*];
        }
    };
}

attributes! {
    0 PKEY_INDEX "P_Key index";
    1 PORT "port number";
    2 ACCESS "remote access rights";
    3 PATH "path to the peer";
    4 PATH_MTU "path MTU";
    5 REMOTE_QPN "number of the peer's queue pair";
    6 RECEIVE_PSN "first PSN to receive";
    7 MAX_RESPONDER_READS "RDMA READs served at a time";
    8 MIN_RNR_TIMER "RNR timer";
    9 SEND_PSN "first PSN to send";
    10 ACK_TIMEOUT "ACK timeout";
    11 RETRY_COUNT "retry count";
    12 RNR_RETRY "RNR retry count";
    13 MAX_REQUESTER_READS "RDMA READs under way at a time";
    14 ALTERNATE_PATH "alternate path";
    15 PATH_MIGRATION "path migration state";
    16 DRAINED_EVENT "event when drained";
    17 Q_KEY "Q_Key";
}

impl Attributes {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    /// Those that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
    /// Whether all of `other` are in it.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
    /// Whether it has none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Attributes {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl fmt::Display for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for (_, label) in Self::NAMES.iter().filter(|(bit, _)| self.contains(*bit)) {
            write!(f, "{comma}{label}")?;
            comma = ", ";
        }
        Ok(())
    }
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}
