//! Access to the server's own memory, for a service whose processor reads the table in place, without a card or another
//! host.
//!
//! No device is involved. [`HostDma::read_at_once`] copies what it reads; a request that is submitted is carried out by a
//! copy when its completion is polled. A compare-and-swap is atomic among the users of this value, which must be the
//! memory's only writer.

use crate::endpoint::{Endpoint, Part, PostError};
use crate::grant::HostRegion;
use crate::host_dma::{DmaEnd, DmaFault, HostDma, HostDmaDone, HostRead};
use crate::table::TableMemory;
use heapless::Deque;

/// Bytes that are copied at a time.
const PIECE: usize = 512;

#[derive(Debug, Clone, Copy)]
struct Copying {
    tag: u64,
    address: u64,
    part: Part,
    act: CopyAct,
}

#[derive(Debug, Clone, Copy)]
enum CopyAct {
    Read,
    Write,
    CompareAndSwap { expected: u64, desired: u64 },
}

/// The server's own memory as region zero; addresses count from its start. At most `DEPTH` requests are outstanding.
///
/// ```
/// use bareverbs_offload::grant::HostRegion;
/// use bareverbs_offload::endpoint::Part;
/// use bareverbs_offload::host_dma::HostDma;
/// use bareverbs_offload::own_memory::OwnMemory;
///
/// let mut bytes = [0; 256];
/// let mut dma = OwnMemory::<_, 4>::new(&mut bytes[..]);
/// let into = Part { offset: 0, length: 64 };
/// assert!(dma.submit_read(7, HostRegion(0), 192, into).is_ok());
/// assert!(dma.submit_read(8, HostRegion(0), 193, into).is_err(), "a byte too far");
/// ```
#[derive(Debug)]
pub struct OwnMemory<M, const DEPTH: usize> {
    memory: M,
    asked: Deque<Copying, DEPTH>,
}

impl<M: TableMemory, const DEPTH: usize> OwnMemory<M, DEPTH> {
    /// Access to `memory`.
    pub const fn new(memory: M) -> Self {
        Self { memory, asked: Deque::new() }
    }

    /// Whether these bytes are in the memory.
    fn has(&self, region: HostRegion, address: u64, length: u32) -> bool {
        let end = address.checked_add(length.into());
        region == HostRegion(0) && end.is_some_and(|end| end <= self.memory.length())
    }

    fn submit(&mut self, region: HostRegion, request: Copying) -> Result<(), PostError> {
        if !self.has(region, request.address, request.part.length) {
            return Err(PostError::BadRequest);
        }
        self.asked.push_back(request).map_err(|_| PostError::Full)
    }

    /// Carries a request out: in one piece if the memory lends its bytes.
    fn carry_out(&mut self, request: &Copying, endpoint: &mut impl Endpoint) -> Result<(), DmaFault> {
        let Copying { address, part, act, .. } = *request;
        if let CopyAct::CompareAndSwap { expected, desired } = act {
            return self.compare_and_swap(address, [expected, desired], part, endpoint);
        }
        let lent = self.memory.lend(address, part.length as usize).filter(|_| matches!(act, CopyAct::Read));
        if let Some(bytes) = lent {
            return endpoint.copy_in(part.offset, bytes).map_err(|_| DmaFault::Memory);
        }
        self.copy_pieces(request, endpoint)
    }

    fn copy_pieces(&mut self, request: &Copying, endpoint: &mut impl Endpoint) -> Result<(), DmaFault> {
        let Copying { address, part, act, .. } = *request;
        let mut buffer = [0; PIECE];
        let mut done = 0;
        while done < part.length as usize {
            let length = (part.length as usize - done).min(PIECE);
            let piece = buffer.get_mut(..length).ok_or(DmaFault::Memory)?;
            let (there, here) = (address + done as u64, part.offset + done);
            let copied = match act {
                CopyAct::Write => {
                    endpoint.copy_out(here, piece).is_ok() && self.memory.write(there, piece).is_ok()
                }
                _ => self.memory.read(there, piece).is_ok() && endpoint.copy_in(here, piece).is_ok(),
            };
            if !copied {
                return Err(DmaFault::Memory);
            }
            done += length;
        }
        Ok(())
    }

    fn compare_and_swap(
        &mut self,
        address: u64,
        [expected, desired]: [u64; 2],
        into: Part,
        endpoint: &mut impl Endpoint,
    ) -> Result<(), DmaFault> {
        let mut word = [0; 8];
        let memory = |_| DmaFault::Memory;
        self.memory.read(address, &mut word).map_err(memory)?;
        endpoint.copy_in(into.offset, &word).map_err(|_| DmaFault::Memory)?;
        if word == expected.to_be_bytes() {
            self.memory.write(address, &desired.to_be_bytes()).map_err(memory)?;
        }
        Ok(())
    }
}

impl<M: TableMemory, const DEPTH: usize> HostDma for OwnMemory<M, DEPTH> {
    fn has_room(&self) -> bool {
        !self.asked.is_full()
    }

    fn submit_read(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        into: Part,
    ) -> Result<(), PostError> {
        self.submit(region, Copying { tag, address, part: into, act: CopyAct::Read })
    }

    fn submit_write(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        from: Part,
    ) -> Result<(), PostError> {
        self.submit(region, Copying { tag, address, part: from, act: CopyAct::Write })
    }

    fn compares_and_swaps(&self) -> bool {
        true
    }

    fn submit_compare_and_swap(
        &mut self,
        tag: u64,
        region: HostRegion,
        address: u64,
        [expected, desired]: [u64; 2],
        into: Part,
    ) -> Result<(), PostError> {
        if into.length != 8 {
            return Err(PostError::BadRequest);
        }
        self.submit(
            region,
            Copying { tag, address, part: into, act: CopyAct::CompareAndSwap { expected, desired } },
        )
    }

    fn reads_at_once(&self) -> bool {
        true
    }

    /// Does not overtake what was submitted before.
    #[inline]
    fn read_at_once<'b>(
        &'b mut self,
        read: &HostRead,
        memory: &mut impl Endpoint,
        scratch: &'b mut [u8],
    ) -> Option<Result<&'b [u8], DmaFault>> {
        let HostRead { region, address, into } = *read;
        if region != HostRegion(0) || !self.asked.is_empty() {
            return None;
        }
        let length = into.length as usize;
        let bytes = match self.memory.lend(address, length) {
            Some(bytes) => bytes,
            None if !self.has(region, address, into.length) => return None,
            None => {
                let place = scratch.get_mut(..length)?;
                if self.memory.read(address, place).is_err() {
                    return Some(Err(DmaFault::Memory));
                }
                place
            }
        };
        Some(memory.copy_in(into.offset, bytes).map(|()| bytes).map_err(|_| DmaFault::Memory))
    }

    fn poll(&mut self, memory: &mut impl Endpoint) -> Option<HostDmaDone> {
        let request = self.asked.pop_front()?;
        let end = self.carry_out(&request, memory).map_or_else(DmaEnd::Fault, |()| DmaEnd::Done);
        Some(HostDmaDone { tag: request.tag, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback_tests::fabric;
    use crate::table::MemoryFault;
    use std::cell::RefCell;
    use std::rc::Rc;

    const REGION: HostRegion = HostRegion(0);

    /// Memory that lends no bytes, as that of a device.
    struct Kept<'a>(&'a mut [u8]);

    impl TableMemory for Kept<'_> {
        fn length(&self) -> u64 {
            self.0.length()
        }
        fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), MemoryFault> {
            self.0.read(offset, buffer)
        }
        fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
            self.0.write(offset, bytes)
        }
    }

    #[test]
    fn reads_and_writes_of_any_length_arrive_whole_and_in_order() {
        let memory: Vec<u8> = (0..5000_u32).map(|n| (n % 251) as u8).collect();
        let (mut lent, mut kept) = (memory.clone(), memory.clone());
        read_and_write(lent.as_mut_slice(), &memory);
        read_and_write(Kept(&mut kept), &memory);
        assert_eq!(lent, kept);
    }

    fn read_and_write(memory: impl TableMemory, expected: &[u8]) {
        let (mut endpoint, _) = fabric(&Rc::new(RefCell::new(vec![])));
        let mut dma = OwnMemory::<_, 4>::new(memory);
        for (tag, length) in [1, 511, 512, 513, 1500].into_iter().enumerate() {
            let (tag, part) = (tag as u64, Part { offset: 64, length });
            dma.submit_read(tag, REGION, 3000, part).expect("room");
            assert_eq!(dma.poll(&mut endpoint), Some(HostDmaDone { tag, end: DmaEnd::Done }));
            let mut found = vec![0; length as usize];
            endpoint.copy_out(64, &mut found).expect("inside");
            assert_eq!(found, expected[3000..][..length as usize]);
        }
        dma.submit_write(9, REGION, 0, Part { offset: 64, length: 1500 }).expect("room");
        dma.submit_read(10, REGION, 100, Part { offset: 0, length: 10 }).expect("room");
        let tags = [(); 2].map(|()| dma.poll(&mut endpoint).expect("an end").tag);
        assert_eq!((tags, dma.poll(&mut endpoint)), ([9, 10], None));
        let mut found = [0; 10];
        endpoint.copy_out(0, &mut found).expect("inside");
        assert_eq!(found, expected[3100..3110]);
    }

    #[test]
    fn a_read_at_once_gives_what_a_submitted_one_would() {
        let memory: Vec<u8> = (0..5000_u32).map(|n| (n % 251) as u8).collect();
        let (mut lent, mut kept) = (memory.clone(), memory.clone());
        read_at_once(lent.as_mut_slice(), &memory);
        read_at_once(Kept(&mut kept), &memory);
    }

    fn read_at_once(memory: impl TableMemory, expected: &[u8]) {
        let (mut endpoint, _) = fabric(&Rc::new(RefCell::new(vec![])));
        let mut dma = OwnMemory::<_, 4>::new(memory);
        let mut scratch = [0; 1500];
        let read = |address, length| HostRead { region: REGION, address, into: Part { offset: 64, length } };
        for length in [1, 511, 512, 513, 1500] {
            let bytes = dma.read_at_once(&read(3000, length), &mut endpoint, &mut scratch);
            assert_eq!(bytes, Some(Ok(&expected[3000..][..length as usize])));
            let mut staged = vec![0; length as usize];
            endpoint.copy_out(64, &mut staged).expect("inside");
            assert_eq!(staged, expected[3000..][..length as usize]);
        }
        // Whatever cannot be read is submitted, and refused there.
        let other = HostRead { region: HostRegion(1), ..read(0, 1) };
        for wrong in [read(4999, 2), read(u64::MAX, 1), other] {
            assert_eq!(dma.read_at_once(&wrong, &mut endpoint, &mut scratch), None, "{wrong:?}");
            let HostRead { region, address, into } = wrong;
            assert_eq!(dma.submit_read(1, region, address, into), Err(PostError::BadRequest));
        }
        let beyond = HostRead { into: Part { offset: usize::MAX / 2, length: 1 }, ..read(0, 1) };
        let fault = Some(Err(DmaFault::Memory));
        assert_eq!(dma.read_at_once(&beyond, &mut endpoint, &mut scratch), fault);
        // It does not overtake a write.
        dma.submit_write(9, REGION, 0, Part { offset: 64, length: 1500 }).expect("room");
        assert_eq!(dma.read_at_once(&read(0, 10), &mut endpoint, &mut scratch), None);
        assert_eq!(dma.poll(&mut endpoint), Some(HostDmaDone { tag: 9, end: DmaEnd::Done }));
        let written = dma.read_at_once(&read(0, 10), &mut endpoint, &mut scratch);
        assert_eq!(written, Some(Ok(&expected[3000..3010])));
    }

    #[test]
    fn a_word_is_swapped_if_it_is_the_expected_one() {
        let (mut endpoint, _) = fabric(&Rc::new(RefCell::new(vec![])));
        let mut memory = vec![0; 24];
        memory[15] = 7;
        let mut dma = OwnMemory::<_, 4>::new(memory.as_mut_slice());
        assert!(dma.compares_and_swaps());
        let into = Part { offset: 64, length: 8 };
        for (tag, expected, desired, found) in [(1, 6_u64, 9_u64, 7_u64), (2, 7, 8, 7), (3, 7, 9, 8)] {
            dma.submit_compare_and_swap(tag, REGION, 8, [expected, desired], into).expect("room");
            assert_eq!(dma.poll(&mut endpoint), Some(HostDmaDone { tag, end: DmaEnd::Done }));
            let mut word = [0; 8];
            endpoint.copy_out(64, &mut word).expect("inside");
            assert_eq!(u64::from_be_bytes(word), found, "request {tag}");
        }
        for (address, length) in [(17, 8), (8, 4)] {
            let refused = dma.submit_compare_and_swap(4, REGION, address, [0, 0], Part { offset: 0, length });
            assert_eq!(refused, Err(PostError::BadRequest), "{length} bytes at {address}");
        }
        assert_eq!(memory[8..16], 8_u64.to_be_bytes());
    }

    #[test]
    fn ranges_beyond_the_memory_are_refused() {
        let (mut endpoint, _) = fabric(&Rc::new(RefCell::new(vec![])));
        let mut memory = vec![0; 100];
        let mut dma = OwnMemory::<_, 2>::new(memory.as_mut_slice());
        let part = |length| Part { offset: 0, length };
        for (region, address, length) in [(0, 0, 101), (0, 100, 1), (0, u64::MAX, 1), (1, 0, 1)] {
            let refused = dma.submit_read(1, HostRegion(region), address, part(length));
            assert_eq!(refused, Err(PostError::BadRequest), "{region} {address} {length}");
        }
        // A part outside the endpoint is only noticed when it is copied.
        dma.submit_read(5, REGION, 0, Part { offset: usize::MAX / 2, length: 1 }).expect("room");
        let end = DmaEnd::Fault(DmaFault::Memory);
        assert_eq!(dma.poll(&mut endpoint), Some(HostDmaDone { tag: 5, end }));
        assert!(dma.has_room() && dma.submit_read(1, REGION, 0, part(1)).is_ok());
        assert!(dma.submit_write(2, REGION, 0, part(1)).is_ok() && !dma.has_room());
        assert_eq!(dma.submit_read(3, REGION, 0, part(1)), Err(PostError::Full));
    }
}
