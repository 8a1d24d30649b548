//! What a launcher and its agent on another host say to each other, over the standard streams of a remote shell.
//!
//! A frame is a line `KIND NUMBER LENGTH`, and behind it so many bytes and the end of a line: srun keeps back what is no whole line.

use std::io::{self, BufRead, Read, Write};

/// The longest frame: a job comes with its environment.
const LONGEST: usize = 16 << 20;
/// The longest line before its bytes.
const HEAD_LIMIT: u64 = 64;

/// What a frame is, and of what its number is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameKind {
    /// To the agent: the ranks to start, as JSON. No number.
    Job,
    /// To the agent: a signal for all its ranks.
    Signal,
    /// To the agent: standard input for rank 0; its end where there are no bytes. No number.
    Input,
    /// To the agent: what a rank writes to this stream has no reader any more.
    Close,
    /// To the thread that writes to the agent: it hangs up. It is not written.
    Finish,
    /// From the agent: it has written what came last, and takes more. No number.
    InputTaken,
    /// From the agent: all its ranks run; the bytes are where they find the board. No number.
    Started,
    /// From the agent: a rank has written to its standard output ...
    Out,
    /// ... or to its standard error.
    Err,
    /// From the agent: a rank has ended; the bytes are its status and what happened, as text.
    Ended,
    /// From the agent: it cannot start its ranks; the bytes are why. No number.
    Failed,
}

const WORDS: [(FrameKind, &str); 11] = [
    (FrameKind::Job, "job"),
    (FrameKind::Signal, "signal"),
    (FrameKind::Input, "input"),
    (FrameKind::Close, "close"),
    (FrameKind::Finish, "finish"),
    (FrameKind::InputTaken, "taken"),
    (FrameKind::Started, "started"),
    (FrameKind::Out, "out"),
    (FrameKind::Err, "err"),
    (FrameKind::Ended, "ended"),
    (FrameKind::Failed, "failed"),
];

/// One of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AgentFrame {
    pub(crate) kind: FrameKind,
    pub(crate) number: usize,
    pub(crate) bytes: Vec<u8>,
}

impl AgentFrame {
    pub(crate) fn new(kind: FrameKind, number: usize, bytes: impl Into<Vec<u8>>) -> Self {
        Self { kind, number, bytes: bytes.into() }
    }

    /// Its bytes as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Writes it in one call, and flushes.
    pub(crate) fn write_to(&self, mut to: impl Write) -> io::Result<()> {
        let word = WORDS.iter().find(|(kind, _)| *kind == self.kind).map_or("", |(_, word)| word);
        let mut frame = format!("{word} {} {}\n", self.number, self.bytes.len()).into_bytes();
        frame.extend(&self.bytes);
        frame.push(b'\n');
        to.write_all(&frame)?;
        to.flush()
    }

    /// Reads the next one; `None` where the other end has hung up between two.
    ///
    /// # Errors
    /// What comes is no frame: a remote shell may print a greeting of its own.
    pub(crate) fn read_from(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut head = Vec::new();
        if from.take(HEAD_LIMIT).read_until(b'\n', &mut head)? == 0 {
            return Ok(None);
        }
        let no_frame = || {
            let said = String::from_utf8_lossy(&head).trim_end().to_owned();
            io::Error::new(io::ErrorKind::InvalidData, format!("the remote shell said '{said}'"))
        };
        let (kind, number, len) = Self::parse_head(&head).ok_or_else(no_frame)?;
        let mut bytes = Vec::new();
        if from.take(len as u64 + 1).read_to_end(&mut bytes)? <= len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if bytes.pop() != Some(b'\n') {
            return Err(no_frame());
        }
        Ok(Some(Self { kind, number, bytes }))
    }

    fn parse_head(head: &[u8]) -> Option<(FrameKind, usize, usize)> {
        let mut words = std::str::from_utf8(head).ok()?.strip_suffix('\n')?.split(' ');
        let word = words.next()?;
        let kind = WORDS.iter().find(|(_, known)| *known == word)?.0;
        let (number, len) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        (words.next().is_none() && len <= LONGEST).then_some((kind, number, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let frames: Vec<_> = WORDS
            .iter()
            .enumerate()
            .map(|(number, (kind, _))| AgentFrame::new(*kind, number, vec![b'\n'; number * 1000]))
            .collect();
        let mut written = Vec::new();
        for frame in &frames {
            frame.write_to(&mut written).expect("memory");
            assert!(written.ends_with(b"\n"), "srun would keep the rest of it back");
        }
        let mut reader = io::BufReader::with_capacity(7, &written[..]);
        for frame in frames {
            assert_eq!(AgentFrame::read_from(&mut reader).expect("a frame"), Some(frame));
        }
        assert_eq!(AgentFrame::read_from(&mut reader).expect("the end"), None);
    }

    #[test]
    fn what_is_no_frame_is_refused_with_what_was_said() {
        for text in [
            "Welcome to node7\n",
            "out 1\n",
            "out 1 -1\n",
            "out 1 2 3\nab",
            "out 1 99999999\n",
            "job",
            &"x".repeat(100),
        ] {
            let error = AgentFrame::read_from(&mut text.as_bytes()).expect_err(text).to_string();
            let said: String = text.trim_end().chars().take(20).collect();
            assert!(
                error.starts_with("the remote shell said '") && error.contains(said.lines().next().unwrap_or("")),
                "{error}"
            );
        }
        for text in ["out 1 3\nab", "out 1 3\nabc", "out 1 3\nabcd\n"] {
            assert!(AgentFrame::read_from(&mut text.as_bytes()).is_err(), "{text}: it is not so long");
        }
    }
}
