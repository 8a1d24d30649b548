//! Where the board keeps each rank's mail: with the session that is the rank, or until there is one.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::MAIL_LIMIT;
use crate::Rank;
use crate::outbox::Outbox;
use crate::refusal::{MailRefusal, NoSuchRank};

/// One box a rank.
pub(super) struct Mailboxes(Vec<Mailbox>);

enum Mailbox {
    /// Its rank has not said hello: lines wait.
    Unclaimed(VecDeque<String>),
    /// Its rank's session.
    Claimed(Arc<Outbox>),
}

impl Mailboxes {
    /// Boxes for `size` ranks.
    pub(super) fn new(size: usize) -> Self {
        Self((0..size).map(|_| Mailbox::Unclaimed(VecDeque::new())).collect())
    }

    /// The rank that a word names, if it is one.
    pub(super) fn rank(&self, word: &str) -> Result<Rank, NoSuchRank> {
        let rank = word.parse().ok().filter(|&rank| rank < self.0.len());
        rank.ok_or_else(|| NoSuchRank { word: word.into(), size: self.0.len() })
    }

    /// Whether a session that still lives is this rank.
    pub(super) fn is_taken(&self, rank: Rank) -> bool {
        matches!(&self.0[rank], Mailbox::Claimed(outbox) if !outbox.is_closed())
    }

    /// Whether a session is this rank.
    pub(super) fn is_of(&self, rank: Rank, session: &Arc<Outbox>) -> bool {
        matches!(&self.0[rank], Mailbox::Claimed(outbox) if Arc::ptr_eq(outbox, session))
    }

    /// Gives the box to a session, and what waits in it.
    pub(super) fn claim(&mut self, rank: Rank, outbox: &Arc<Outbox>) {
        let claimed = Mailbox::Claimed(outbox.clone());
        if let Mailbox::Unclaimed(waiting) = std::mem::replace(&mut self.0[rank], claimed) {
            // A session that has just claimed its box has no other mail, so that all of it fits; if it has gone
            // already, its mail goes with it.
            for line in waiting {
                let _ = outbox.mail(line);
            }
        }
    }

    /// Sends a line to every session that is a rank.
    pub(super) fn tell_all(&self, line: &str) {
        self.tell_some(line, |_| true);
    }

    /// Sends a line to every session whose rank satisfies `is_one`.
    pub(super) fn tell_some(&self, line: &str, is_one: impl Fn(Rank) -> bool) {
        for (rank, mailbox) in self.0.iter().enumerate() {
            if let Mailbox::Claimed(outbox) = mailbox
                && !outbox.is_closed()
                && is_one(rank)
            {
                outbox.tell(line.to_owned());
            }
        }
    }

    /// Takes the mail `TO TEXT` of a session.
    pub(super) fn post(&mut self, from: Option<Rank>, mail: &str) -> Result<(), MailRefusal> {
        let from = from.ok_or(MailRefusal::Stranger)?;
        let (to, text) = mail.split_once(' ').ok_or(MailRefusal::NotMail)?;
        let to = self.rank(to)?;
        MailRefusal::check(text)?;
        let line = format!("mail {from} {text}");
        match &mut self.0[to] {
            Mailbox::Claimed(outbox) => outbox.mail(line),
            Mailbox::Unclaimed(waiting) if waiting.len() == MAIL_LIMIT => Err(MailRefusal::NotCome),
            Mailbox::Unclaimed(waiting) => {
                waiting.push_back(line);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(outbox: &Outbox) -> String {
        outbox.close();
        let mut bytes = Vec::new();
        outbox.write_to(&mut bytes, |_| {});
        String::from_utf8(bytes).expect("texts are UTF-8")
    }

    #[test]
    fn mail_waits_for_its_rank_and_follows_it_in_order() {
        let mut boxes = Mailboxes::new(2);
        boxes.post(Some(0), "1 first word").expect("room");
        let outbox = Arc::default();
        boxes.claim(1, &outbox);
        assert!(boxes.is_taken(1) && !boxes.is_taken(0));
        boxes.post(Some(0), "1 ").expect("room");
        assert_eq!(written(&outbox), "mail 0 first word\nmail 0 \n");
        assert!(!boxes.is_taken(1), "its session has ended");
        assert_eq!(boxes.post(Some(0), "1 late"), Err(MailRefusal::Gone));
    }

    #[test]
    fn a_mailbox_that_no_rank_has_claimed_has_a_limit_and_loses_nothing() {
        let mut boxes = Mailboxes::new(2);
        for number in 0..MAIL_LIMIT {
            boxes.post(Some(0), &format!("1 {number}")).expect("room");
        }
        assert_eq!(boxes.post(Some(0), "1 x"), Err(MailRefusal::NotCome));
        boxes.post(Some(1), "0 x").expect("a box of its own");
        let outbox = Arc::default();
        boxes.claim(1, &outbox);
        let lines: Vec<_> = (0..MAIL_LIMIT).map(|number| format!("mail 0 {number}")).collect();
        assert!(written(&outbox).lines().eq(lines));
    }

    #[test]
    fn what_is_no_mail_is_refused_with_a_reason() {
        let mut boxes = Mailboxes::new(2);
        let long = format!("1 {}", "x".repeat(super::super::MAIL_TEXT_LIMIT + 1));
        for (from, mail, complaint) in [
            (None, "1 x", "says hello first"),
            (Some(0), "", "a rank and a text"),
            (Some(0), "1", "a rank and a text"),
            (Some(0), "2 x", "'2' is not a rank below 2"),
            (Some(0), "-1 x", "'-1' is not a rank"),
            (Some(0), "99999999999999999999 x", "is not a rank"),
            (Some(0), " x", "'' is not a rank"),
            (Some(0), &long, "longer than"),
        ] {
            let refusal = boxes.post(from, mail).expect_err("no mail").to_string();
            assert!(refusal.contains(complaint), "{mail}: {refusal}");
        }
        let outbox = Arc::default();
        boxes.claim(1, &outbox);
        assert_eq!(written(&outbox), "");
    }
}
