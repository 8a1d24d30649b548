//! Mail inside one process: for tests and simulations, without a launcher.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::Rank;
use crate::refusal::{MailRefusal, NoSuchRank};
use crate::{JobError, MAIL_LIMIT, Mail};

/// One rank of a group that shares a process. Once dropped it is gone: the others' mail to it is refused.
pub struct LocalMail {
    rank: Rank,
    post: Arc<Mutex<Post>>,
}

/// What the group shares.
struct Post {
    /// `None` where the rank has gone.
    boxes: Vec<Option<LocalBox>>,
    delay: Option<MailDelay>,
}

/// Delays each mail by a random number of polls.
struct MailDelay {
    dice: StdRng,
    most_polls: u64,
}

#[derive(Default)]
struct LocalBox {
    letters: VecDeque<PendingMail>,
    /// How often its rank has looked.
    polls: u64,
}

/// A mail that its rank has not taken yet.
struct PendingMail {
    from: Rank,
    text: String,
    /// Its rank must have looked so often before it finds this.
    visible_after: u64,
}

impl LocalMail {
    /// Ranks whose mail is there at once.
    pub fn group(size: usize) -> Vec<Self> {
        Self::group_with(size, None)
    }

    /// Ranks whose mail is found only after the receiver has polled in vain up to `most_polls` times, as the seed has
    /// it. Mails of different senders may overtake each other; those of one sender never do.
    pub fn delayed_group(size: usize, seed: u64, most_polls: u64) -> Vec<Self> {
        Self::group_with(size, Some(MailDelay { dice: StdRng::seed_from_u64(seed), most_polls }))
    }

    fn group_with(size: usize, delay: Option<MailDelay>) -> Vec<Self> {
        let boxes = (0..size).map(|_| Some(LocalBox::default())).collect();
        let post = Arc::new(Mutex::new(Post { boxes, delay }));
        (0..size).map(|rank| Self { rank, post: post.clone() }).collect()
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    fn post(&self) -> MutexGuard<'_, Post> {
        self.post.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mail for LocalMail {
    fn send(&mut self, to: Rank, text: &str) -> Result<(), JobError> {
        let posted = self.post().send(self.rank, to, text);
        posted.map_err(|refusal| JobError::Unmailed { to, reason: refusal.to_string() })
    }

    fn poll(&mut self) -> Result<Option<(Rank, String)>, JobError> {
        let mut post = self.post();
        Ok(post.boxes[self.rank].as_mut().and_then(LocalBox::poll))
    }
}

impl Post {
    fn send(&mut self, from: Rank, to: Rank, text: &str) -> Result<(), MailRefusal> {
        MailRefusal::check(text)?;
        let size = self.boxes.len();
        let place = self.boxes.get_mut(to).ok_or_else(|| NoSuchRank { word: to.to_string(), size })?;
        let place = place.as_mut().ok_or(MailRefusal::Gone)?;
        if place.letters.len() == MAIL_LIMIT {
            return Err(MailRefusal::Unread);
        }
        let delay = self.delay.as_mut().map_or(0, |delay| delay.dice.random_range(0..=delay.most_polls));
        let previous = place.letters.iter().rev().find(|letter| letter.from == from);
        let earliest = previous.map_or(0, |letter| letter.visible_after);
        let visible_after = (place.polls + delay).max(earliest);
        place.letters.push_back(PendingMail { from, text: text.into(), visible_after });
        Ok(())
    }
}

impl LocalBox {
    fn poll(&mut self) -> Option<(Rank, String)> {
        let polls = self.polls;
        self.polls += 1;
        let at = self.letters.iter().position(|letter| letter.visible_after <= polls)?;
        self.letters.remove(at).map(|letter| (letter.from, letter.text))
    }
}

impl Drop for LocalMail {
    fn drop(&mut self) {
        self.post().boxes[self.rank] = None;
    }
}

impl fmt::Debug for LocalMail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalMail").field("rank", &self.rank).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_arrives_at_its_rank_and_nowhere_else() {
        let mut ranks = LocalMail::group(3);
        ranks[0].send(2, "to two").expect("room");
        ranks[1].send(1, "to myself").expect("room");
        assert_eq!(ranks[0].poll().expect("always"), None);
        assert_eq!(ranks[1].poll().expect("always"), Some((1, "to myself".into())));
        assert_eq!(ranks[2].poll().expect("always"), Some((0, "to two".into())));
        assert_eq!(ranks[2].poll().expect("always"), None);
    }

    #[test]
    fn delayed_mail_keeps_the_order_of_each_sender_and_repeats_by_its_seed() {
        let run = |seed| {
            let mut ranks = LocalMail::delayed_group(3, seed, 5);
            let mut found = Vec::new();
            for number in 0..50 {
                ranks[0].send(2, &number.to_string()).expect("room");
                ranks[1].send(2, &number.to_string()).expect("room");
                found.push(ranks[2].poll().expect("always"));
            }
            // Nothing is later than the limit, so 5 + 100 polls find the rest.
            found.extend((0..105).map(|_| ranks[2].poll().expect("always")));
            found
        };
        let found = run(1);
        for sender in 0..2 {
            let texts = found.iter().flatten().filter(|(from, _)| *from == sender).map(|(_, text)| text.clone());
            assert!(texts.eq((0..50).map(|number| number.to_string())));
        }
        assert!(found[..10].iter().any(Option::is_none), "some of it was under way");
        assert_eq!(found, run(1));
        assert_ne!(found, run(2));
    }

    #[test]
    fn what_cannot_arrive_is_refused() {
        let mut ranks = LocalMail::group(2);
        drop(ranks.pop());
        let long = "x".repeat(super::super::MAIL_TEXT_LIMIT + 1);
        for (to, text, complaint) in [
            (1, "x", "no mail to rank 1: it has gone"),
            (2, "x", "not a rank below 2"),
            (0, "two\nlines", "one line"),
            (0, &long, "longer"),
        ] {
            let error = ranks[0].send(to, text).expect_err("refused").to_string();
            assert!(error.contains(complaint), "{error}");
        }
        assert_eq!(ranks[0].poll().expect("always"), None);
    }

    #[test]
    fn a_rank_that_does_not_poll_meets_the_limit_and_loses_nothing() {
        let mut ranks = LocalMail::group(2);
        for number in 0..MAIL_LIMIT {
            ranks[0].send(1, &number.to_string()).expect("room");
        }
        assert!(matches!(ranks[0].send(1, "x"), Err(JobError::Unmailed { to: 1, .. })));
        for number in 0..MAIL_LIMIT {
            assert_eq!(ranks[1].poll().expect("always"), Some((0, number.to_string())));
        }
        ranks[0].send(1, "x").expect("room again");
    }
}
