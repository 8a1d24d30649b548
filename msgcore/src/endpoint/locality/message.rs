//! What two endpoints of one host say to each other before they have a port between them.

use std::ffi::OsStr;
use std::fmt::{self, Display, Formatter};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use roci_driver::MarkPlace;

use crate::endpoint::address::EndpointAddress;
use crate::endpoint::address_book::PeerSession;
use crate::endpoint::wireup::Meant;

/// The longest message: two addresses and a path.
pub(super) const MESSAGE_LEN: usize = 512;
/// The first word, which says how the others are laid out.
const VERSION: &str = "roci-local-3";

/// A message from one endpoint to another one on the same host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct LocalMessage {
    pub(super) from: EndpointAddress,
    pub(super) meant: Meant,
    pub(super) body: LocalBody,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LocalBody {
    /// The client of the pair asks for a port.
    Want,
    /// The server has a socket, at which its client finds it.
    Ready(MeetingPoint),
    /// There will be no port between the two.
    Apart,
    /// The sender's memory may be read: this is its mark.
    Mark(MarkPlace),
    /// The sender reads the receiver's memory from now on.
    Attached,
}

/// A socket in the file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeetingPoint {
    /// Its path.
    pub path: PathBuf,
    /// Its device and inode: who finds others at the path is in another mount namespace.
    pub file: (u64, u64),
}

impl Display for LocalMessage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { from, meant, body } = self;
        let Meant { incarnation, session: PeerSession { ours, theirs } } = meant;
        write!(f, "{VERSION} {from} {incarnation:016x} {ours} {theirs} ")?;
        match body {
            LocalBody::Want => f.write_str("want"),
            LocalBody::Apart => f.write_str("apart"),
            LocalBody::Attached => f.write_str("attached"),
            LocalBody::Mark(MarkPlace { va, bytes }) => write!(f, "mark {va:x} {:032x}", u128::from_be_bytes(*bytes)),
            LocalBody::Ready(MeetingPoint { path, file: (device, inode) }) => {
                write!(f, "ready {device} {inode} {}", path.display())
            }
        }
    }
}

impl LocalMessage {
    /// Reads a message; nothing where it is none.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut words = text.splitn(7, ' ');
        if words.next()? != VERSION {
            return None;
        }
        let from = words.next()?.parse().ok()?;
        let incarnation = u64::from_str_radix(words.next()?, 16).ok()?;
        let session = PeerSession { ours: words.next()?.parse().ok()?, theirs: words.next()?.parse().ok()? };
        let meant = Meant { incarnation, session };
        let body = match (words.next()?, words.next()) {
            ("want", None) => LocalBody::Want,
            ("apart", None) => LocalBody::Apart,
            ("attached", None) => LocalBody::Attached,
            ("mark", Some(rest)) => LocalBody::Mark(parse_mark(rest)?),
            ("ready", Some(rest)) => LocalBody::Ready(parse_point(rest)?),
            _ => return None,
        };
        Some(Self { from, meant, body })
    }
}

fn parse_mark(text: &str) -> Option<MarkPlace> {
    let (va, bytes) = text.split_once(' ')?;
    let bytes = u128::from_str_radix(bytes, 16).ok()?.to_be_bytes();
    Some(MarkPlace { va: u64::from_str_radix(va, 16).ok()?, bytes })
}

fn parse_point(text: &str) -> Option<MeetingPoint> {
    let mut words = text.splitn(3, ' ');
    let file = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let path = PathBuf::from(OsStr::from_bytes(words.next()?.as_bytes()));
    path.is_absolute().then_some(MeetingPoint { path, file })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let from = EndpointAddress { ip: [10, 0, 0, 1].into(), udp_port: 20_000, service: 7, incarnation: 9 };
        let point = MeetingPoint { path: "/tmp/a directory/0".into(), file: (8, 1 << 40) };
        let mark = MarkPlace { va: u64::MAX - 1, bytes: *b"\0\x01 random bytes." };
        let bodies =
            [LocalBody::Want, LocalBody::Apart, LocalBody::Ready(point), LocalBody::Mark(mark), LocalBody::Attached];
        for body in bodies {
            let meant = Meant { incarnation: u64::MAX, session: PeerSession { ours: 3, theirs: 4 } };
            let message = LocalMessage { from, meant, body };
            assert_eq!(LocalMessage::parse(message.to_string().as_bytes()), Some(message));
        }
        let words = format!("{VERSION} {from} 1 2 ");
        for rest in [
            "",
            "want",
            "2",
            "2 ",
            "x want",
            "2 wants",
            "2 want more",
            "2 ready",
            "2 ready 1 2",
            "2 ready 1 x /a",
            "2 ready 1 2 a/b",
            "2 attached now",
            "2 mark 1",
            "2 mark 1 x",
            "2 mark x 1",
            "2 mark 1 2 3",
        ] {
            assert_eq!(LocalMessage::parse(format!("{words}{rest}").as_bytes()), None, "{rest}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = LocalMessage::parse(&bytes);
        }
    }
}
