//! Memory that is open to peers: registered for one operation, under a key that dies with it; or exposed for as long as the application
//! says, maybe under a key of its choice.

use roci_driver::link::Link;
use roci_driver::{Access, Buffer, MemoryRegion, Refused};

use super::Core;
use super::exposed_keys::ExposedKeys;

/// How many regions are open for operations, of those that may be; and the keys of what is exposed.
#[derive(Debug)]
pub(crate) struct OpenRegions {
    open: usize,
    limit: usize,
    /// Keys that the application has chosen. Apart, because few endpoints have any.
    pub(crate) chosen: Box<ExposedKeys>,
    /// Where the next offer begins.
    pub(crate) next_offer: u64,
}

impl OpenRegions {
    /// At most `limit` regions at a time.
    pub(crate) fn new(limit: usize) -> Self {
        Self { open: 0, limit, chosen: Box::default(), next_offer: 0 }
    }

    /// How many are open.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Whether no more are open than may be.
    pub(crate) fn is_sound(&self) -> bool {
        self.open <= self.limit
    }
}

impl<L: Link> Core<L> {
    /// Whether a key is left.
    #[inline]
    pub(crate) fn can_register(&self) -> bool {
        self.regions.open < self.regions.limit && self.engine.can_register()
    }

    /// Opens memory to peers, or hands it back where no key is left.
    pub(crate) fn register(&mut self, buffer: Buffer, access: Access) -> Result<MemoryRegion, Buffer> {
        if self.regions.open == self.regions.limit {
            self.stats.registrations_refused += 1;
            return Err(buffer);
        }
        match self.engine.register(self.pd, buffer, access) {
            Ok(region) => {
                self.regions.open += 1;
                Ok(region)
            }
            Err(Refused { given: buffer, .. }) => {
                self.stats.registrations_refused += 1;
                Err(buffer)
            }
        }
    }

    /// Closes memory to peers.
    pub(crate) fn deregister(&mut self, region: MemoryRegion) -> Buffer {
        self.regions.open -= 1;
        self.engine.deregister(region).expect("the operation owns its region")
    }
}
