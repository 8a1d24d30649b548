//! Captures, pcap or pcapng: their frames, one after the other.

use std::borrow::Cow;
use std::fs::File;
use std::path::Path;

use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};
use roci_protocol::Nanos;
use thiserror::Error;

use crate::failure::{Failure, FailureContext};

/// More than any frame of a capture.
const READER_CAPACITY: usize = 1 << 20;
/// In nanoseconds.
const SECOND: Nanos = 1_000_000_000;

/// Calls `action` with each frame, as an Ethernet frame, and the time at which it was captured, if the file says it.
pub(crate) fn for_each_frame(
    path: &Path,
    mut action: impl FnMut(Option<Nanos>, &[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let name = path.display();
    let file = File::open(path).context(format!("cannot read {name}"))?;
    let not_a_capture = |error| match error {
        PcapError::ReadError => Failure::new(format!("cannot read {name}")),
        _ => Failure::new(format!("{name} is not a pcap or pcapng capture")),
    };
    let mut reader = create_reader(READER_CAPACITY, file).map_err(not_a_capture)?;
    let mut interfaces = Interfaces::default();
    loop {
        let incomplete = match reader.next() {
            Ok((offset, block)) => {
                let frame = frame_of(&block, &mut interfaces.linktypes)
                    .map_err(|what| Failure::new(format!("{name}: {what}")))?;
                let at = interfaces.time_of(&block);
                frame.map_or(Ok(()), |frame| action(at, &frame))?;
                reader.consume(offset);
                continue;
            }
            Err(PcapError::Eof) => return Ok(()),
            Err(error) => matches!(error, PcapError::Incomplete(_)),
        };
        if !incomplete || reader.reader_exhausted() {
            return Err(Failure::new(format!("{name}: the capture is truncated or damaged")));
        }
        reader.refill().map_err(|error| Failure::new(format!("cannot read {name}: {error:?}")))?;
    }
}

/// What a capture said of the interfaces that its frames name.
#[derive(Default)]
struct Interfaces {
    linktypes: Vec<Linktype>,
    /// How many units of its stamps make a second; of a classic capture the only one.
    resolutions: Vec<u64>,
}

impl Interfaces {
    /// The time of the frame in a block, and nothing for others: what describes interfaces is remembered.
    fn time_of(&mut self, block: &PcapBlockOwned<'_>) -> Option<Nanos> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.resolutions.push(if header.is_nanosecond_precision() { SECOND } else { SECOND / 1000 });
                None
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.resolutions.clear();
                None
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                self.resolutions.push(interface.ts_resolution().unwrap_or(SECOND / 1000));
                None
            }
            PcapBlockOwned::Legacy(packet) => {
                let resolution = *self.resolutions.first()?;
                Some(u64::from(packet.ts_sec) * SECOND + u64::from(packet.ts_usec) * (SECOND / resolution))
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let resolution = u128::from(*self.resolutions.get(packet.if_id as usize)?).max(1);
                let units = u128::from(packet.ts_high) << 32 | u128::from(packet.ts_low);
                Some((units * u128::from(SECOND) / resolution) as Nanos)
            }
            PcapBlockOwned::NG(_) => None,
        }
    }
}

/// Why a block of a capture cannot be read.
#[derive(Debug, Error)]
enum BlockError {
    #[error("a packet without an interface")]
    NoInterface,
    #[error("a damaged packet")]
    Damaged,
    #[error("link type {0} is neither Ethernet, nor Linux's \"cooked\", nor IP")]
    Linktype(Linktype),
}

/// The frame in a block, if it is one that holds a frame.
fn frame_of<'a>(
    block: &'a PcapBlockOwned<'_>,
    linktypes: &mut Vec<Linktype>,
) -> Result<Option<Cow<'a, [u8]>>, BlockError> {
    let (data, linktype, len) = match block {
        PcapBlockOwned::LegacyHeader(header) => {
            linktypes.push(header.network);
            return check_linktype(header.network).map(|()| None);
        }
        PcapBlockOwned::Legacy(packet) => (packet.data, linktypes.first(), packet.caplen),
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            linktypes.clear();
            return Ok(None);
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            linktypes.push(interface.linktype);
            return check_linktype(interface.linktype).map(|()| None);
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
            (packet.data, linktypes.get(packet.if_id as usize), packet.caplen)
        }
        PcapBlockOwned::NG(Block::SimplePacket(packet)) => {
            // The snap length is not repeated in the block: what is there counts.
            (packet.data, linktypes.first(), packet.origlen.min(packet.data.len() as u32))
        }
        PcapBlockOwned::NG(_) => return Ok(None),
    };
    let linktype = *linktype.ok_or(BlockError::NoInterface)?;
    check_linktype(linktype)?;
    let data = data.get(..len as usize).ok_or(BlockError::Damaged)?;
    Ok(Some(as_ethernet(linktype, data)))
}

fn check_linktype(linktype: Linktype) -> Result<(), BlockError> {
    match linktype {
        Linktype::ETHERNET | Linktype::LINUX_SLL | LINUX_SLL2 | Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => {
            Ok(())
        }
        other => Err(BlockError::Linktype(other)),
    }
}

/// `tcpdump -i any` of today; the crate has no name for it.
const LINUX_SLL2: Linktype = Linktype(276);

/// The packet as an Ethernet frame: captures on "any" interface, or of IP alone, lack its header.
fn as_ethernet(linktype: Linktype, data: &[u8]) -> Cow<'_, [u8]> {
    const SLL_LEN: usize = 16;
    const SLL2_LEN: usize = 20;
    let (ethertype, packet) = match linktype {
        Linktype::ETHERNET => return data.into(),
        Linktype::LINUX_SLL if data.len() >= SLL_LEN => (&data[14..16], &data[SLL_LEN..]),
        LINUX_SLL2 if data.len() >= SLL2_LEN => (&data[..2], &data[SLL2_LEN..]),
        Linktype::LINUX_SLL | LINUX_SLL2 => return data.into(),
        _ if data.first().is_some_and(|first| first >> 4 == 6) => (&[0x86, 0xdd][..], data),
        _ => (&[0x08, 0x00][..], data),
    };
    [&[0; 12], ethertype, packet].concat().into()
}
