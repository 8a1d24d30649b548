//! What two rsockets tell each other beside the data.

use roci_protocol::Rkey;

use crate::LabError;

const VERSION: u8 = 1;
/// Says that the machine is big-endian, and so are its slots.
const FLAG_BIG_ENDIAN: u8 = 1;

/// A segment of the peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RemoteSegment {
    pub(super) addr: u64,
    pub(super) key: Rkey,
    /// Bytes; of slots, how many there are.
    pub(super) len: u32,
}

impl RemoteSegment {
    pub(super) const LEN: usize = 16;

    /// As it lies in a slot, in the order of bytes of the machine: the lab's are little-endian.
    pub(super) fn written(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..8].copy_from_slice(&self.addr.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[12..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    pub(super) fn read(bytes: [u8; Self::LEN]) -> Self {
        let [addr, tail] = [0, 8].map(|at| std::array::from_fn(|i| bytes[at + i])).map(u64::from_le_bytes);
        Self { addr, key: Rkey(tail as u32), len: (tail >> 32) as u32 }
    }

    /// The form in the connection's private data: each number in network order.
    fn in_network_order(bytes: [u8; Self::LEN]) -> [u8; Self::LEN] {
        let mut swapped = bytes;
        swapped[..8].reverse();
        swapped[8..12].reverse();
        swapped[12..].reverse();
        swapped
    }
}

/// What each side says when the connection is made.
pub(super) struct Hello {
    /// Receives for data.
    pub(super) receives: u16,
    pub(super) slots: RemoteSegment,
    /// The first half of the inbox.
    pub(super) half: RemoteSegment,
}

impl Hello {
    const LEN: usize = 8 + 2 * RemoteSegment::LEN;

    pub(super) fn written(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = VERSION;
        bytes[2..4].copy_from_slice(&self.receives.to_be_bytes());
        bytes[8..24].copy_from_slice(&RemoteSegment::in_network_order(self.slots.written()));
        bytes[24..].copy_from_slice(&RemoteSegment::in_network_order(self.half.written()));
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, LabError> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk().ok_or("too little private data for an rsocket")?;
        if bytes[0] != VERSION || bytes[1] & FLAG_BIG_ENDIAN != 0 {
            return Err(format!("not an rsocket like ours: version {}, flags {:#x}", bytes[0], bytes[1]).into());
        }
        let part =
            |at: usize| RemoteSegment::read(RemoteSegment::in_network_order(std::array::from_fn(|i| bytes[at + i])));
        Ok(Self { receives: u16::from_be_bytes([bytes[2], bytes[3]]), slots: part(8), half: part(24) })
    }
}

/// A message in immediate data: three bits of kind, and a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RsocketMessage {
    /// So many bytes follow what has come.
    Data(usize),
    /// So many messages of data may come, counted from the beginning; with it, perhaps, a free half in the next slot.
    Receives(u16),
    /// No data follows.
    End,
}

const NUMBER_BITS: u32 = 29;
const KIND_DATA: u32 = 0;
const KIND_RECEIVES: u32 = 4;
const KIND_CONTROL: u32 = 7;
const CONTROL_END: u32 = 0;

impl RsocketMessage {
    pub(super) fn written(self) -> u32 {
        let (kind, number) = match self {
            Self::Data(len) => (KIND_DATA, len as u32),
            Self::Receives(count) => (KIND_RECEIVES, u32::from(count)),
            Self::End => (KIND_CONTROL, CONTROL_END),
        };
        kind << NUMBER_BITS | number
    }

    pub(super) fn read(imm: u32) -> Result<Self, LabError> {
        match (imm >> NUMBER_BITS, imm & ((1 << NUMBER_BITS) - 1)) {
            (KIND_DATA, len) => Ok(Self::Data(len as usize)),
            (KIND_RECEIVES, count) => Ok(Self::Receives(count as u16)),
            (KIND_CONTROL, CONTROL_END) => Ok(Self::End),
            _ => Err(format!("no message of an rsocket: {imm:#x}").into()),
        }
    }
}
