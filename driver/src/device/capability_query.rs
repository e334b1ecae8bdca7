//! Queries capability pages beyond what [`Capabilities`](crate::Capabilities) contains.

use super::Device;
use crate::capability_page::{
    CapabilityPage, CapabilityValues, page_buffer, page_of, page_output, query_page,
};
use crate::command::{CommandError, Request};
use crate::hal::Hal;

impl<H: Hal> Device<H> {
    /// Queries a capability page (QUERY_HCA_CAP).
    ///
    /// # Errors
    /// The command failed; a device refuses a page that it does not have.
    ///
    /// ```
    /// # use bareverbs_core::{Device, capability_page::CapabilityValues, command::CommandError, hal::Hal};
    /// use bareverbs_prm::command::caps::GeneralCapabilities;
    ///
    /// fn partitions<H: Hal>(device: &Device<H>) -> Result<u32, CommandError> {
    ///     let page: GeneralCapabilities = device.capability_page(CapabilityValues::Maximum)?;
    ///     Ok(128 << page.pkey_table_size())
    /// }
    /// ```
    pub fn capability_page<P: CapabilityPage>(&self, values: CapabilityValues) -> Result<P, CommandError> {
        let mut buffer = page_buffer();
        self.execute(&Request::new(&query_page(P::TYPE, values)), page_output(&mut buffer))?;
        Ok(page_of(&buffer))
    }
}
