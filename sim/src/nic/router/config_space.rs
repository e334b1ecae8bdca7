//! Host accesses to PCI configuration space.

use crate::nic::Nic;
use bareverbs_prm::time::Time;

impl Nic {
    /// Reads 1, 2 or 4 bytes of configuration space for the host. Outside it all bits are one.
    pub fn handle_config_read(&self, offset: u16, length: u8) -> u32 {
        let length = usize::from(length.min(4));
        let at = usize::from(offset);
        let mut value = [0; 4];
        match self.pci.read(at, length) {
            Some(bytes) => value[..length].copy_from_slice(bytes),
            None => value[..length].fill(0xff),
        }
        u32::from_le_bytes(value)
    }

    /// Writes 1, 2 or 4 bytes of configuration space for the host. A function-level reset is complete when this
    /// returns.
    pub fn handle_config_write(&mut self, now: Time, offset: u16, length: u8, value: u32) {
        let at = usize::from(offset);
        for (i, byte) in value.to_le_bytes().into_iter().take(length.into()).enumerate() {
            if self.pci.write(at + i, byte) {
                self.reset(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::nic::{Nic, NicConfig};
    use bareverbs_prm::time::Time;

    #[test]
    fn the_bar_tells_its_size_and_capabilities_form_a_list() {
        let mut nic = Nic::new(NicConfig::default());
        nic.handle_config_write(Time::ZERO, 0x10, 4, u32::MAX);
        nic.handle_config_write(Time::ZERO, 0x14, 4, u32::MAX);
        let size = u64::from(nic.handle_config_read(0x14, 4)) << 32
            | u64::from(nic.handle_config_read(0x10, 4) & !0xf);
        assert_eq!(size.wrapping_neg(), nic.bar_size());
        assert_eq!(nic.handle_config_read(0x10, 4) & 0xf, 0xc);
        assert_eq!(nic.handle_config_read(0, 4), 0x1017_15b3);
        let mut at = nic.handle_config_read(0x34, 1) as u16;
        let mut ids = Vec::new();
        while at != 0 {
            ids.push(nic.handle_config_read(at, 1));
            at = nic.handle_config_read(at + 1, 1) as u16;
        }
        assert_eq!(ids, [0x01, 0x10, 0x11, 0x09]);
        assert_eq!(nic.handle_config_read(0xffe, 4), 0xffff_ffff);
        assert_eq!(nic.handle_config_read(0x9e, 2) & 0x7ff, 63);
    }
}
