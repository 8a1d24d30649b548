//! The wire under test: our port, with a record of every frame and rules that lose some.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::rc::Rc;

use roci_driver::link::dpdk::DpdkLink;
use roci_driver::link::{Batch, Full, Link, LinkState, LinkStats};
use roci_protocol::Nanos;
use roci_protocol::wire::{Frame, MacAddr, Packet};

/// Which way a frame goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// From us to the guest.
    Out,
    /// From the guest to us.
    In,
}

/// Decides about one packet: `true` loses it.
pub(crate) type Rule = Box<dyn FnMut(Way, &Packet<'_>) -> bool>;

/// What happened on the wire since the scenario began, and what is to happen.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) frames: Vec<(Nanos, Vec<u8>)>,
    pub(crate) rule: Option<Rule>,
    pub(crate) lost: usize,
}

impl Script {
    /// Records a frame, and tells whether it is to be lost.
    fn loses(&mut self, now: Nanos, way: Way, frame: &[u8]) -> bool {
        self.frames.push((now, frame.to_vec()));
        let Some(rule) = &mut self.rule else { return false };
        let Ok(parsed) = Frame::parse(frame) else { return false };
        let is_lost = rule(way, &parsed.packet);
        self.lost += usize::from(is_lost);
        is_lost
    }

    /// Writes the record as a capture.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
            file.write_all(&word.to_le_bytes())?;
        }
        for (at, frame) in &self.frames {
            let len = frame.len() as u32;
            for word in [(at / 1_000_000_000) as u32, (at % 1_000_000_000) as u32, len, len] {
                file.write_all(&word.to_le_bytes())?;
            }
            file.write_all(frame)?;
        }
        file.flush()
    }
}

/// Our port.
pub(crate) struct LabLink {
    inner: DpdkLink,
    script: Rc<RefCell<Script>>,
    scratch: Vec<u8>,
}

impl LabLink {
    pub(crate) fn new(inner: DpdkLink, script: Rc<RefCell<Script>>) -> Self {
        Self { inner, script, scratch: Vec::new() }
    }
}

impl Link for LabLink {
    type Frame = <DpdkLink as Link>::Frame;

    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn max_frame(&self) -> usize {
        self.inner.max_frame()
    }

    fn mac(&self) -> MacAddr {
        self.inner.mac()
    }

    fn receive(&mut self, batch: &mut Batch<Self::Frame>) {
        let mut all = Batch::new();
        self.inner.receive(&mut all);
        let now = self.inner.now();
        let mut script = self.script.borrow_mut();
        all.retain(|frame| !script.loses(now, Way::In, frame.as_ref()));
        batch.extend(all);
    }

    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        self.scratch.resize(len, 0);
        fill(&mut self.scratch);
        let mut script = self.script.borrow_mut();
        if script.loses(self.inner.now(), Way::Out, &self.scratch) {
            return Ok(());
        }
        self.inner.transmit(len, |bytes| bytes.copy_from_slice(&self.scratch))
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn maintain(&mut self, now: Nanos) -> LinkState {
        self.inner.maintain(now)
    }

    fn stats(&self) -> LinkStats {
        self.inner.stats()
    }
}
