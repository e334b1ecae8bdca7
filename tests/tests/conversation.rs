//! The first words that two drivers exchange: one of each operation, bytes compared.

use bareverbs::work_completion::WorkCompletionOpcode;
use bareverbs::work_request::{ReceiveRequest, WorkRequest};
use bareverbs_tests::pair::{Pair, PairOptions};

#[test]
fn a_send_fills_a_receive() {
    let mut pair = Pair::new(&PairOptions::default());
    let slice = pair.b.memory.slice(4096, 100).unwrap();
    pair.b.queue_pair.post_receive(ReceiveRequest::new(7, &[slice])).unwrap();
    pair.a.memory.copy_in(0, b"first light").unwrap();
    let data = [pair.a.memory.slice(0, 11).unwrap()];
    pair.a.queue_pair.post_send(&WorkRequest::send(1, &data).immediate(0xfeed)).unwrap();

    let received = pair.received();
    assert!(received.is_success(), "{}", received.status);
    assert_eq!((received.wr_id, received.byte_count, received.immediate), (7, 11, Some(0xfeed)));
    assert_eq!(received.opcode, WorkCompletionOpcode::Receive);
    let sent = pair.sent();
    assert!(sent.is_success() && sent.wr_id == 1, "{sent:?}");
    let mut bytes = [0; 12];
    pair.b.memory.copy_out(4096, &mut bytes).unwrap();
    assert_eq!(&bytes, b"first light\0");
}
