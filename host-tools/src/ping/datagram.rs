//! The management datagrams of `ibping`: vendor class 0x32 of OpenFabrics, between the queue pairs 1 of two
//! ports, without a connection.
//!
//! Layout, big-endian (IBTA v1.4 §13.4.2 common header, §16.5.1 vendor classes with RMPP): 0 base version, 1
//! class, 2 class version, 3 method, 4 status, 8 transaction, 16 attribute, 20 modifier, 24 RMPP header
//! (unused: zero), 37 OUI, 40 data. The request has no data; the answer contains the name of its machine
//! there, as `host.domain` with a terminating zero.

use crate::general_services::DATAGRAM;

const BASE_VERSION: u8 = 1;
const PING_CLASS: u8 = 0x32;
const CLASS_VERSION: u8 = 1;
/// The OUI of OpenFabrics, which distinguishes the class from other vendors' 0x32.
const OPENFABRICS: [u8; 3] = [0x00, 0x14, 0x05];
const GET: u8 = 0x01;
const GET_RESPONSE: u8 = 0x81;
const STATUS_AT: usize = 4;
const TRANSACTION_AT: usize = 8;
const OUI_AT: usize = 37;
const DATA_AT: usize = 40;

/// A datagram of the class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PingDatagram {
    /// A request for an answer.
    Request { transaction: u64 },
    /// The answer to a request, from a machine with this name.
    Reply { transaction: u64, status: u16, name: String },
}

impl PingDatagram {
    pub(super) fn encode(&self) -> [u8; DATAGRAM] {
        let (method, status, transaction, name) = match self {
            Self::Request { transaction } => (GET, 0, *transaction, ""),
            Self::Reply { transaction, status, name } => (GET_RESPONSE, *status, *transaction, name.as_str()),
        };
        let mut bytes = [0; DATAGRAM];
        bytes[..4].copy_from_slice(&[BASE_VERSION, PING_CLASS, CLASS_VERSION, method]);
        bytes[STATUS_AT..STATUS_AT + 2].copy_from_slice(&status.to_be_bytes());
        bytes[TRANSACTION_AT..TRANSACTION_AT + 8].copy_from_slice(&transaction.to_be_bytes());
        bytes[OUI_AT..DATA_AT].copy_from_slice(&OPENFABRICS);
        // The last byte stays zero.
        for (to, from) in bytes[DATA_AT..DATAGRAM - 1].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        bytes
    }

    /// Parses a datagram; `None` if it is of another class, vendor or method.
    pub(super) fn parse(bytes: &[u8; DATAGRAM]) -> Option<Self> {
        let [BASE_VERSION, PING_CLASS, CLASS_VERSION, method, ..] = *bytes else { return None };
        if bytes[OUI_AT..DATA_AT] != OPENFABRICS {
            return None;
        }
        let transaction = u64::from_be_bytes(*bytes[TRANSACTION_AT..].first_chunk()?);
        match method {
            GET => Some(Self::Request { transaction }),
            GET_RESPONSE => {
                let status = u16::from_be_bytes(*bytes[STATUS_AT..].first_chunk()?);
                let name = bytes[DATA_AT..].split(|byte| *byte == 0).next().unwrap_or_default();
                // The peer's name will be printed on a terminal.
                let name =
                    String::from_utf8_lossy(name).chars().filter(|letter| !letter.is_control()).collect();
                Some(Self::Reply { transaction, status, name })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same bytes as those of libibmad in infiniband-diags, field by field.
    #[test]
    fn a_request_is_that_of_ibping() {
        let bytes = PingDatagram::Request { transaction: 0x0102_0304_0506_0708 }.encode();
        assert_eq!(bytes[..16], [1, 0x32, 1, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..37], [0; 21], "attribute and modifier 0, no RMPP");
        assert_eq!(bytes[37..40], [0x00, 0x14, 0x05]);
        assert_eq!(bytes[40..], [0; 216]);
    }

    #[test]
    fn a_reply_names_its_machine() {
        let reply = PingDatagram::Reply { transaction: 9, status: 0, name: "node7.example".into() };
        let bytes = reply.encode();
        assert_eq!((bytes[3], &bytes[40..54]), (0x81, &b"node7.example\0"[..]));
        assert_eq!(PingDatagram::parse(&bytes), Some(reply));
        let long = PingDatagram::Reply { transaction: 9, status: 0, name: "x".repeat(500) }.encode();
        assert_eq!((long[254], long[255]), (b'x', 0));
        let mut escape = bytes;
        escape[40] = 0x1b;
        let Some(PingDatagram::Reply { name, .. }) = PingDatagram::parse(&escape) else {
            panic!("an answer")
        };
        assert_eq!(name, "ode7.example");
    }

    #[test]
    fn other_classes_vendors_and_methods_are_left_alone() {
        let good = PingDatagram::Request { transaction: 1 }.encode();
        for (at, value) in [(0, 0), (1, 0x33), (2, 2), (3, 2), (3, 0x83), (37, 1), (39, 4)] {
            let mut other = good;
            other[at] = value;
            assert_eq!(PingDatagram::parse(&other), None, "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused_or_parsed(bytes in proptest::collection::vec(any::<u8>(), DATAGRAM)) {
            let mut bytes: [u8; DATAGRAM] = bytes.try_into().expect("the length");
            let _ = PingDatagram::parse(&bytes);
            bytes[..4].copy_from_slice(&[1, 0x32, 1, 0x81]);
            bytes[37..40].copy_from_slice(&[0x00, 0x14, 0x05]);
            prop_assert!(PingDatagram::parse(&bytes).is_some());
        }
    }
}
