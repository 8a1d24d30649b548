//! What the lint says about a scenario: our end must keep every rule, the guest's all but those that rxe is known to break.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use roci_protocol::lint::{End, Finding, Lint, Rule};

use crate::lab::{V4, V6, VLAN};
use crate::wire::{FrameDirection, WireEvent};

/// The rules that Linux 6.1's rxe breaks, and what it does instead. A peer of its kind is to be lived with.
pub(crate) const EXCEPTIONS: &[(Rule, &str)] = &[
    (Rule::MigReq, "it sends MigReq 0"),
    (Rule::AckOfData, "it acknowledges a request that came twice by the PSN of the last one, which may be an atomic's"),
    (Rule::ResponseOrder, "it answers the rest of a READ with MIDDLE and LAST, as if nothing were missing"),
];

/// How many findings are reported in full.
const SHOWN: usize = 3;

/// What the lint has found in a scenario's frames.
#[derive(Default)]
pub(crate) struct LintReport {
    /// Each with the end whose frame it was.
    broken: Vec<(FrameDirection, Finding)>,
    /// How often the guest broke the rules that it is known to break.
    excepted: BTreeMap<Rule, usize>,
}

/// Lints what both ends have sent.
pub(crate) fn judge(events: &[WireEvent]) -> LintReport {
    let mut lint = Lint::default();
    let mut verdict = LintReport::default();
    for event in events {
        match event {
            WireEvent::Frame { at, way, bytes } => verdict.count(*way, lint.look(*at, bytes)),
            WireEvent::Opened(opening) => lint.open(opening),
            // Numbers are unique here, whatever address the queue pair has.
            WireEvent::Posted(qpn) => our_addresses().for_each(|ip| lint.post_receives(End { ip, qpn: *qpn }, 1)),
            WireEvent::Shared(end) => lint.share_receives(*end),
        }
    }
    verdict
}

fn our_addresses() -> impl Iterator<Item = IpAddr> {
    [V4, V6, VLAN].into_iter().filter_map(|route| route.ours.parse().ok())
}

impl LintReport {
    fn count(&mut self, way: FrameDirection, findings: Vec<Finding>) {
        for finding in findings {
            if way == FrameDirection::In && exception(finding.rule).is_some() {
                *self.excepted.entry(finding.rule).or_insert(0) += 1;
            } else {
                self.broken.push((way, finding));
            }
        }
    }

    /// What is wrong, if anything is.
    pub(crate) fn failure(&self) -> Option<String> {
        (!self.broken.is_empty()).then(|| self.to_string())
    }

    /// What the guest is known to do and did, a line each.
    pub(crate) fn notes(&self) -> impl Iterator<Item = String> {
        self.excepted.iter().map(|(&rule, count)| {
            format!("the guest breaks {rule} {count} times: {}", exception(rule).unwrap_or_default())
        })
    }
}

impl fmt::Display for LintReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the lint found {}", self.broken.len())?;
        for (way, finding) in self.broken.iter().take(SHOWN) {
            let who = if *way == FrameDirection::Out { "our" } else { "the guest's" };
            write!(f, "; {who} {finding}")?;
        }
        if self.broken.len() > SHOWN { write!(f, "; and {} more", self.broken.len() - SHOWN) } else { Ok(()) }
    }
}

fn exception(rule: Rule) -> Option<&'static str> {
    EXCEPTIONS.iter().find(|(excepted, _)| *excepted == rule).map(|(_, what)| *what)
}
