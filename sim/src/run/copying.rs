//! Cards: nodes whose devices are functions of one card, and the DMA engine that copies between their memories.
//!
//! Functions that share a port are all connected to one switch, the card's embedded switch, which has the external
//! cable.

use super::card::{Card, CardError, Copying};
use super::device::Device;
use super::dma::{DmaClock, DmaCost};
use super::node::Node;
use super::topology::NodeId;
use super::world::{Event, World};
use crate::nic::{DmaEnd, DmaRefused, HostMemory};
use std::collections::BTreeMap;

impl<M: HostMemory, D: Device> World<M, D> {
    /// Joins the devices of `nodes` into one card with a DMA engine of this cost.
    ///
    /// # Errors
    /// A device is not a function ([`NicConfig::card`](crate::nic::NicConfig::card)), already belongs to a card, or has
    /// the VHCA ID of another.
    pub fn join_card(&mut self, nodes: &[NodeId], cost: DmaCost) -> Result<(), CardError> {
        let mut functions = BTreeMap::new();
        for &node in nodes {
            let entry = &self.nodes[node.index()];
            let id = entry.device.vhca_id().ok_or(CardError::NoFunction(node))?;
            if entry.card.is_some() {
                return Err(CardError::JoinedAlready(node));
            }
            if functions.insert(id, node).is_some() {
                return Err(CardError::SameId(id));
            }
        }
        let number = self.cards.len() as u32;
        for &node in nodes {
            self.nodes[node.index()].card = Some(number);
        }
        let engine = DmaClock::new(cost);
        self.cards.push(Card { functions, engine, copies: BTreeMap::new(), admitted: 0 });
        nodes.iter().for_each(|&node| self.serve_card(node));
        Ok(())
    }

    /// Delivers a function's messages to the others and starts the copies it requests. A function outside any card has
    /// no others, and a DMA engine that costs nothing.
    pub(super) fn serve_card(&mut self, node: NodeId) {
        let number = self.nodes[node.index()].card;
        while let Some(notice) = self.nodes[node.index()].device.poll_card_notice() {
            for other in self.peers(number, node) {
                self.nodes[other.index()].device.handle_card_notice(&notice);
            }
        }
        while let Some(request) = self.nodes[node.index()].device.poll_dma() {
            let copying = Copying { asker: node, request };
            match number {
                Some(number) => self.admit(number, copying),
                None => self.end_copy(&copying, None),
            }
        }
        // Work that waited behind a copy which ended at once.
        if number.is_none() && self.nodes[node.index()].device.has_transmit() {
            self.transmit(node);
        }
    }

    fn peers(&self, card: Option<u32>, node: NodeId) -> Vec<NodeId> {
        let card = card.and_then(|number| self.cards.get(number as usize));
        let functions = card.into_iter().flat_map(|card| card.functions.values());
        functions.copied().filter(|&other| other != node).collect()
    }

    fn admit(&mut self, number: u32, copying: Copying) {
        let Some(card) = self.cards.get_mut(number as usize) else { return };
        let due = card.engine.admit(self.now, copying.request.length());
        card.admitted += 1;
        card.copies.insert((due, card.admitted), copying);
        self.schedule.push(due, Event::Copy { card: number });
    }

    /// Completes a due copy. Its bytes are those of this moment.
    pub(super) fn end_due_copy(&mut self, number: u32) {
        let Some(card) = self.cards.get_mut(number as usize) else { return };
        let due = card.copies.first_entry().filter(|entry| entry.key().0 <= self.now);
        let Some(copying) = due.map(|entry| entry.remove()) else { return };
        self.end_copy(&copying, Some(number));
        self.look_after(copying.asker);
    }

    fn end_copy(&mut self, copying: &Copying, card: Option<u32>) {
        let result = self.copy(copying, card);
        let Node { device, memory, .. } = &mut self.nodes[copying.asker.index()];
        device.handle_dma_end(self.now, memory, &copying.request, result);
    }

    /// Copies the bytes. The owner of each end validates it and accesses its memory.
    fn copy(&mut self, copying: &Copying, card: Option<u32>) -> Result<(), DmaRefused> {
        let copy = *copying.request.copy();
        let mut bytes = vec![0; usize::try_from(copying.request.length()).unwrap_or(usize::MAX)];
        let Node { device, memory, .. } = self.owner(copying, card, &copy.source)?;
        device.read_dma(memory, &copy.source, &mut bytes)?;
        let Node { device, memory, .. } = self.owner(copying, card, &copy.destination)?;
        device.write_dma(memory, &copy.destination, &bytes)
    }

    fn owner(
        &mut self,
        copying: &Copying,
        card: Option<u32>,
        end: &DmaEnd,
    ) -> Result<&mut Node<M, D>, DmaRefused> {
        let node = match end.owner() {
            None => copying.asker,
            Some(id) => {
                let card = card.and_then(|number| self.cards.get(number as usize));
                *card.and_then(|card| card.functions.get(&id)).ok_or(DmaRefused::NoFunction(id))?
            }
        };
        Ok(&mut self.nodes[node.index()])
    }
}
