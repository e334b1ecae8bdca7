//! The device and its open files.

use crate::attributes::DeviceAttributes;
use crate::call::Call;
use crate::commands::CommandFailure;
use crate::device::Device;
use crate::device_index::{DeviceIndex, FileNumbers};
use crate::files::{DeviceFile, FileId};
use crate::host::PortAddresses;
use crate::mapping::{self, MapTarget, Mapping};
use crate::netlink::ObjectCounts;
use crate::process::Process;
use crate::request::Request;
use crate::schema::Operation;
use crate::{
    Errno, address_methods, completion_methods, device_methods, devx, memory_methods, object_methods,
    queue_pair_methods, shared_receive_methods, write_commands,
};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bareverbs_prm::ids::Gid;
use bareverbs_sim::nic::{Nic, NicConfig};

/// The device behind `/dev/infiniband/uverbs0`, or behind another device file ([`Self::numbered`]).
#[derive(Debug)]
pub struct Uverbs {
    pub(crate) device: Device,
    files: BTreeMap<FileId, DeviceFile>,
    numbers: FileNumbers,
    /// IP addresses for connections, as GIDs.
    pub(crate) ip_addresses: Vec<Gid>,
}

impl Uverbs {
    /// Powers a device on and boots it with these addresses.
    pub fn boot<P: Process>(
        config: NicConfig,
        addresses: &PortAddresses,
        process: &mut P,
    ) -> Result<Self, CommandFailure> {
        let device = Device::boot(config, addresses, process)?;
        let (numbers, ip_addresses) = (FileNumbers::default(), addresses.ip.clone());
        Ok(Self { device, files: BTreeMap::new(), numbers, ip_addresses })
    }

    /// Makes this another device of its host: the numbers of its files differ from other devices' files.
    #[must_use]
    pub fn numbered(mut self, index: DeviceIndex) -> Self {
        self.numbers = FileNumbers::of(index);
        self.device.events.numbered(index);
        self
    }

    /// Attributes of the device.
    pub const fn attributes(&self) -> &DeviceAttributes {
        &self.device.attributes
    }

    /// The device itself, for inspection.
    pub const fn nic(&self) -> &Nic {
        &self.device.commands.nic
    }

    /// Index of the device within its host.
    pub const fn index(&self) -> DeviceIndex {
        self.numbers.device()
    }

    /// Number of live objects, given the number of connection identifiers
    /// ([`Connections::count`](crate::Connections::count)).
    pub fn objects(&self, connection_identifiers: u64) -> ObjectCounts {
        let mut counts = ObjectCounts { connection_identifiers, ..ObjectCounts::default() };
        for file in self.files.values() {
            counts.contexts += u64::from(file.has_context);
            file.objects().for_each(|object| counts.add(object));
        }
        counts
    }

    /// The device, and its files in order.
    pub(crate) const fn device_and_files(&mut self) -> (&mut Device, &BTreeMap<FileId, DeviceFile>) {
        (&mut self.device, &self.files)
    }

    /// Opens the device file.
    pub fn open(&mut self) -> FileId {
        let file = FileId(self.numbers.take());
        self.files.insert(file, DeviceFile::default());
        file
    }

    /// The last descriptor of a file was closed: destroys everything created through it.
    pub fn close<P: Process>(&mut self, process: &mut P, file: FileId) {
        let Some(mut objects) = self.files.remove(&file) else { return };
        // Users precede what they use, except for those that were later given another object. So retry what firmware
        // refuses as long as that makes progress. A failure cannot be reported to anyone any more.
        let mut left = objects.take_all();
        let mut before = usize::MAX;
        while left.len() < before {
            before = left.len();
            left.retain(|object| object_methods::destroy(&mut self.device, process, *object).is_err());
        }
        device_methods::destroy_user_context(&mut self.device, process, objects.uid);
        self.device.events.hang_up(process, file);
    }

    /// `RDMA_VERBS_IOCTL`. `request` is the header with its attributes; what the kernel writes back into them is
    /// written there.
    pub fn ioctl<P: Process>(
        &mut self,
        process: &mut P,
        file: FileId,
        request: &mut [u8],
    ) -> Result<(), Errno> {
        let mut request = Request::parse(request)?;
        let operation = request.operation();
        let file_id = file;
        let file = self.files.get_mut(&file_id).ok_or(Errno::Io)?;
        if !file.has_context && operation != Operation::GetContext {
            return Err(Errno::Invalid);
        }
        let mut call = Call { device: &mut self.device, file_id, file, process };
        match operation {
            Operation::InvokeWrite => write_commands::invoke(&mut call, &mut request),
            Operation::GetContext => device_methods::get_context(&mut call, &mut request),
            Operation::QueryPort => device_methods::query_port(&mut call, &mut request),
            Operation::QueryContext => device_methods::query_context(&mut call, &mut request),
            Operation::QueryVport => device_methods::query_vport(&mut call, &mut request),
            Operation::QueryProtectionDomain => object_methods::query_domain(&mut call, &mut request),
            Operation::QueryMemoryRegion => memory_methods::query(&mut call, &mut request),
            Operation::QueryGidTable => device_methods::query_gid_table(&mut call, &mut request),
            Operation::QueryGidEntry => device_methods::query_gid_entry(&mut call, &mut request),
            Operation::AllocAsyncEvent => device_methods::alloc_async_event(&mut call, &mut request),
            Operation::DestroyProtectionDomain => object_methods::destroy_domain(&mut call, &request),
            Operation::CreateCompletionQueue => completion_methods::create(&mut call, &mut request),
            Operation::DestroyCompletionQueue => completion_methods::destroy(&mut call, &mut request),
            Operation::CreateQueuePair => queue_pair_methods::create(&mut call, &mut request),
            Operation::DestroyQueuePair => queue_pair_methods::destroy(&mut call, &mut request),
            Operation::CreateSharedReceiveQueue => shared_receive_methods::create(&mut call, &mut request),
            Operation::DestroySharedReceiveQueue => shared_receive_methods::destroy(&mut call, &mut request),
            Operation::DestroyAddressHandle => address_methods::destroy(&mut call, &request),
            Operation::DestroyMemoryRegion => memory_methods::deregister(&mut call, &request),
            Operation::DestroyMemoryWindow => memory_methods::dealloc_window(&mut call, &request),
            Operation::DestroyXrcDomain => object_methods::close_xrc_domain(&mut call, &request),
            Operation::AllocUar => object_methods::alloc_uar(&mut call, &mut request),
            Operation::DestroyUar => object_methods::destroy_uar(&mut call, &request),
            Operation::DevxOther => devx::other(&mut call, &mut request),
            Operation::DevxQueryEqn => devx::query_eqn(&mut call, &mut request),
            Operation::DevxCreate => devx::create(&mut call, &mut request),
            Operation::DevxModify => devx::modify(&mut call, &mut request),
            Operation::DevxQuery => devx::query(&mut call, &mut request),
            Operation::DevxDestroy => devx::destroy(&mut call, &request),
            Operation::RegisterUserMemory => devx::register(&mut call, &mut request),
            Operation::DeregisterUserMemory => devx::deregister(&mut call, &request),
        }
    }

    /// Resolves an `mmap` of the device file at `offset`.
    pub fn map<P: Process>(
        &self,
        process: &mut P,
        file: FileId,
        offset: u64,
        length: u64,
    ) -> Result<Mapping, Errno> {
        let file = self.files.get(&file).ok_or(Errno::Io)?;
        match MapTarget::find(offset, length).ok_or(Errno::Invalid)? {
            MapTarget::Doorbells(page) if file.owns_page(page) => Ok(Mapping::Doorbells(page)),
            MapTarget::Clock if file.has_context => Ok(mapping::clock(process.wall_clock(), process.now())),
            MapTarget::Doorbells(_) | MapTarget::Clock => Err(Errno::Invalid),
        }
    }
}
