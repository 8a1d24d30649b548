//! The socket of the peer that most comes from. While packets come one by one each is read by the quickest call that there is. In
//! streams the kernel gathers trains (UDP GRO), and several messages are read at once.
//!
//! The quickest call has no word about a packet but its length. So the kernel must gather no trains then, and the packets must be of
//! class 0, which no router marks (RFC 3168); now and then one is looked at for that.

use std::io;
use std::net::SocketAddr;

use arrayvec::ArrayVec;

use super::rx_room::RxRoom;
use super::socket::{KernelSocket, MESSAGES, RxMessage};

/// How many more packets come alone than not, until they are read one by one. One that does not counts as so many: an acknowledgement may
/// come right behind a message now and then.
const ALONE: u32 = 256;
const NOT_ALONE: u32 = 4;
/// Packets in a row that come behind each other, until trains are read.
const STREAM: u32 = 8;
/// Packets of which the kernel says nothing, between two of which it does.
const UNSEEN: u32 = 64;

pub(super) struct RegularSource {
    socket: KernelSocket,
    peer: SocketAddr,
    reading: ReadBy,
    /// How much speaks for another way of reading.
    streak: u32,
    /// Packets of which the kernel has said nothing.
    unseen: u32,
    /// The last look found something.
    is_busy: bool,
}

/// What a look takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadBy {
    /// Trains of packets, several at once.
    Trains,
    /// One packet.
    Packets,
}

impl RegularSource {
    pub(super) const fn new(socket: KernelSocket, peer: SocketAddr) -> Self {
        Self { socket, peer, reading: ReadBy::Trains, streak: 0, unseen: 0, is_busy: false }
    }

    pub(super) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) const fn dropped(&self) -> u32 {
        self.socket.dropped()
    }

    /// Receives messages into these buffers, as far as there are any; one at least, or an error.
    #[inline]
    pub(super) fn receive<'a>(
        &mut self,
        mut room: impl Iterator<Item = RxRoom<'a>>,
    ) -> io::Result<ArrayVec<RxMessage, MESSAGES>> {
        if self.reading == ReadBy::Packets && self.unseen < UNSEEN {
            let received = room.next().map_or(Ok(0), |room| self.socket.receive_packet(room.together()));
            self.note_packet(received.is_ok());
            let len = received?;
            let message = RxMessage { from: self.peer, len, segment: len, spread: 0, traffic_class: 0 };
            return Ok(std::iter::once(message).collect());
        }
        let received = self.socket.receive(room);
        match &received {
            Ok(messages) => self.note_messages(messages),
            Err(_) => self.is_busy = false,
        }
        received
    }

    /// Notes a look for one packet, and whether it came.
    #[inline]
    fn note_packet(&mut self, came: bool) {
        self.streak = if came && self.is_busy { self.streak + 1 } else { 0 };
        self.unseen += u32::from(came);
        self.is_busy = came;
        if self.streak == STREAM {
            self.read_trains();
        }
    }

    /// Notes what a look for trains has found.
    fn note_messages(&mut self, messages: &[RxMessage]) {
        let is_packet = |message: &RxMessage| message.segment >= message.len && message.traffic_class == 0;
        let is_alone = !self.is_busy && messages.len() == 1 && messages.iter().all(is_packet);
        (self.is_busy, self.unseen) = (true, 0);
        match self.reading {
            ReadBy::Packets if messages.iter().all(is_packet) => {}
            ReadBy::Packets => self.read_trains(),
            ReadBy::Trains => {
                self.streak = if is_alone { self.streak + 1 } else { self.streak.saturating_sub(NOT_ALONE) };
                if self.streak == ALONE {
                    self.read_packets();
                }
            }
        }
    }

    /// Has the kernel gather no more trains. Those that wait would be read as one packet: where something waits, it goes on as before.
    #[cold]
    fn read_packets(&mut self) {
        self.streak = 0;
        self.reading = ReadBy::Packets;
        if self.socket.set_gro(false).is_err() || self.socket.has_message() {
            self.read_trains();
        }
    }

    #[cold]
    fn read_trains(&mut self) {
        self.streak = 0;
        // Without trains it is still right, if not as quick.
        let _ = self.socket.set_gro(true);
        self.reading = ReadBy::Trains;
    }
}
