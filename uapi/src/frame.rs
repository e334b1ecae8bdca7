//! `rdma_user_ioctl_cmds.h`: the frame of `RDMA_VERBS_IOCTL`.

structures! {
    /// The header of every request; `num_attrs` attributes follow.
    pub struct IoctlHeader = "ib_uverbs_ioctl_hdr" {
        length: u16,
        object_id: u16,
        method_id: u16,
        num_attrs: u16,
        reserved1: u64,
        driver_id: u32,
        reserved2: u32,
    }

    /// One attribute of a request.
    pub struct IoctlAttribute = "ib_uverbs_attr" {
        attr_id: u16,
        len: u16,
        flags: u16,
        attr_data: [u8; 2],
        data: u64,
    }
}
