//! A link around a link that writes every frame, both ways, to a capture file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;

use super::{
    Batch, FailedFrame, Full, Link, LinkState, LinkStats, Share, ZeroCopyError, ZeroCopyRanges, fill_around,
    restore_identification,
};
use crate::lasting::Lasting;
use crate::same_as_inner_link;

/// Magic of a capture with nanosecond stamps.
const MAGIC: u32 = 0xa1b2_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
const SNAP_LEN: u32 = 65_535;
/// How often the file is flushed, so that a killed process leaves a readable capture.
const FLUSH_NS: Nanos = 100_000_000;

/// Writes what passes, or nothing at all where it was given no file.
pub struct PcapTee<L> {
    inner: L,
    writer: Option<Writer>,
}

struct Writer {
    file: BufWriter<File>,
    flushed: Nanos,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl<L: Link> PcapTee<L> {
    /// Without a path this costs one predictable branch a frame.
    pub fn new(inner: L, path: Option<&Path>) -> io::Result<Self> {
        let writer = path.map(Writer::create).transpose()?;
        Ok(Self { inner, writer })
    }

    /// The link inside.
    pub fn inner(&self) -> &L {
        &self.inner
    }
}

impl Writer {
    fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        for word in [MAGIC, 4 << 16 | 2, 0, 0, SNAP_LEN, LINKTYPE_ETHERNET] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.flush()?;
        Ok(Self { file, flushed: 0, failed: None })
    }

    fn record(&mut self, now: Nanos, frame: &[u8]) {
        if self.failed.is_none()
            && let Err(error) = self.write(now, frame)
        {
            self.fail(error);
        }
    }

    fn write(&mut self, now: Nanos, frame: &[u8]) -> io::Result<()> {
        let len = frame.len() as u32;
        for word in [(now / 1_000_000_000) as u32, (now % 1_000_000_000) as u32, len, len] {
            self.file.write_all(&word.to_le_bytes())?;
        }
        self.file.write_all(frame)
    }

    fn flush_sometimes(&mut self, now: Nanos) {
        if now.saturating_sub(self.flushed) < FLUSH_NS || self.failed.is_some() {
            return;
        }
        self.flushed = now;
        if let Err(error) = self.file.flush() {
            self.fail(error);
        }
    }

    fn fail(&mut self, error: io::Error) {
        tracing::warn!("the capture file stops here: {error}");
        self.failed = Some(error);
    }
}

impl<L: Link> Link for PcapTee<L> {
    type Frame = L::Frame;

    #[inline]
    fn now(&self) -> Nanos {
        self.inner.now()
    }

    same_as_inner_link!();

    #[inline]
    fn receive(&mut self, batch: &mut Batch<L::Frame>) {
        let before = batch.len();
        self.inner.receive(batch);
        if let Some(writer) = &mut self.writer {
            let now = self.inner.now();
            let is_hidden = self.inner.hides_identification();
            for frame in &batch[before..] {
                if is_hidden {
                    let mut frame = frame.as_ref().to_vec();
                    restore_identification(&mut frame);
                    writer.record(now, &frame);
                } else {
                    writer.record(now, frame.as_ref());
                }
            }
        }
    }

    #[inline]
    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        let Some(writer) = &mut self.writer else { return self.inner.transmit(len, fill) };
        let now = self.inner.now();
        self.inner.transmit(len, |bytes| {
            fill(bytes);
            writer.record(now, bytes);
        })
    }

    fn attach(&mut self, memory: Arc<dyn Lasting>) -> Result<(), ZeroCopyError> {
        self.inner.attach(memory)
    }

    fn zero_copy_ranges(&self) -> Option<Box<dyn ZeroCopyRanges>> {
        self.inner.zero_copy_ranges()
    }

    /// A captured frame is put together here and sent whole.
    #[inline]
    fn is_zero_copy(&self, payload: &[u8], range: Option<u64>) -> bool {
        self.writer.is_none() && self.inner.is_zero_copy(payload, range)
    }

    #[inline]
    fn transmit_around(
        &mut self,
        head: usize,
        payload: &[u8],
        range: Option<u64>,
        tail: usize,
        fill: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<(), Full> {
        if self.writer.is_none() {
            return self.inner.transmit_around(head, payload, range, tail, fill);
        }
        self.transmit(head + payload.len() + tail, |frame| fill_around(frame, head, payload, fill))
    }

    #[inline]
    fn flush(&mut self) {
        self.inner.flush();
    }

    #[inline]
    fn maintain(&mut self, now: Nanos) -> LinkState {
        if let Some(writer) = &mut self.writer {
            writer.flush_sometimes(now);
        }
        self.inner.maintain(now)
    }

    fn stats(&self) -> LinkStats {
        self.inner.stats()
    }
}
