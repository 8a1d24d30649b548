//! One row of what the doctor says.

use std::fmt;

use super::shell::ShellLine;

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
    /// The command that mends it, or that shows what there is instead.
    pub(super) remedy: Option<ShellLine>,
    /// What is to be known beside the command, or where no command mends it.
    pub(super) hint: Option<String>,
}

impl Check {
    pub(super) fn ok(name: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: CheckVerdict::Ok, finding: finding.into(), remedy: None, hint: None }
    }

    /// Something to know, with nothing to mend.
    pub(super) fn fact(name: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::Note, ..Self::ok(name, finding) }
    }

    pub(super) fn note(name: impl Into<String>, finding: impl Into<String>, remedy: ShellLine) -> Self {
        Self { remedy: Some(remedy), ..Self::fact(name, finding) }
    }

    pub(super) fn missing(name: impl Into<String>, finding: impl Into<String>, remedy: ShellLine) -> Self {
        Self { verdict: CheckVerdict::Missing, ..Self::note(name, finding, remedy) }
    }

    /// Missing where it is needed, else a note.
    pub(super) fn lack(
        is_needed: bool,
        name: impl Into<String>,
        finding: impl Into<String>,
        remedy: ShellLine,
    ) -> Self {
        if is_needed { Self::missing(name, finding, remedy) } else { Self::note(name, finding, remedy) }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The lines below its own: the command, whole, so that it can be copied, and the hint, which a shell would pass over.
    pub(super) fn advice(&self) -> Vec<String> {
        let remedy = self.remedy.as_deref().map(|line| format!("$ {line}"));
        remedy.into_iter().chain(self.hint.as_ref().map(|hint| format!("# {hint}"))).collect()
    }
}
