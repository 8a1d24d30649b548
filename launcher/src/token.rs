//! The secret of a job.

use std::fmt;

use crate::{JobError, TOKEN};

/// The longest token, in bytes.
const LONGEST: usize = 128;

/// The secret that every rank of a job sends to its launcher, and that no other process knows. An empty token is no secret:
/// then any process that reaches the launcher may be a rank.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Token(String);

impl Token {
    /// A new token of 128 random bits.
    pub fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()))
    }

    /// The token in `ROCI_TOKEN`; empty where there is none.
    pub fn from_environment() -> Result<Self, JobError> {
        let problem = "is no token: at most 128 letters, digits and signs, without a blank";
        let token = Self::parse(&std::env::var(TOKEN).unwrap_or_default());
        token.ok_or_else(|| JobError::Variable { name: TOKEN, value: "..".into(), problem })
    }

    /// The token that a text is; `None` where it is too long, or has a blank or other signs.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_token = text.len() <= LONGEST && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_token.then(|| Self(text.into()))
    }

    /// The token as text, for the environment of a rank.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `word` is this token. Takes as long for a wrong word as for another one of its length.
    pub(super) fn is(&self, word: &str) -> bool {
        let differences = self.0.bytes().zip(word.bytes()).fold(0, |all, (ours, theirs)| all | (ours ^ theirs));
        self.0.len() == word.len() && differences == 0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "Token(none)" } else { "Token(..)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_itself_alone_and_is_not_printed() {
        let token = Token::random();
        assert!(token.is(token.as_str()) && token != Token::random());
        for other in ["", &token.as_str()[1..], &format!("{}0", token.as_str()), &"0".repeat(32)] {
            assert!(!token.is(other), "{other}");
        }
        assert!(Token::default().is("") && !Token::default().is("x"));
        assert_eq!(format!("{token:?} {:?}", Token::default()), "Token(..) Token(none)");
    }
}
