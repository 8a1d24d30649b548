//! The application's memory, of which a device that reads memory itself is told range by range.
//!
//! A range is found by its name alone, never by its addresses: the application may unmap it and have other memory there,
//! while the device keeps the old pages.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::external::Lent;
use crate::link::{LendError, Lender};

/// Ranges of the application's memory that frames of one port are sent from, by name.
pub(super) type Ranges = Rc<RefCell<BTreeMap<u64, Lent>>>;

/// Lends a port such ranges.
#[derive(Debug)]
pub(super) struct PortLender {
    pub(super) port: u16,
    pub(super) ranges: Ranges,
}

impl Lender for PortLender {
    fn lend(&mut self, name: u64, base: usize, len: usize) -> Result<(), LendError> {
        let lent = Lent::of_range(self.port, name, base..base + len)?;
        self.ranges.borrow_mut().insert(name, lent);
        Ok(())
    }

    fn take_back(&mut self, name: u64) {
        self.ranges.borrow_mut().remove(&name);
    }
}
