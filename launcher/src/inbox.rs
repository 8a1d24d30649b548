//! What the launcher says to a rank, sorted: answers, answers to mail, and mail.

use std::collections::VecDeque;

use crate::Rank;
use crate::{JobError, LINE_LIMIT, MAIL_LIMIT};

/// Bytes as they come, and what has been made of them.
pub(super) struct Inbox {
    /// How many ranks may write.
    size: usize,
    partial: Vec<u8>,
    mails: VecDeque<(Rank, String)>,
    /// Of each rank at most two: that it has left, and how its process ended.
    departures: VecDeque<Departure>,
    answers: AnswerSlot,
    verdicts: AnswerSlot,
    /// Somebody wants a report.
    is_report_wanted: bool,
}

/// A rank has gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Departure {
    /// Which one.
    pub rank: Rank,
    /// What is known of its end.
    pub why: String,
    /// It failed.
    pub is_ill: bool,
}

/// The answers to one kind of request: the one that has come, and how many the caller has abandoned.
#[derive(Default)]
struct AnswerSlot {
    /// Of the one request that may be under way.
    next: Option<String>,
    /// So many are still to come for callers that have given up.
    abandoned: usize,
}

impl Inbox {
    /// What a rank among `size` hears.
    pub(super) fn new(size: usize) -> Self {
        Self {
            size,
            partial: Vec::new(),
            mails: VecDeque::new(),
            departures: VecDeque::new(),
            answers: AnswerSlot::default(),
            verdicts: AnswerSlot::default(),
            is_report_wanted: false,
        }
    }

    /// The oldest mail.
    pub(super) fn take_mail(&mut self) -> Option<(Rank, String)> {
        self.mails.pop_front()
    }

    /// The next rank that has gone.
    pub(super) fn take_departure(&mut self) -> Option<Departure> {
        self.departures.pop_front()
    }

    /// Whether a report was asked for.
    pub(super) fn take_report_wish(&mut self) -> bool {
        std::mem::take(&mut self.is_report_wanted)
    }

    /// The answer to a request other than mail.
    pub(super) fn take_answer(&mut self) -> Option<String> {
        self.answers.next.take()
    }

    /// What became of a mail, or who is absent: what is answered at once.
    pub(super) fn take_verdict(&mut self) -> Option<String> {
        self.verdicts.next.take()
    }

    /// Marks an answer that is still to come as abandoned: the next request must not take it for its own.
    pub(super) fn abandon_answer(&mut self) {
        self.answers.abandoned += 1;
    }

    /// The same of what becomes of a mail.
    pub(super) fn abandon_verdict(&mut self) {
        self.verdicts.abandoned += 1;
    }

    /// Adds what has been read; then [`Inbox::sort`].
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
    }

    /// Sorts whole lines. Mail that finds no room stays where it is, and what came behind it: nothing is lost, and
    /// nothing more is to be read until there is room.
    pub(super) fn sort(&mut self) -> Result<(), JobError> {
        let mut done = 0;
        let mut outcome = Ok(());
        while let Some(len) = self.partial[done..].iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&self.partial[done..done + len]).into_owned();
            let mail = line.strip_prefix("mail ");
            if mail.is_some() && self.mails.len() == MAIL_LIMIT {
                outcome = Err(JobError::MailOverflow(MAIL_LIMIT));
                break;
            }
            done += len + 1;
            outcome = self.sort_line(&line);
            if outcome.is_err() {
                break;
            }
        }
        self.partial.drain(..done);
        if outcome.is_ok() && self.partial.len() as u64 > 2 * LINE_LIMIT {
            return Err(JobError::Failed("the launcher's answer has no end".into()));
        }
        outcome
    }

    fn sort_line(&mut self, line: &str) -> Result<(), JobError> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let is_right = match (verb, rest.split_once(' ')) {
            ("mail", Some((from, text))) => {
                let from = from.parse().ok().filter(|&from| from < self.size);
                self.mails.extend(from.map(|from| (from, text.to_owned())));
                from.is_some()
            }
            ("mail" | "gone" | "failed", None) => false,
            ("gone" | "failed", Some((rank, why))) => {
                let rank = rank.parse().ok().filter(|&rank| rank < self.size && self.departures.len() < 2 * self.size);
                let is_ill = verb == "failed";
                self.departures.extend(rank.map(|rank| Departure { rank, why: why.to_owned(), is_ill }));
                rank.is_some()
            }
            ("report", None) if rest.is_empty() => {
                self.is_report_wanted = true;
                true
            }
            ("mailed" | "unmailed" | "absent", _) => self.verdicts.add(line),
            _ => self.answers.add(line),
        };
        if is_right { Ok(()) } else { Err(JobError::Failed(format!("the launcher said '{line}'"))) }
    }
}

impl AnswerSlot {
    /// Whether anybody may have asked for it.
    fn add(&mut self, line: &str) -> bool {
        if self.abandoned > 0 {
            self.abandoned -= 1;
            return true;
        }
        self.next.replace(line.into()).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(text: &str) -> Inbox {
        let mut inbox = Inbox::new(4);
        inbox.extend(text.as_bytes());
        inbox
    }

    #[test]
    fn lines_are_sorted_however_they_are_cut() {
        let text = "mail 3 two words\nok \nmail 0 \nunmailed why not\n";
        for cut in 0..text.len() {
            let mut inbox = inbox(&text[..cut]);
            inbox.sort().expect("room");
            inbox.extend(&text.as_bytes()[cut..]);
            inbox.sort().expect("room");
            assert_eq!(inbox.take_mail(), Some((3, "two words".into())));
            assert_eq!(inbox.take_mail(), Some((0, String::new())));
            assert_eq!(inbox.take_mail(), None);
            assert_eq!(inbox.take_answer().as_deref(), Some("ok "));
            assert_eq!(inbox.take_verdict().as_deref(), Some("unmailed why not"));
        }
    }

    #[test]
    fn mail_without_room_waits_and_so_does_what_follows() {
        let mut inbox = inbox(&format!("{}ok late\n", "mail 1 x\n".repeat(MAIL_LIMIT + 1)));
        for _ in 0..2 {
            assert!(matches!(inbox.sort(), Err(JobError::MailOverflow(MAIL_LIMIT))));
            assert_eq!(inbox.take_answer(), None);
        }
        assert!(inbox.take_mail().is_some());
        inbox.sort().expect("one was taken");
        assert_eq!(inbox.take_answer().as_deref(), Some("ok late"));
        assert_eq!(std::iter::from_fn(|| inbox.take_mail()).count(), MAIL_LIMIT);
    }

    #[test]
    fn an_abandoned_answer_is_not_the_answer_to_the_next_request() {
        let mut inbox = inbox("ok stale\nmailed\nok fresh\nunmailed full\n");
        inbox.abandon_answer();
        inbox.abandon_verdict();
        inbox.sort().expect("all asked for");
        assert_eq!(inbox.take_answer().as_deref(), Some("ok fresh"));
        assert_eq!(inbox.take_verdict().as_deref(), Some("unmailed full"));
    }

    #[test]
    fn a_launcher_that_talks_nonsense_is_an_error() {
        for text in [
            "mail\n",
            "gone 4 x\n",
            "failed\n",
            "failed x y\n",
            "mail x y\n",
            "mail 4 y\n",
            "mail -1 y\n",
            "mail 1\n",
            "ok 1\nok 2\n",
            "mailed\nmailed\n",
        ] {
            assert!(matches!(inbox(text).sort(), Err(JobError::Failed(_))), "{text:?}");
        }
        let endless = "x".repeat(2 * LINE_LIMIT as usize + 1);
        assert!(matches!(inbox(&endless).sort(), Err(JobError::Failed(_))));
    }
}
