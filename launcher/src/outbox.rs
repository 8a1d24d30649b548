//! What the board has to say to one session, and the thread that says it.
//!
//! Others' mail and a session's own answers share its connection. A rank that does not read must not hold up those
//! who write to it, so they only queue: a thread of the session's own waits for its socket.
//!
//! What a rank has not read fills the buffer at its end in the long run. As long as there is certainly room, bytes that are not
//! acknowledged mean that its host is gone.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::MAIL_LIMIT;
use crate::refusal::MailRefusal;

/// Answers that wait for a session that asks and does not read; then its next request is not read either.
const ANSWER_LIMIT: usize = 64;
/// What a line takes of a buffer at the other end beside its bytes, and how much is certainly there.
const LINE_COST: usize = 1 << 10;
const BUFFER: usize = 32 << 10;

/// Lines for one session, in the order they leave.
#[derive(Default)]
pub(super) struct Outbox {
    queue: Mutex<OutboxState>,
    changed: Condvar,
}

/// The queued lines.
#[derive(Default)]
struct OutboxState {
    lines: VecDeque<QueuedLine>,
    mails: usize,
    is_closed: bool,
    /// What was written between the last two requests, and since. Who asks has read the answer to the request before that, and
    /// all that was written before.
    before: usize,
    since: usize,
}

/// A line for the rank: an answer to its request, or a mail.
enum QueuedLine {
    Answer(String),
    Mail(String),
}

impl Outbox {
    /// Queues an answer. Who asks keeps the limit, by [`Outbox::wait_for_room`] before it takes a request.
    pub(super) fn answer(&self, line: String) {
        self.lock().lines.push_back(QueuedLine::Answer(line));
        self.changed.notify_all();
    }

    /// Queues mail, or says why not.
    pub(super) fn mail(&self, line: String) -> Result<(), MailRefusal> {
        let mut queue = self.lock();
        if queue.is_closed {
            return Err(MailRefusal::Gone);
        }
        if queue.mails >= MAIL_LIMIT {
            return Err(MailRefusal::Unread);
        }
        queue.mails += 1;
        queue.lines.push_back(QueuedLine::Mail(line));
        self.changed.notify_all();
        Ok(())
    }

    /// Queues a notice that every rank receives without a request. A line that is queued already is not queued again. So
    /// this needs no limit: there is one line for each rank, and one for all ranks.
    pub(super) fn tell(&self, line: String) {
        let mut queue = self.lock();
        if queue.lines.iter().any(|waiting| matches!(waiting, QueuedLine::Mail(mail) if *mail == line)) {
            return;
        }
        queue.mails += 1;
        queue.lines.push_back(QueuedLine::Mail(line));
        self.changed.notify_all();
    }

    /// Waits until the queue has room for an answer; returns `false` if the connection has ended.
    pub(super) fn wait_for_room(&self) -> bool {
        let is_full = |queue: &mut OutboxState| !queue.is_closed && queue.lines.len() - queue.mails >= ANSWER_LIMIT;
        let queue = self.changed.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner);
        !queue.is_closed
    }

    /// The rank has asked for something.
    pub(super) fn note_request(&self) {
        let mut queue = self.lock();
        queue.before = std::mem::take(&mut queue.since);
    }

    /// Nothing more will be queued. What waits is still written.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Whether the session has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Writes line after line until the outbox is closed and empty, or the reader has gone. Says before a line whether there is room
    /// for it at the other end, where that has changed; at first there is not.
    pub(super) fn write_to(&self, mut writer: impl Write, mut say: impl FnMut(bool)) {
        let mut had_room = false;
        while let Some((mut line, has_room)) = self.next() {
            line.push('\n');
            if has_room != had_room {
                say(has_room);
                had_room = has_room;
            }
            if writer.write_all(line.as_bytes()).is_err() {
                self.abandon();
            }
        }
    }

    /// The next line, and whether there is room for it.
    fn next(&self) -> Option<(String, bool)> {
        let is_idle = |queue: &mut OutboxState| queue.lines.is_empty() && !queue.is_closed;
        let mut queue = self.changed.wait_while(self.lock(), is_idle).unwrap_or_else(PoisonError::into_inner);
        let line = match queue.lines.pop_front()? {
            QueuedLine::Answer(line) => line,
            QueuedLine::Mail(line) => {
                queue.mails -= 1;
                line
            }
        };
        queue.since += line.len() + LINE_COST;
        self.changed.notify_all();
        Some((line, queue.before + queue.since <= BUFFER))
    }

    /// Closes the queue and drops its lines: the connection has ended.
    fn abandon(&self) {
        *self.lock() = OutboxState { is_closed: true, ..OutboxState::default() };
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A reader that goes away after so many lines.
    struct Leaver(usize);

    impl Write for Leaver {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_leave_in_order_and_a_closed_outbox_is_still_emptied() {
        let outbox = Outbox::default();
        outbox.answer("ok 1".into());
        outbox.mail("mail 0 a".into()).expect("room");
        outbox.answer("ok 2".into());
        outbox.close();
        assert_eq!(outbox.mail("mail 0 b".into()), Err(MailRefusal::Gone));
        let mut written = Vec::new();
        outbox.write_to(&mut written, |_| {});
        assert_eq!(written, b"ok 1\nmail 0 a\nok 2\n");
    }

    #[test]
    fn mail_has_a_limit_and_answers_do_not_count_towards_it() {
        let outbox = Outbox::default();
        for _ in 0..MAIL_LIMIT {
            outbox.answer("ok".into());
            outbox.mail("mail 0 a".into()).expect("room");
        }
        assert!(outbox.mail("mail 0 a".into()).is_err());
        while outbox.next().expect("mail is there").0 != "mail 0 a" {}
        outbox.mail("mail 0 a".into()).expect("one has left");
    }

    #[test]
    fn there_is_room_until_much_was_written_since_the_rank_last_asked_but_one() {
        let outbox = Outbox::default();
        let had_room = |lines| {
            let write = |_| {
                outbox.answer("ok".into());
                outbox.next().expect("a line").1
            };
            (0..lines).map(write).filter(|&has_room| has_room).count()
        };
        assert_eq!(had_room(40), 31);
        outbox.note_request();
        assert_eq!(had_room(1), 0, "it may have read none of these");
        outbox.note_request();
        assert_eq!(had_room(40), 30);
        outbox.note_request();
        outbox.note_request();
        assert_eq!(had_room(40), 31);
    }

    #[test]
    fn the_writer_learns_when_there_is_room_and_when_not() {
        let outbox = Outbox::default();
        (0..40).for_each(|_| outbox.answer("ok".into()));
        outbox.close();
        let mut said = Vec::new();
        outbox.write_to(io::sink(), |has_room| said.push(has_room));
        assert_eq!(said, [true, false]);
    }

    #[test]
    fn a_reader_that_goes_away_closes_the_outbox() {
        let outbox = Outbox::default();
        (0..3).for_each(|_| outbox.answer("ok".into()));
        outbox.write_to(Leaver(1), |_| {});
        assert!(outbox.is_closed());
        assert!(!outbox.wait_for_room());
    }
}
