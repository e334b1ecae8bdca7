use super::*;
use proptest::prelude::*;

fn request<'a>(parameters: &'a [u8], payload: &'a [u8]) -> Request<'a> {
    Request {
        opcode: Opcode(0x1112_1314_1516_1718),
        request_id: 0x2122_2324_2526_2728,
        reply: ReplyTo {
            address: 0x3132_3334_3536_3738,
            rkey: 0x4142_4344,
            max_response: 0x51,
            slot: 0x6162,
        },
        deadline: Duration::from_micros(0x71),
        hop_limit: 0x8182,
        region: RegionHandle(0x9192_9394),
        parameters,
        payload,
    }
}

#[test]
fn a_message_has_its_fields_at_the_stated_places() {
    let mut buffer = [0xff; 80];
    let bytes = request(b"abc", b"de").encode_message(&mut buffer).expect("fits");
    let expected: [&[u8]; 10] = [
        &[0x62, 0x76, 2, 0, 0, 0, 0, 69],
        &[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18],
        &[0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28],
        &[0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38],
        &[0x41, 0x42, 0x43, 0x44, 0, 0, 0, 0x51],
        &[0, 0, 0, 0x71, 0x91, 0x92, 0x93, 0x94],
        &[0, 0, 0, 3, 0, 0, 0, 2],
        &[0x61, 0x62, 0x81, 0x82, 0, 0, 0, 0],
        b"abc",
        b"de",
    ];
    assert_eq!(bytes, expected.concat());
    assert_eq!(Request::parse_message(bytes), Ok(request(b"abc", b"de")));
}

#[test]
fn every_wrong_length_or_unknown_bit_is_refused_with_an_address() {
    let mut buffer = [0; 80];
    let good = request(b"abc", b"de").encode_message(&mut buffer).expect("fits").to_vec();
    for at in [3, 4, 7, 48, 51, 52, 55, 60, 61, 62, 63] {
        let mut bad = good.clone();
        bad[at] ^= 0x82;
        assert!(matches!(Request::parse_message(&bad), Err(Malformed::Answerable { .. })), "byte {at}");
    }
    assert!(matches!(Request::parse_message(&good[..68]), Err(Malformed::Answerable { .. })));
    assert_eq!(Request::parse_message(&good[..63]), Err(Malformed::Unanswerable));
    for at in [0, 1, 2] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(Request::parse_message(&bad), Err(Malformed::Unanswerable), "byte {at}");
    }
}

#[test]
fn a_strom_block_has_its_fields_at_the_stated_places() {
    let mut buffer = [0; 64];
    let wanted = request(b"key", b"");
    let bytes = wanted.encode_strom(&mut buffer).expect("fits");
    assert_eq!(bytes.len(), STROM_HEADER_SIZE + 3);
    assert_eq!(bytes[..8], 0x3132_3334_3536_3738_u64.to_be_bytes(), "the target address comes first");
    assert_eq!(Request::parse_strom(wanted.opcode, 0x9192_9394, bytes), Ok(wanted));
    assert_eq!(Request::parse_strom(wanted.opcode, 0, &bytes[..31]), Err(Malformed::Unanswerable));
    assert_eq!(request(b"", b"x").encode_strom(&mut [0; 64]), None);
}

#[test]
fn the_response_ends_where_the_trailer_begins() {
    let reply = ReplyTo { address: 0x1000, rkey: 0, max_response: 13, slot: 0 };
    assert_eq!(reply.size(), 48);
    assert_eq!(reply.write_address(0), Some(0x1010));
    assert_eq!(reply.write_address(13), Some(0x1003));
    assert_eq!(reply.write_address(14), None);
    assert_eq!(ReplyTo { address: u64::MAX - 40, ..reply }.write_address(0), None);
}

#[test]
fn deadlines_round_up_and_saturate() {
    assert_eq!(micros(Duration::ZERO), 0);
    assert_eq!(micros(Duration::from_nanos(1)), 1);
    assert_eq!(micros(Duration::from_secs(100_000)), u32::MAX);
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_parsed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..160)) {
        let _ = Request::parse_message(&bytes);
        let _ = Request::parse_strom(Opcode(0), 0, &bytes);
    }

    #[test]
    fn trailers_and_immediates_survive(status: u8, a: u16, b: u32, c: u64, d: u64, credits: u8) {
        let status = Status::from_number(status);
        let trailer = Trailer { status, hops: a, length: b, retries: a, credits: a, server_nanos: b, version: c, request_id: d };
        let bytes = trailer.encode();
        prop_assert_eq!(&bytes[24..], &d.to_be_bytes()[..], "the request id is the last word");
        prop_assert_eq!(Trailer::parse(&bytes), Some(trailer));
        let immediate = Immediate { slot: a, status, credits };
        prop_assert_eq!(Immediate::decode(immediate.encode()), immediate);
    }
}
