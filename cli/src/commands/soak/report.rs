//! What all ranks have received, and what rank 0 prints of it.

use std::collections::BTreeMap;
use std::time::Duration;

use roci_msgcore::{Messaging, WorkerStats};
use serde_json::json;

use super::TOTALS;
use super::memory::Growth;
use crate::failure::Failure;
use crate::options::SoakOptions;
use crate::output;

/// Numbers that a rank sends to rank 0.
const WORDS: usize = 7;

/// What a rank has received: how much, how many errors, and how its memory grew.
#[derive(Clone, Copy, Default)]
pub(super) struct SoakTotals {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    pub(super) growth: Growth,
    /// The process's resident memory at the end.
    pub(super) resident: u64,
}

/// Rank 0 gathers what each has received, its own first; the others have their own alone.
pub(super) fn gather(worker: &mut impl Messaging, ours: SoakTotals) -> Result<Vec<SoakTotals>, Failure> {
    if worker.rank() != 0 {
        let send = worker.send_bytes(0.into(), TOTALS, &ours.to_bytes())?;
        worker.wait(send)?;
        return Ok(vec![ours]);
    }
    let mut all = vec![ours];
    for peer in 1..worker.size() {
        let buffer = worker.buffer(8 * WORDS)?;
        let receive = worker.recv(peer, TOTALS, buffer)?;
        all.push(SoakTotals::from_bytes(&worker.wait(receive)?.buffer));
    }
    Ok(all)
}

impl SoakTotals {
    fn to_bytes(self) -> Vec<u8> {
        let Self { messages, bytes, errors, growth: Growth { start, end, allowed }, resident } = self;
        let words: [u64; WORDS] = [messages, bytes, errors, start, end, allowed, resident];
        words.map(u64::to_le_bytes).concat()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let mut words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || words.next().unwrap_or(0);
        Self {
            messages: next(),
            bytes: next(),
            errors: next(),
            growth: Growth { start: next(), end: next(), allowed: next() },
            resident: next(),
        }
    }

    /// What two ranks have received, and the growth of the one whose memory grew most.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            messages: self.messages + other.messages,
            bytes: self.bytes + other.bytes,
            errors: self.errors + other.errors,
            growth: self.growth.worse(other.growth),
            resident: self.resident.max(other.resident),
        }
    }
}

/// How often this rank has sent by each protocol, and fallen back to another one.
pub(super) fn protocols_used(stats: &WorkerStats) -> Vec<(&'static str, u64)> {
    let is_shown = |&(name, count): &(&str, u64)| {
        count > 0 && ["tx_", "fallback_", "local_"].iter().any(|kind| name.starts_with(kind))
    };
    stats.iter().filter(is_shown).collect()
}

/// What rank 0 prints.
pub(super) struct SoakReport<'a> {
    pub(super) options: &'a SoakOptions,
    /// Of each rank.
    pub(super) totals: &'a [SoakTotals],
    /// From the start of this process until every rank had met every other one.
    pub(super) started_in: Duration,
    pub(super) seconds: f64,
    pub(super) faults: u64,
    pub(super) used: &'a [(&'static str, u64)],
    pub(super) troubles: &'a [String],
}

impl SoakReport<'_> {
    pub(super) fn print(&self) -> Result<(), Failure> {
        if self.options.json {
            return Ok(output::line(self.row())?);
        }
        let Self { options, totals, seconds, used, troubles, .. } = self;
        let SoakTotals { messages, bytes, errors, growth, .. } = self.sum();
        let memory = if growth.is_known() {
            format!("memory from {} to {}", output::bytes(growth.start), output::bytes(growth.end))
        } else {
            "memory not judged".into()
        };
        let (ranks, seed) = (totals.len(), options.seed);
        let (volume, rate) = (output::bytes(bytes), bytes as f64 / seconds / 1e6);
        output::line(format!(
            "soak: {ranks} ranks, {seconds:.1} s, seed {seed}: {messages} messages, {volume}, {rate:.0} MB/s, {errors} errors, {memory}"
        ))?;
        let [median, largest] = self.resident().map(output::bytes);
        let started_in = self.started_in.as_secs_f64();
        output::line(format!(
            "all ranks connected after {started_in:.2} s; resident memory of a rank: median {median}, largest {largest}"
        ))?;
        let used: Vec<_> = used.iter().map(|(name, count)| format!("{name} {count}")).collect();
        output::line(format!("rank 0: {}", used.join(", ")))?;
        troubles.iter().try_for_each(|trouble| output::line(format!("rank 0: {trouble}")))?;
        Ok(())
    }

    fn row(&self) -> serde_json::Value {
        let SoakTotals { messages, bytes, errors, growth, .. } = self.sum();
        let known = |bytes: u64| growth.is_known().then_some(bytes);
        let [median, largest] = self.resident();
        json!({
            "test": "soak", "ranks": self.totals.len(), "seconds": self.seconds, "seed": self.options.seed,
            "max_size": self.options.max_size, "connected_after_s": self.started_in.as_secs_f64(),
            "messages": messages, "bytes": bytes, "errors": errors, "injected_faults_rank0": self.faults,
            "rss_start_bytes": known(growth.start), "rss_end_bytes": known(growth.end),
            "rss_allowed_growth_bytes": known(growth.allowed),
            "rss_median_bytes": median, "rss_largest_bytes": largest,
            "protocols_rank0": self.used.iter().copied().collect::<BTreeMap<_, _>>(),
        })
    }

    fn sum(&self) -> SoakTotals {
        self.totals.iter().copied().reduce(SoakTotals::and).unwrap_or_default()
    }

    /// The resident memory of the rank in the middle, and of the largest.
    fn resident(&self) -> [u64; 2] {
        let mut all: Vec<_> = self.totals.iter().map(|totals| totals.resident).collect();
        all.sort_unstable();
        [all.get(all.len() / 2), all.last()].map(|bytes| bytes.copied().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_arrive_as_they_were_sent_and_add_up() {
        let of = |n: u64| SoakTotals {
            messages: n,
            bytes: 10 * n,
            errors: n / 2,
            growth: Growth { start: 1, end: n, allowed: 3 },
            resident: 100 * n,
        };
        let sent = SoakTotals::from_bytes(&of(4).to_bytes());
        assert_eq!(sent.to_bytes(), of(4).to_bytes());
        let both = sent.and(of(3));
        assert_eq!((both.messages, both.bytes, both.errors, both.growth.end, both.resident), (7, 70, 3, 4, 400));
    }
}
