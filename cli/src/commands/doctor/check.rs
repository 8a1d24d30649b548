//! One row of what the doctor says.

use std::fmt;

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CheckVerdict {
    /// As it should be.
    Ok,
    /// The device that was asked for does not need it, or runs without.
    Note,
    /// The device that was asked for would not run.
    Missing,
}

impl fmt::Display for CheckVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Missing => "missing",
        })
    }
}

/// One row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) verdict: CheckVerdict,
    /// How it is, and why that is wrong.
    pub(super) finding: String,
    /// The command that mends it.
    pub(super) remedy: Option<String>,
}

impl Check {
    pub(super) fn ok(name: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: CheckVerdict::Ok, finding: finding.into(), remedy: None }
    }

    /// Something to know, with nothing to mend.
    pub(super) fn fact(name: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Note, ..Self::ok(name, finding) }
    }

    pub(super) fn note(name: impl Into<String>, finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::fact(name, finding) }
    }

    pub(super) fn missing(name: impl Into<String>, finding: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Missing, ..Self::note(name, finding, remedy) }
    }

    /// Missing where it is needed, else a note.
    pub(super) fn lack(
        is_needed: bool,
        name: impl Into<String>,
        finding: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        if is_needed { Self::missing(name, finding, remedy) } else { Self::note(name, finding, remedy) }
    }
}
