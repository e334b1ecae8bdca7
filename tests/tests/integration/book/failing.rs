//! Snippets of the chapter about failure.

use crate::book::output;
use bareverbs::command::CommandError;
use bareverbs::{DeviceRef, QueuePair, WorkRequest};
use bareverbs_prm::time::Duration;
use bareverbs_tests::pair::{Pair, PairOptions};

// ANCHOR: diagnose
fn why_is_it_silent<D: DeviceRef>(queue_pair: &mut QueuePair<D>) -> Result<String, CommandError> {
    let diagnosis = queue_pair.diagnose()?;
    for suspect in diagnosis.suspects() {
        eprintln!("{suspect}");
    }
    Ok(diagnosis.to_string())
}
// ANCHOR_END: diagnose

#[test]
fn a_missing_receive_is_diagnosed() {
    let mut pair = Pair::new(&PairOptions::default());
    pair.a.queue_pair.post_send(&WorkRequest::send_inline(1, &[1; 8])).unwrap();
    let deadline = pair.world.now() + Duration::from_secs(1);
    pair.a.sends.wait_one(deadline).unwrap_err();
    output::is("diagnose", &why_is_it_silent(&mut pair.a.queue_pair).unwrap());
}
