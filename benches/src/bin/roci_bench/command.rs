//! The commands of a cell: what is run, where, and what is shown of it.

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The one that starts and prints.
    Client,
    /// The one that answers.
    Server,
    /// A command that starts both ends itself, each on a processor of its own.
    Both,
}

/// One command with its arguments and environment, and the side that runs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CommandLine {
    pub(crate) side: Side,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) words: Vec<String>,
}

impl CommandLine {
    pub(crate) fn new(side: Side, words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { side, environment: Vec::new(), words: words.into_iter().map(Into::into).collect() }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Words without a space stand for themselves.
    pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split_whitespace()
    }
}

/// All that a cell runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Lines {
    /// Started first; it listens on the port that was given, and ends when the client has.
    pub(crate) server: Option<CommandLine>,
    pub(crate) client: CommandLine,
}

impl Lines {
    pub(crate) const fn alone(client: CommandLine) -> Self {
        Self { server: None, client }
    }

    pub(crate) const fn pair(server: CommandLine, client: CommandLine) -> Self {
        Self { server: Some(server), client }
    }
}
