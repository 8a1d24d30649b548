//! Why the board does not do what a rank asks of it. The texts are what the rank receives.

use thiserror::Error;

use crate::{MAIL_TEXT_LIMIT, Rank};

/// A word that names no rank of the job.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("'{word}' is not a rank below {size}")]
pub(crate) struct NoSuchRank {
    pub(crate) word: String,
    /// How many ranks there are.
    pub(crate) size: usize,
}

/// Why a mail was refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum MailRefusal {
    #[error("who writes says hello first")]
    Stranger,
    #[error("mail is a rank and a text")]
    NotMail,
    #[error(transparent)]
    NoSuchRank(#[from] NoSuchRank),
    #[error("a text of {0} bytes is longer than {MAIL_TEXT_LIMIT}")]
    TooLong(usize),
    #[error("a text is one line")]
    SeveralLines,
    /// Its rank has ended.
    #[error("it has gone")]
    Gone,
    /// As much waits for its rank as may.
    #[error("it does not read its mail, and no more can wait")]
    Unread,
    /// The same, of a rank that has not said hello.
    #[error("it has not come yet, and no more can wait")]
    NotCome,
}

impl MailRefusal {
    /// Whether a text can be one line of mail.
    pub(crate) fn check(text: &str) -> Result<(), Self> {
        match text {
            text if text.len() > MAIL_TEXT_LIMIT => Err(Self::TooLong(text.len())),
            text if text.contains('\n') => Err(Self::SeveralLines),
            _ => Ok(()),
        }
    }
}

/// Why a request other than mail was refused.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum RequestRefusal {
    #[error("'{0}' is not a request")]
    Unknown(String),
    #[error("hello was said before")]
    SecondHello,
    #[error(transparent)]
    NoSuchRank(#[from] NoSuchRank),
    #[error("rank {0} is here already")]
    Taken(Rank),
    /// The job is over, and its board with it.
    #[error("the board is closed")]
    Closed,
    #[error("the board is full")]
    Full,
    #[error("'{0}' was left before")]
    LeftBefore(String),
    /// What it waits for does not come: the reason that the launcher has given.
    #[error("{0}")]
    InVain(String),
}

impl RequestRefusal {
    /// The answer to a rank that asks whether there is a reason to give up.
    pub(crate) fn where_in_vain(reason: Option<String>) -> Result<String, Self> {
        reason.map_or(Ok(String::new()), |reason| Err(Self::InVain(reason)))
    }
}
