//! What two ends write to each other: a request that moves firehoses, and its answer.
//!
//! ```text
//! request:  kind 1 | version | new regions (16) | old regions (16) | reserved (16) | id (64)
//!           then for each region, new ones first:  first bucket (64) | buckets (32)
//! granted:  kind 2 | version | keys (16)        | 0 (16)           | reserved (16) | id (64)
//!           then a key (32) for each new bucket, in the request's order
//! refused:  kind 3 | version | reason (16)      | 0 (16)           | reserved (16) | id (64)
//! ```
//! Numbers are big-endian. The length of a message follows from its first eight bytes, and must be just that.

use roci_protocol::Rkey;
use static_assertions::{const_assert, const_assert_eq};
use thiserror::Error;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Ref, Unaligned};

use super::bucket::{Bucket, Region};
use super::pin_error::PinError;

/// The longest message.
pub const MAX_MESSAGE: usize = 4096;
/// The most buckets that one request moves firehoses to. It holds them however they lie: new ones are in a row but for
/// those that are held already, and each may replace one that lies alone.
pub const MAX_BUCKETS: u64 = 224;

const VERSION: u8 = 1;
const REQUEST: u8 = 1;
const GRANTED: u8 = 2;
const REFUSED: u8 = 3;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct FirehoseHeader {
    kind: u8,
    version: u8,
    first: U16,
    second: U16,
    reserved: U16,
    id: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RegionView {
    first: U64,
    count: U32,
}

const HEADER: usize = 16;
const REGION: usize = 12;
const KEY: usize = 4;
const_assert_eq!(size_of::<FirehoseHeader>(), HEADER);
const_assert_eq!(size_of::<RegionView>(), REGION);
const_assert!(HEADER + (MAX_BUCKETS as usize + MAX_BUCKETS.div_ceil(2) as usize) * REGION <= MAX_MESSAGE);
const_assert!(HEADER + MAX_BUCKETS as usize * KEY <= MAX_MESSAGE);

/// A message, as it lies in memory that no peer can change.
#[derive(Clone, Copy, Debug)]
pub(super) enum FirehoseMessage<'a> {
    Request { id: u64, new: Regions<'a>, old: Regions<'a> },
    Granted { id: u64, keys: Keys<'a> },
    Refused { id: u64, reason: PinError },
}

/// Regions of a request; each was checked to be one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Regions<'a>(&'a [RegionView]);

/// Keys of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys<'a>(&'a [U32]);

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadFirehoseMessage {
    /// Cut short, or longer than it says.
    #[error("a firehose message of {got} bytes, and by its header it has {wanted}")]
    Length {
        /// Its length.
        got: usize,
        /// What its header says.
        wanted: usize,
    },
    /// Longer than any.
    #[error("a firehose message of {0} bytes, and none has more than {MAX_MESSAGE}")]
    TooLong(usize),
    /// No kind of message.
    #[error("a firehose message of unknown kind {0}")]
    Kind(u8),
    /// Another release of the protocol.
    #[error("a firehose message of version {0}, and this is version {VERSION}")]
    Version(u8),
    /// A request for nothing.
    #[error("a move of no firehose")]
    Nothing,
    /// No buckets, or with numbers that do not fit.
    #[error("region {0} of a move makes no sense")]
    Region(usize),
    /// A refusal without a reason that is known.
    #[error("a move refused for the unknown reason {0}")]
    Reason(u16),
}

/// Returns how many keys fit an answer of so many bytes.
pub(super) fn keys_that_fit(room: usize) -> u64 {
    (room.saturating_sub(HEADER) / KEY) as u64
}

/// Whether a message of this end's answers a request of the peer's.
pub(crate) fn is_answer(message: &[u8]) -> bool {
    message.first() != Some(&REQUEST)
}

impl<'a> FirehoseMessage<'a> {
    /// Reads a message. Never panics, whatever the bytes are.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, BadFirehoseMessage> {
        if bytes.len() > MAX_MESSAGE {
            return Err(BadFirehoseMessage::TooLong(bytes.len()));
        }
        let short = BadFirehoseMessage::Length { got: bytes.len(), wanted: HEADER };
        let (header, rest) = Ref::<_, FirehoseHeader>::from_prefix(bytes).map_err(|_| short)?;
        if header.version != VERSION {
            return Err(BadFirehoseMessage::Version(header.version));
        }
        let (id, first, second) = (header.id.get(), header.first.get(), header.second.get());
        let expect = |body: usize| {
            let (got, wanted) = (bytes.len(), HEADER + body);
            if got == wanted { Ok(()) } else { Err(BadFirehoseMessage::Length { got, wanted }) }
        };
        match header.kind {
            REQUEST => {
                expect((usize::from(first) + usize::from(second)) * REGION)?;
                Self::parse_request(id, rest, usize::from(first))
            }
            GRANTED => {
                expect(usize::from(first) * KEY)?;
                let keys = <[U32]>::ref_from_bytes(rest).map_err(|_| short)?;
                Ok(Self::Granted { id, keys: Keys(keys) })
            }
            REFUSED => {
                expect(0)?;
                let reason = PinError::ALL.into_iter().find(|&known| known as u16 == first);
                Ok(Self::Refused { id, reason: reason.ok_or(BadFirehoseMessage::Reason(first))? })
            }
            kind => Err(BadFirehoseMessage::Kind(kind)),
        }
    }

    fn parse_request(id: u64, body: &'a [u8], new: usize) -> Result<Self, BadFirehoseMessage> {
        let misfit = BadFirehoseMessage::Length { got: body.len(), wanted: body.len() / REGION * REGION };
        let regions = <[RegionView]>::ref_from_bytes(body).map_err(|_| misfit)?;
        let is_sound = |view: &RegionView| view.count.get() > 0 && view.region().is_some();
        if let Some(at) = regions.iter().position(|view| !is_sound(view)) {
            return Err(BadFirehoseMessage::Region(at));
        }
        let (new, old) = regions.split_at_checked(new).ok_or(misfit)?;
        if new.is_empty() {
            return Err(BadFirehoseMessage::Nothing);
        }
        Ok(Self::Request { id, new: Regions(new), old: Regions(old) })
    }
}

impl RegionView {
    fn region(&self) -> Option<Region> {
        Region::new(Bucket(self.first.get()), u64::from(self.count.get()))
    }
}

impl Regions<'_> {
    pub(super) fn iter(&self) -> impl Iterator<Item = Region> {
        self.0.iter().filter_map(RegionView::region)
    }

    /// How many buckets they have together: no more than 2^48.
    pub(super) fn count(&self) -> u64 {
        self.iter().map(Region::count).sum()
    }

    pub(super) fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.iter().flat_map(Region::buckets)
    }
}

impl Keys<'_> {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Rkey> {
        self.0.iter().map(|key| Rkey(key.get()))
    }
}

fn start(into: &mut Vec<u8>, kind: u8, id: u64, first: u16, second: u16) {
    into.clear();
    let (first, second, reserved) = (first.into(), second.into(), 0.into());
    into.extend_from_slice(
        FirehoseHeader { kind, version: VERSION, first, second, reserved, id: id.into() }.as_bytes(),
    );
}

/// Writes a request over what `into` held.
pub(super) fn emit_request(into: &mut Vec<u8>, id: u64, new: &[Region], old: &[Region]) {
    start(into, REQUEST, id, new.len() as u16, old.len() as u16);
    for region in new.iter().chain(old) {
        let view = RegionView { first: region.first().0.into(), count: (region.count() as u32).into() };
        into.extend_from_slice(view.as_bytes());
    }
    assert!(into.len() <= MAX_MESSAGE, "a request of {} bytes", into.len());
}

/// Writes an answer over what `into` held.
pub(super) fn emit_granted(into: &mut Vec<u8>, id: u64, keys: &[Rkey]) {
    start(into, GRANTED, id, keys.len() as u16, 0);
    for key in keys {
        into.extend_from_slice(U32::new(key.0).as_bytes());
    }
    assert!(into.len() <= MAX_MESSAGE, "an answer of {} bytes", into.len());
}

/// Writes a refusal over what `into` held.
pub(super) fn emit_refused(into: &mut Vec<u8>, id: u64, reason: PinError) {
    start(into, REFUSED, id, reason as u16, 0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> Vec<u8> {
        let mut bytes = Vec::new();
        let regions = [(3, 2), (9, 1), (20, 4)].map(|(first, count)| Region::new(Bucket(first), count).expect("few"));
        emit_request(&mut bytes, 7, &regions[..1], &regions[1..]);
        bytes
    }

    #[test]
    fn a_request_is_read_as_it_was_written() {
        let bytes = request();
        let Ok(FirehoseMessage::Request { id: 7, new, old }) = FirehoseMessage::parse(&bytes) else {
            panic!("a request")
        };
        assert_eq!(new.buckets().map(|bucket| bucket.0).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(old.buckets().map(|bucket| bucket.0).collect::<Vec<_>>(), [9, 20, 21, 22, 23]);
        assert_eq!((new.count(), old.count()), (2, 5));
    }

    #[test]
    fn answers_are_read_as_they_were_written() {
        let (keys, mut bytes) = ([Rkey(5), Rkey(u32::MAX)], Vec::new());
        emit_granted(&mut bytes, u64::MAX, &keys);
        let Ok(FirehoseMessage::Granted { id: u64::MAX, keys: read }) = FirehoseMessage::parse(&bytes) else {
            panic!("granted")
        };
        assert_eq!((read.len(), read.iter().collect::<Vec<_>>()), (2, keys.to_vec()));
        for reason in PinError::ALL {
            emit_refused(&mut bytes, 3, reason);
            let message = FirehoseMessage::parse(&bytes);
            assert!(matches!(message, Ok(FirehoseMessage::Refused { id: 3, reason: read }) if read == reason));
        }
    }

    #[test]
    fn bad_messages_are_refused_by_name() {
        let error = |bytes: &[u8]| FirehoseMessage::parse(bytes).expect_err("no message");
        assert_eq!(error(&[]), BadFirehoseMessage::Length { got: 0, wanted: HEADER });
        let good = request();
        assert_eq!(
            error(&good[..good.len() - 1]),
            BadFirehoseMessage::Length { got: good.len() - 1, wanted: good.len() }
        );
        for (at, value, expected) in [
            (0, 0, BadFirehoseMessage::Kind(0)),
            (0, 4, BadFirehoseMessage::Kind(4)),
            (1, 2, BadFirehoseMessage::Version(2)),
            (3, 2, BadFirehoseMessage::Length { got: good.len(), wanted: good.len() + REGION }),
            (HEADER + REGION - 1, 0, BadFirehoseMessage::Region(0)),
        ] {
            let mut bytes = good.clone();
            bytes[at] = value;
            assert_eq!(error(&bytes), expected, "byte {at}");
        }
        let mut beyond = good.clone();
        beyond[HEADER..HEADER + 8].fill(0xff);
        assert_eq!(error(&beyond), BadFirehoseMessage::Region(0), "buckets beyond the last one");
        let mut nothing = good.clone();
        (nothing[3], nothing[5]) = (0, 3);
        assert_eq!(error(&nothing), BadFirehoseMessage::Nothing);
        let mut refused = Vec::new();
        emit_refused(&mut refused, 1, PinError::NoKey);
        refused[3] = 9;
        assert_eq!(error(&refused), BadFirehoseMessage::Reason(9));
    }

    #[test]
    fn a_message_longer_than_any_is_refused() {
        let mut bytes = Vec::new();
        start(&mut bytes, GRANTED, 1, 2000, 0);
        bytes.resize(HEADER + 2000 * KEY, 0);
        assert_eq!(FirehoseMessage::parse(&bytes).err(), Some(BadFirehoseMessage::TooLong(bytes.len())));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..5_u8) {
            if let [first, version, ..] = bytes.as_mut_slice() {
                (*first, *version) = (kind, VERSION);
            }
            if let Ok(FirehoseMessage::Request { new, old, .. }) = FirehoseMessage::parse(&bytes) {
                prop_assert!(new.count() > 0 && new.count() + old.count() < 1 << 48);
            }
        }
    }
}
