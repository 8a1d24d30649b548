//! Which message a REJ or an MRA is about (IBTA tables 107 and 108).

/// The message that is refused, or whose receipt is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Subject {
    /// A REQ.
    Req = 0,
    /// A REP.
    Rep = 1,
    /// In an MRA a LAP, in a REJ no message at all: the sender gave up waiting.
    Other = 2,
    /// The value that IBTA reserves.
    Reserved = 3,
}

impl Subject {
    /// Decodes the high two bits.
    pub(super) const fn from_wire(byte: u8) -> Self {
        match byte >> 6 {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }

    /// Encodes the high two bits.
    pub(super) const fn to_wire(self) -> u8 {
        (self as u8) << 6
    }

    /// The name that captures print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Rep => "REP",
            Self::Other => "other",
            Self::Reserved => "reserved",
        }
    }
}
