//! Requests of `RDMA_VERBS_IOCTL` as safe values: a request borrows the buffers that it names until the kernel has answered.

use bareverbs_uapi::{IoctlAttribute, IoctlHeader, RDMA_DRIVER_MLX5, UVERBS_ATTR_F_MANDATORY};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsRawFd;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`.
const RDMA_VERBS_IOCTL: u64 = 0xc018_1b01;
/// Inputs of at most this many bytes are in the attribute itself.
const INLINE: usize = 8;
const HEADER: usize = size_of::<IoctlHeader>();

/// A method of an object, and its attributes.
#[derive(Debug)]
pub(super) struct Request<'a> {
    object: u16,
    method: u16,
    attributes: Vec<IoctlAttribute>,
    /// Whether a buffer is longer than an attribute can say.
    too_long: bool,
    buffers: PhantomData<&'a mut [u8]>,
}

/// The attributes after the kernel has answered.
#[derive(Debug)]
pub(super) struct Answer(Vec<IoctlAttribute>);

impl Answer {
    /// The handle of the object that the method created.
    pub(super) fn handle(&self, id: u16) -> u32 {
        self.0.iter().find(|attribute| attribute.attr_id == id).map_or(0, |attribute| attribute.data as u32)
    }
}

impl<'a> Request<'a> {
    pub(super) const fn new(object: u16, method: u16) -> Self {
        Self { object, method, attributes: Vec::new(), too_long: false, buffers: PhantomData }
    }

    fn with(mut self, id: u16, length: usize, data: u64) -> Self {
        self.too_long |= length > usize::from(u16::MAX);
        self.attributes.push(IoctlAttribute {
            attr_id: id,
            len: length as u16,
            flags: UVERBS_ATTR_F_MANDATORY,
            data,
            ..IoctlAttribute::new_zeroed()
        });
        self
    }

    /// Bytes for the kernel.
    pub(super) fn input(self, id: u16, bytes: &'a [u8]) -> Self {
        if bytes.len() > INLINE {
            return self.with(id, bytes.len(), bytes.as_ptr().expose_provenance() as u64);
        }
        let mut data = [0; INLINE];
        data[..bytes.len()].copy_from_slice(bytes);
        self.with(id, bytes.len(), u64::from_ne_bytes(data))
    }

    /// A number of 32 bits.
    pub(super) fn word(self, id: u16, value: u32) -> Self {
        self.with(id, 4, value.into())
    }

    /// A number of 64 bits.
    pub(super) fn number(self, id: u16, value: u64) -> Self {
        self.with(id, 8, value)
    }

    /// A number of 64 bits that an older kernel may not know.
    pub(super) fn optional_number(self, id: u16, value: u64) -> Self {
        let mut request = self.with(id, 8, value);
        if let Some(attribute) = request.attributes.last_mut() {
            attribute.flags = 0;
        }
        request
    }

    /// Room for bytes from the kernel.
    pub(super) fn output(self, id: u16, buffer: &'a mut [u8]) -> Self {
        let (address, length) = (buffer.as_mut_ptr().expose_provenance() as u64, buffer.len());
        self.with(id, length, address)
    }

    /// The handle of an object.
    pub(super) fn handle(self, id: u16, handle: u32) -> Self {
        self.with(id, 0, handle.into())
    }

    /// Room for the handle of a new object.
    pub(super) fn new_handle(self, id: u16) -> Self {
        self.with(id, 0, 0)
    }

    /// Asks the kernel. The error is an errno.
    pub(super) fn run(self, file: &File) -> Result<Answer, i32> {
        if self.too_long {
            return Err(libc::E2BIG);
        }
        let mut bytes = self.bytes();
        // SAFETY: `bytes` is a header with as many attributes as it says. Each address in them is that of a buffer of at least the stated
        // length, borrowed by this value until the call has returned: shared if the kernel only reads it, exclusively if it writes. The
        // kernel writes nothing else but these attributes. Handles and numbers are no addresses. What the *method* has the device do to
        // memory is for the callers to answer, which register memory in `memory` alone.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), RDMA_VERBS_IOCTL as _, bytes.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
        }
        let attributes = <[IoctlAttribute]>::ref_from_bytes(&bytes.as_bytes()[HEADER..]);
        Ok(Answer(attributes.map_or(Vec::new(), <[_]>::to_vec)))
    }

    /// The request as the kernel reads it, in words so that it is aligned.
    fn bytes(&self) -> Vec<u64> {
        let length = HEADER + size_of_val(&self.attributes[..]);
        let header = IoctlHeader {
            length: length as u16,
            object_id: self.object,
            method_id: self.method,
            num_attrs: self.attributes.len() as u16,
            driver_id: RDMA_DRIVER_MLX5,
            ..IoctlHeader::new_zeroed()
        };
        let mut words = vec![0_u64; length.div_ceil(8)];
        let (head, tail) = words.as_mut_bytes().split_at_mut(HEADER);
        head.copy_from_slice(header.as_bytes());
        tail.copy_from_slice(self.attributes.as_bytes());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bareverbs_uapi::{MLX5_IB_METHOD_DEVX_OTHER, MLX5_IB_OBJECT_DEVX};

    #[test]
    fn a_request_is_a_header_and_attributes() {
        let (long, mut room) = ([7; 20], [0; 16]);
        let request = Request::new(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER)
            .input(1, &[1, 2])
            .input(2, &long)
            .output(3, &mut room)
            .handle(4, 9)
            .optional_number(5, 0x1000);
        let words = request.bytes();
        let bytes = words.as_bytes();
        let (header, rest) = IoctlHeader::read_from_prefix(bytes).unwrap();
        assert_eq!((usize::from(header.length), header.num_attrs, header.driver_id), (bytes.len(), 5, 1));
        let attributes = <[IoctlAttribute]>::ref_from_bytes(rest).unwrap();
        assert_eq!(
            (attributes[0].len, attributes[0].data),
            (2, u64::from_ne_bytes([1, 2, 0, 0, 0, 0, 0, 0]))
        );
        assert_eq!((attributes[1].len, attributes[1].data), (20, long.as_ptr().addr() as u64));
        assert_eq!((attributes[2].len, attributes[3].len, attributes[3].data), (16, 0, 9));
        assert_eq!(attributes.iter().map(|attribute| attribute.flags).collect::<Vec<_>>(), [1, 1, 1, 1, 0]);
    }

    #[test]
    fn a_file_of_another_kind_refuses_requests() {
        let file = tempfile::tempfile().unwrap();
        let request = Request::new(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER);
        assert_eq!(request.run(&file).unwrap_err(), libc::ENOTTY);
        let long = vec![0; 1 << 16];
        assert_eq!(Request::new(0, 0).input(0, &long).run(&file).unwrap_err(), libc::E2BIG);
    }
}
