//! Rings of frames.

use bareverbs_network::ring::{Consumer, Producer};
use std::io::ErrorKind;

/// A frame whose bytes identify it.
fn frame(number: usize) -> Vec<u8> {
    (0..(number * 37) % 4200).map(|at| (at + number) as u8).collect()
}

#[test]
fn frames_leave_a_ring_as_they_came_however_often_it_begins_again() {
    let (mut producer, file) = Producer::create().unwrap();
    let mut consumer = Consumer::open(&file).unwrap();
    let (mut sent, mut received, mut got) = (0, 0, Vec::new());
    while received < 5000 {
        while sent < received + 700 && producer.push(&frame(sent)).unwrap() {
            sent += 1;
        }
        assert!(!consumer.is_empty());
        for _ in 0..=(sent - received) / 2 {
            if consumer.pop(&mut got).unwrap() {
                assert_eq!(got, frame(received));
                received += 1;
            }
        }
    }
}

#[test]
fn a_full_ring_takes_no_more_and_loses_nothing() {
    let (mut producer, file) = Producer::create().unwrap();
    let mut consumer = Consumer::open(&file).unwrap();
    let mut sent = 0;
    while producer.push(&frame(sent)).unwrap() {
        sent += 1;
    }
    assert!(!producer.push(&frame(sent)).unwrap());
    let mut got = Vec::new();
    for number in 0..sent {
        assert!(consumer.pop(&mut got).unwrap());
        assert_eq!(got, frame(number));
    }
    assert!(!consumer.pop(&mut got).unwrap() && consumer.is_empty());
}

#[test]
fn two_threads_pass_frames() {
    let (mut producer, file) = Producer::create().unwrap();
    let mut consumer = Consumer::open(&file).unwrap();
    const FRAMES: usize = 20_000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..FRAMES {
                while !producer.push(&frame(number)).unwrap() {
                    std::thread::yield_now();
                }
            }
        });
        let mut got = Vec::new();
        for number in 0..FRAMES {
            while !consumer.pop(&mut got).unwrap() {
                std::thread::yield_now();
            }
            assert_eq!(got, frame(number));
        }
    });
}

#[test]
fn a_ring_that_the_other_process_spoils_is_an_error() {
    for (offset, value) in [(0, u64::MAX), (0, 3 << 20), (4096, u64::MAX), (4096, 1 << 16)] {
        let (mut producer, file) = Producer::create().unwrap();
        let mut consumer = Consumer::open(&file).unwrap();
        producer.push(&frame(3)).unwrap();
        rustix::io::pwrite(&file, &value.to_ne_bytes(), offset).unwrap();
        assert_eq!(consumer.pop(&mut Vec::new()).unwrap_err().kind(), ErrorKind::InvalidData, "{offset}");
    }
    let (mut producer, file) = Producer::create().unwrap();
    rustix::io::pwrite(&file, &5_u64.to_ne_bytes(), 64).unwrap();
    assert_eq!(
        producer.push(&frame(3)).unwrap_err().kind(),
        ErrorKind::InvalidData,
        "more read than written"
    );
}

#[test]
fn memory_that_could_shrink_is_no_ring() {
    let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, (1 << 20) + 4096).unwrap();
    assert_eq!(Consumer::open(&file).unwrap_err().kind(), ErrorKind::InvalidData);
}
