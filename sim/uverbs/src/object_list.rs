//! Lists a program's objects as the kernel reports them over NETLINK_RDMA (`fill_res_*_entry` in Linux's `nldev.c`).

use crate::Uverbs;
use crate::device::Device;
use crate::files::{DeviceFile, FileId, Object};
use crate::netlink::{Attributes, ListedObject, ObjectKind, ObjectOwner};
use crate::process::Process;
use crate::queue_pair_state::query_context;
use crate::queues::QueuePairKind;
use crate::transition::State;
use crate::uapi::*;
use alloc::vec::Vec;
use bareverbs_prm::context::QueuePairContext;
use bareverbs_prm::ids::{Cqn, Pdn, Qpn};

/// An object of a file, with its file and device.
struct Placed<'a> {
    file: &'a DeviceFile,
    context: u32,
    handle: u32,
    owner: ObjectOwner,
}

impl Placed<'_> {
    /// Number of the protection domain that it uses, and of the completion queue.
    fn domain(&self) -> Option<u32> {
        self.used(|object| if let Object::ProtectionDomain(pdn) = object { Some(pdn.value()) } else { None })
    }

    fn completion_queue(&self) -> Option<u32> {
        self.used(|object| if let Object::CompletionQueue(cqn) = object { Some(cqn.value()) } else { None })
    }

    fn used(&self, number: impl Fn(Object) -> Option<u32>) -> Option<u32> {
        let uses = self.file.uses(self.handle);
        let own = uses.into_iter().find_map(|handle| number(self.file.get(handle).ok()?))?;
        Some(self.owner.number_of(own))
    }

    fn list(&self, kind: ObjectKind, own: u32, fill: impl FnOnce(&mut Attributes)) -> ListedObject {
        ListedObject::new(kind, self.owner.number_of(own), self.owner, false, fill)
    }

    fn protection_domain(&self, pdn: Pdn) -> ListedObject {
        self.list(ObjectKind::ProtectionDomain, pdn.value(), |told| {
            told.put_u64(RDMA_NLDEV_ATTR_RES_USECNT, self.file.users(self.handle));
            told.put_u32(RDMA_NLDEV_ATTR_RES_CTXN, self.context);
        })
    }

    fn completions(&self, cqn: Cqn, entries: u32) -> ListedObject {
        self.list(ObjectKind::CompletionQueue, cqn.value(), |told| {
            told.put_u32(RDMA_NLDEV_ATTR_RES_CQE, entries);
            told.put_u64(RDMA_NLDEV_ATTR_RES_USECNT, self.file.users(self.handle));
            told.put_u8(RDMA_NLDEV_ATTR_DEV_DIM, 0);
            told.put_u32(RDMA_NLDEV_ATTR_RES_CTXN, self.context);
        })
    }

    fn queue_pair(&self, qpn: Qpn, kind: QueuePairKind, context: &QueuePairContext) -> ListedObject {
        // Its number already has the process in its upper bits.
        let has_port = context.primary_address_path().vhca_port_num() != 0;
        ListedObject::new(ObjectKind::QueuePair, qpn.value(), self.owner, has_port, |told| {
            if let Some(domain) = self.domain() {
                told.put_u32(RDMA_NLDEV_ATTR_RES_PDN, domain);
            }
            if matches!(kind, QueuePairKind::ReliableConnection | QueuePairKind::UnreliableConnection) {
                told.put_u32(RDMA_NLDEV_ATTR_RES_RQPN, context.remote_qpn().value());
                told.put_u32(RDMA_NLDEV_ATTR_RES_RQ_PSN, context.next_rcv_psn().value());
            }
            told.put_u32(RDMA_NLDEV_ATTR_RES_SQ_PSN, context.next_send_psn().value());
            if kind != QueuePairKind::Datagram {
                told.put_u8(RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, 0);
            }
            told.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, kind.number());
            told.put_u8(RDMA_NLDEV_ATTR_RES_STATE, State::from_device(context.state()) as u8);
        })
    }

    fn shared_receive_queue(&self, number: u32, is_xrc: bool) -> ListedObject {
        self.list(ObjectKind::SharedReceiveQueue, number, |told| {
            let kind = if is_xrc { IB_UVERBS_SRQT_XRC } else { IB_UVERBS_SRQT_BASIC };
            told.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, kind as u8);
            if let Some(domain) = self.domain() {
                told.put_u32(RDMA_NLDEV_ATTR_RES_PDN, domain);
            }
            if let Some(queue) = self.completion_queue().filter(|_| is_xrc) {
                told.put_u32(RDMA_NLDEV_ATTR_RES_CQN, queue);
            }
            told.nest(RDMA_NLDEV_ATTR_RES_QP, |told| ranges(told, self.file.queue_pairs_with(self.handle)));
        })
    }
}

/// Queue pairs in order, with consecutive numbers as ranges. Only the first ranges are kept, so that they fit
/// into a response.
fn ranges(told: &mut Attributes, mut numbers: Vec<u32>) {
    const MOST: usize = 64;
    numbers.sort_unstable();
    for range in numbers.chunk_by(|one, next| one + 1 == *next).take(MOST) {
        let (first, last) = (range[0], range[range.len() - 1]);
        told.nest(RDMA_NLDEV_ATTR_RES_QP_ENTRY, |told| {
            if first == last {
                told.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, first);
            } else {
                told.put_u32(RDMA_NLDEV_ATTR_MIN_RANGE, first);
                told.put_u32(RDMA_NLDEV_ATTR_MAX_RANGE, last);
            }
        });
    }
}

impl Uverbs {
    /// Lists the live objects of a kind. [`Connections::list`](crate::Connections::list) has the connection
    /// identifiers.
    pub fn list<P: Process>(
        &mut self,
        process: &mut P,
        kind: ObjectKind,
        owner: ObjectOwner,
    ) -> Vec<ListedObject> {
        let (device, files) = self.device_and_files();
        let mut listed = Vec::new();
        for (id, file) in files.iter().filter(|(_, file)| file.has_context) {
            let context = owner.number_of(FileId::raw(*id));
            if kind == ObjectKind::Context {
                listed.push(ListedObject::new(kind, context, owner, false, |_| ()));
                continue;
            }
            for (handle, object) in file.handles() {
                let placed = Placed { file, context, handle, owner };
                listed.extend(list(device, process, kind, &placed, object));
            }
        }
        listed
    }
}

fn list<P: Process>(
    device: &mut Device,
    process: &mut P,
    kind: ObjectKind,
    placed: &Placed<'_>,
    object: Object,
) -> Option<ListedObject> {
    Some(match (kind, object) {
        (ObjectKind::ProtectionDomain, Object::ProtectionDomain(pdn)) => placed.protection_domain(pdn),
        (ObjectKind::CompletionQueue, Object::CompletionQueue(cqn)) => {
            placed.completions(cqn, device.queues.completion.get(&cqn)?.entries)
        }
        (ObjectKind::MemoryRegion, Object::MemoryRegion(region)) => {
            placed.list(kind, region.key.index().value(), |told| {
                told.put_u64(RDMA_NLDEV_ATTR_RES_MRLEN, region.length);
                if let Some(domain) = placed.domain() {
                    told.put_u32(RDMA_NLDEV_ATTR_RES_PDN, domain);
                }
            })
        }
        (ObjectKind::QueuePair, Object::QueuePair(qpn)) => {
            let queue_kind = device.queues.pairs.get(&qpn)?.kind;
            placed.queue_pair(qpn, queue_kind, &query_context(device, process, qpn).ok()?)
        }
        (ObjectKind::SharedReceiveQueue, Object::SharedReceiveQueue(srqn)) => {
            placed.shared_receive_queue(srqn.value(), device.queues.shared.get(&srqn)?.is_xrc)
        }
        _ => return None,
    })
}
