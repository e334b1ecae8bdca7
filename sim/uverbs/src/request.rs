//! A request of `RDMA_VERBS_IOCTL`. Its bytes are untrusted until [`Request::parse`] has checked them against the
//! schema of the method.

use crate::Errno;
use crate::schema::{AttributeRule, Carries, Method, Operation};
use crate::uapi::{
    IoctlAttribute, IoctlHeader, RDMA_DRIVER_MLX5, UVERBS_ATTR_F_MANDATORY, UVERBS_ATTR_F_VALID_OUTPUT,
    read_extended,
};
use alloc::vec;
use alloc::vec::Vec;
use bareverbs_sim::nic::HostMemory;
use zerocopy::{FromBytes, IntoBytes};

const HEADER: usize = size_of::<IoctlHeader>();
const ATTRIBUTE: usize = size_of::<IoctlAttribute>();
/// Longest request.
const LONGEST: usize = 4096;
/// Values up to this length are in the attribute itself.
const INLINE: usize = 8;
/// Longest value of an attribute that is accepted from a program: far more than any structure has.
const LONGEST_INPUT: usize = 1 << 16;

/// A request whose attributes match its method.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    method: &'static Method,
    attributes: &'a mut [IoctlAttribute],
}

impl<'a> Request<'a> {
    /// Parses a request and checks it against the schema.
    pub(crate) fn parse(bytes: &'a mut [u8]) -> Result<Self, Errno> {
        let (header, _) = IoctlHeader::read_from_prefix(bytes).map_err(|_| Errno::Invalid)?;
        check_header(&header, bytes.len())?;
        let method = Method::find(header.object_id, header.method_id).ok_or(Errno::ProtocolNotSupported)?;
        let attributes = <[IoctlAttribute]>::mut_from_bytes(&mut bytes[HEADER..]);
        let request = Self { method, attributes: attributes.map_err(|_| Errno::Invalid)? };
        request.check_attributes()?;
        Ok(request)
    }

    fn check_attributes(&self) -> Result<(), Errno> {
        for (place, attribute) in self.attributes.iter().enumerate() {
            match self.method.attribute(attribute.attr_id) {
                Some(rule) => check_attribute(attribute, rule)?,
                None if attribute.flags & UVERBS_ATTR_F_MANDATORY != 0 => {
                    return Err(Errno::ProtocolNotSupported);
                }
                None => {}
            }
            if self.attributes[..place].iter().any(|earlier| earlier.attr_id == attribute.attr_id) {
                return Err(Errno::Invalid);
            }
        }
        let complete = self.method.required().all(|id| self.find(id).is_some());
        if complete { Ok(()) } else { Err(Errno::Invalid) }
    }

    /// What the method does.
    pub(crate) const fn operation(&self) -> Operation {
        self.method.operation
    }

    fn find(&self, id: u16) -> Option<&IoctlAttribute> {
        self.attributes.iter().find(|attribute| attribute.attr_id == id)
    }

    fn find_mut(&mut self, id: u16) -> Option<&mut IoctlAttribute> {
        self.attributes.iter_mut().find(|attribute| attribute.attr_id == id)
    }

    /// Bytes that the caller passed or has room for; `None` if it omitted the attribute.
    pub(crate) fn length(&self, id: u16) -> Option<usize> {
        self.find(id).map(|attribute| attribute.len.into())
    }

    /// A number in the attribute; zero if it was omitted.
    pub(crate) fn constant(&self, id: u16) -> u64 {
        self.find(id).map_or(0, |attribute| match attribute.len {
            0..=4 => attribute.data & u64::from(u32::MAX),
            _ => attribute.data,
        })
    }

    /// The handle in the attribute.
    pub(crate) fn handle(&self, id: u16) -> Result<u32, Errno> {
        let attribute = self.find(id).ok_or(Errno::Invalid)?;
        u32::try_from(attribute.data).map_err(|_| Errno::Invalid)
    }

    /// The handle in an optional attribute.
    pub(crate) fn optional_handle(&self, id: u16) -> Result<Option<u32>, Errno> {
        self.find(id).map(|_| self.handle(id)).transpose()
    }

    /// The descriptor in an attribute, as a sign-extended number.
    pub(crate) fn descriptor(&self, id: u16) -> Option<u64> {
        self.find(id).map(|attribute| attribute.data)
    }

    /// The bytes of an input; none if it was omitted.
    pub(crate) fn input<M: HostMemory>(&self, memory: &mut M, id: u16) -> Result<Vec<u8>, Errno> {
        let Some(attribute) = self.find(id) else { return Ok(Vec::new()) };
        let length = usize::from(attribute.len);
        if length <= INLINE {
            return Ok(attribute.data.as_bytes()[..length].to_vec());
        }
        let mut bytes = vec![0; length];
        memory.read(attribute.data, &mut bytes)?;
        Ok(bytes)
    }

    /// A structure that may be shorter or longer in the caller's version. Excess bytes must be zero.
    pub(crate) fn structure<T: FromBytes + IntoBytes, M: HostMemory>(
        &self,
        memory: &mut M,
        id: u16,
    ) -> Result<T, Errno> {
        let bytes = self.input(memory, id)?;
        let beyond = bytes.get(size_of::<T>()..).unwrap_or(&[]);
        if beyond.iter().any(|&byte| byte != 0) {
            return Err(Errno::NotSupported);
        }
        Ok(read_extended(&bytes))
    }

    /// Writes as many of `bytes` as the caller has room for, and zeros to the rest of its room. Does nothing
    /// if the caller omitted the attribute.
    pub(crate) fn output<M: HostMemory>(
        &mut self,
        memory: &mut M,
        id: u16,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let Some(attribute) = self.find_mut(id) else { return Ok(()) };
        let mut room = vec![0; attribute.len.into()];
        let length = room.len().min(bytes.len());
        room[..length].copy_from_slice(&bytes[..length]);
        if !room.is_empty() {
            memory.write(attribute.data, &room)?;
        }
        attribute.flags |= UVERBS_ATTR_F_VALID_OUTPUT;
        Ok(())
    }

    /// Returns the number of a new object or descriptor to the caller.
    pub(crate) fn put_new(&mut self, id: u16, number: u64) {
        if let Some(attribute) = self.find_mut(id) {
            attribute.data = number;
            attribute.flags |= UVERBS_ATTR_F_VALID_OUTPUT;
        }
    }
}

fn check_header(header: &IoctlHeader, length: usize) -> Result<(), Errno> {
    if header.reserved1 != 0 || header.reserved2 != 0 {
        return Err(Errno::ProtocolNotSupported);
    }
    let announced = HEADER + usize::from(header.num_attrs) * ATTRIBUTE;
    let fits = length == announced && usize::from(header.length) == announced && announced <= LONGEST;
    if fits && header.driver_id == RDMA_DRIVER_MLX5 { Ok(()) } else { Err(Errno::Invalid) }
}

fn check_attribute(attribute: &IoctlAttribute, rule: &AttributeRule) -> Result<(), Errno> {
    let length = usize::from(attribute.len);
    let fits = match rule.carries {
        Carries::Input(least) => (least..=LONGEST_INPUT).contains(&length),
        Carries::Output(least) => length >= least,
        Carries::Constant => (1..=INLINE).contains(&length),
        Carries::Handle | Carries::New => length == 0,
    };
    if fits && attribute.attr_data == [0; 2] { Ok(()) } else { Err(Errno::Invalid) }
}
