//! Examples of the facade that need only the simulator must print what they promise.

#[path = "../../../bareverbs/examples/datagrams.rs"]
mod datagrams;
#[path = "../../../bareverbs/examples/own_kernel.rs"]
mod own_kernel;
#[path = "../../../bareverbs/examples/shared_receives.rs"]
mod shared_receives;
#[path = "../../../bareverbs/examples/threads.rs"]
mod threads;

#[test]
fn one_queue_pair_answers_two_clients() {
    let heard = datagrams::conversation().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(heard, ["doorbell has 8 letters", "completion has 10 letters"]);
}

#[test]
fn connections_share_receives_and_an_event_reports_the_last_few() {
    let (messages, refills) = shared_receives::serve().unwrap_or_else(|error| panic!("{error}"));
    let mut expected: Vec<String> = (0..10)
        .flat_map(|number| (0..3).map(move |index| format!("message {number} of connection {index}")))
        .collect();
    let mut found = messages;
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    assert!((4..=10).contains(&refills), "30 messages into 7 receives: {refills} refills");
}

#[test]
fn the_example_kernel_sums_a_list_and_stops_at_a_wild_pointer() {
    let said = own_kernel::sums().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        said,
        [
            "210000001470 is the sum of 20 elements, 20 reads, 1 round trip",
            "a pointer to nowhere: a pointer left the granted region, after 1 read"
        ]
    );
}

#[test]
fn threads_with_cards_of_their_own_count_together() {
    assert_eq!(threads::run(3), Ok(300));
}
