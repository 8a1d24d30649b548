//! One end of a stream.

use roci_driver::{MemoryRegion, QueuePair, SendWr};
use roci_protocol::Rkey;

use super::wire::{Hello, RemoteSegment, RsocketMessage};
use crate::LabError;
use crate::lab::{GuestPair, Lab};
use crate::scenarios::connected::expect;

const HALF: usize = 32 << 10;
const SLOTS: usize = 2;
/// So few that they run out before a half does, now and then.
const RECEIVES: u16 = 16;
/// Messages on their way that are not data, on either side.
const ANNOUNCEMENTS: usize = 4;
/// Messages of ours, of data: so long, and so many on their way.
const MESSAGE: usize = 3000;
const WINDOW: usize = 8;

/// The names of work requests.
const RECEIVE: u64 = 1;
const DATA: u64 = 2;
const ANNOUNCEMENT: u64 = 3;

/// The memory that the guest writes into.
pub(super) struct RsocketMemory {
    inbox: MemoryRegion,
    slots: MemoryRegion,
}

impl RsocketMemory {
    pub(super) fn new(lab: &mut Lab) -> Result<Self, LabError> {
        Ok(Self { inbox: lab.region(&vec![0; 2 * HALF])?, slots: lab.region(&[0; SLOTS * RemoteSegment::LEN])? })
    }

    pub(super) fn hello(&self) -> Hello {
        let slots = RemoteSegment { addr: 0, key: self.slots.rkey(), len: SLOTS as u32 };
        Hello { receives: RECEIVES, slots, half: self.half(0) }
    }

    fn half(&self, which: usize) -> RemoteSegment {
        RemoteSegment { addr: (which * HALF) as u64, key: self.inbox.rkey(), len: HALF as u32 }
    }
}

/// Where the guest writes to next.
struct RsocketInbox {
    /// Where its next bytes lie.
    at: usize,
    /// Free bytes that were not announced to the guest yet.
    free: usize,
    /// The half that is announced next.
    next_half: usize,
}

impl RsocketInbox {
    fn take(&mut self, len: usize) {
        self.at = (self.at + len) % (2 * HALF);
        self.free += len;
    }

    /// The half to announce, which is no longer free then.
    fn announce(&mut self) -> usize {
        let half = self.next_half;
        self.free -= HALF;
        self.next_half = 1 - half;
        half
    }
}

/// The guest's slots for our announcements.
struct GuestSlots {
    slots: RemoteSegment,
    next: u32,
}

impl GuestSlots {
    /// The address of the next slot, which is used up then.
    fn take(&mut self) -> u64 {
        let addr = self.slots.addr + u64::from(self.next) * RemoteSegment::LEN as u64;
        self.next = (self.next + 1) % self.slots.len;
        addr
    }
}

/// What the guest may send.
struct AnnouncedReceives {
    /// Messages of data that have come, by now and at the last announcement of receives.
    came: u16,
    came_at_announcement: u16,
    /// Announcements on their way.
    in_flight: usize,
}

impl AnnouncedReceives {
    fn are_due(&self) -> bool {
        self.came.wrapping_sub(self.came_at_announcement) >= RECEIVES / 2
    }

    fn announce(&mut self) {
        self.came_at_announcement = self.came;
        self.in_flight += 1;
    }
}

/// What we send.
struct OutgoingData {
    /// Our slot that says where the next bytes go.
    slot: usize,
    /// Messages of data that have left, and may leave.
    left: u16,
    may_leave: u16,
    in_flight: usize,
}

impl OutgoingData {
    fn must_wait(&self) -> bool {
        self.left == self.may_leave || self.in_flight == WINDOW
    }

    /// A message leaves; where it fills its target, the next slot is due.
    fn leave(&mut self, is_full: bool) {
        if is_full {
            self.slot = (self.slot + 1) % SLOTS;
        }
        self.left = self.left.wrapping_add(1);
        self.in_flight += 1;
    }
}

/// Our end of an rsocket.
pub(super) struct RsocketStream {
    qp: QueuePair,
    memory: RsocketMemory,
    received: Vec<u8>,
    is_over: bool,
    inbox: RsocketInbox,
    their_slots: GuestSlots,
    receives: AnnouncedReceives,
    data: OutgoingData,
}

impl RsocketStream {
    /// Makes an end, which has announced no receives to the guest yet.
    pub(super) fn new(lab: &mut Lab, qp: QueuePair, memory: RsocketMemory, theirs: &Hello) -> Result<Self, LabError> {
        let stream = Self {
            qp,
            memory,
            received: Vec::new(),
            is_over: false,
            inbox: RsocketInbox { at: 0, free: HALF, next_half: 1 },
            their_slots: GuestSlots { slots: theirs.slots, next: 1 },
            receives: AnnouncedReceives { came: 0, came_at_announcement: 0, in_flight: 0 },
            data: OutgoingData { slot: 0, left: 0, may_leave: theirs.receives, in_flight: 0 },
        };
        stream.fill_slot(lab, theirs.half)?;
        for _ in 0..usize::from(RECEIVES) + ANNOUNCEMENTS {
            lab.post_recv(stream.pair(), RECEIVE, 0)?;
        }
        Ok(stream)
    }

    pub(super) fn say(&mut self, lab: &mut Lab, mut bytes: &[u8]) -> Result<(), LabError> {
        while !bytes.is_empty() {
            let target = self.target(lab)?;
            if target.len == 0 || self.data.must_wait() {
                self.progress(lab)?;
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(MESSAGE).min(target.len as usize));
            self.send(lab, target, now)?;
            bytes = later;
        }
        Ok(())
    }

    /// Exactly so many bytes, for the guest must then wait for ours.
    pub(super) fn hear(&mut self, lab: &mut Lab, len: usize) -> Result<Vec<u8>, LabError> {
        while self.received.len() < len {
            self.progress(lab)?;
        }
        expect("what has come", self.received.len(), len)?;
        Ok(std::mem::take(&mut self.received))
    }

    /// Nothing else may come.
    pub(super) fn hear_the_end(&mut self, lab: &mut Lab) -> Result<(), LabError> {
        while !self.is_over {
            self.progress(lab)?;
        }
        expect("what has come", self.received.len(), 0)
    }

    pub(super) fn close(self, lab: &mut Lab) {
        lab.engine.destroy_qp(self.qp);
        for region in [self.memory.inbox, self.memory.slots] {
            lab.engine.deregister(region);
        }
    }

    fn pair(&self) -> GuestPair {
        GuestPair { qp: self.qp, theirs: 0 }
    }

    /// The rest of the guest's half that is being filled.
    fn target(&self, lab: &Lab) -> Result<RemoteSegment, LabError> {
        let mut bytes = [0; RemoteSegment::LEN];
        let place = self.data.slot * RemoteSegment::LEN;
        lab.engine.read_region(lab.pd, self.memory.slots, place, &mut bytes).ok_or("outside of the slots")?;
        Ok(RemoteSegment::read(bytes))
    }

    fn fill_slot(&self, lab: &mut Lab, part: RemoteSegment) -> Result<(), LabError> {
        let place = self.data.slot * RemoteSegment::LEN;
        lab.engine.write_region(lab.pd, self.memory.slots, place, &part.written()).ok_or("outside of the slots")?;
        Ok(())
    }

    /// Writes to the guest's inbox. Our slot changes first: as soon as it is used up, the guest may fill it again.
    fn send(&mut self, lab: &mut Lab, target: RemoteSegment, bytes: &[u8]) -> Result<(), LabError> {
        let rest =
            RemoteSegment { addr: target.addr + bytes.len() as u64, len: target.len - bytes.len() as u32, ..target };
        self.fill_slot(lab, rest)?;
        self.data.leave(rest.len == 0);
        let wr = SendWr::write(DATA, lab.buffer(bytes)?, target.key, target.addr);
        lab.post(self.pair(), wr.with_imm(RsocketMessage::Data(bytes.len()).written()))
    }

    /// Handles what happens next, and announces to the guest what has become free.
    fn progress(&mut self, lab: &mut Lab) -> Result<(), LabError> {
        let done = lab.wait_ok()?;
        match done.wr_id {
            DATA => self.data.in_flight -= 1,
            ANNOUNCEMENT => self.receives.in_flight -= 1,
            _ => {
                lab.post_recv(self.pair(), RECEIVE, 0)?;
                self.on_message(lab, RsocketMessage::read(done.imm.ok_or("a message without immediate data")?)?)?;
            }
        }
        if self.receives.in_flight < ANNOUNCEMENTS { self.announce(lab) } else { Ok(()) }
    }

    fn on_message(&mut self, lab: &mut Lab, message: RsocketMessage) -> Result<(), LabError> {
        match message {
            RsocketMessage::Data(len) => self.take(lab, len)?,
            RsocketMessage::Receives(count) => self.data.may_leave = count,
            RsocketMessage::End => self.is_over = true,
        }
        Ok(())
    }

    fn take(&mut self, lab: &Lab, len: usize) -> Result<(), LabError> {
        let mut bytes = vec![0; len];
        lab.engine.read_region(lab.pd, self.memory.inbox, self.inbox.at, &mut bytes).ok_or("beyond a half's end")?;
        self.received.extend(bytes);
        self.inbox.take(len);
        self.receives.came = self.receives.came.wrapping_add(1);
        Ok(())
    }

    /// Announces a free half and receives, or receives alone, where one of them is due.
    fn announce(&mut self, lab: &mut Lab) -> Result<(), LabError> {
        if self.inbox.free >= HALF {
            let half = self.memory.half(self.inbox.announce());
            let slot = self.their_slots.take();
            self.post_announcement(lab, &half.written(), self.their_slots.slots.key, slot)
        } else if self.receives.are_due() {
            self.post_announcement(lab, &[], Rkey(0), 0)
        } else {
            Ok(())
        }
    }

    fn post_announcement(&mut self, lab: &mut Lab, bytes: &[u8], key: Rkey, addr: u64) -> Result<(), LabError> {
        self.receives.announce();
        let wr = SendWr::write(ANNOUNCEMENT, lab.buffer(bytes)?, key, addr);
        lab.post(
            self.pair(),
            wr.with_imm(RsocketMessage::Receives(self.receives.came.wrapping_add(RECEIVES)).written()),
        )
    }
}
