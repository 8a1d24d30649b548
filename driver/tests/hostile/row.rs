//! One row of the table, and its proof.

use std::collections::BTreeMap;

use roci_protocol::wire::NakCode;

use crate::lab::{Lab, Net, Remains, Said};

type Make = Box<dyn Fn(&mut Lab) -> Vec<u8>>;

/// One value, and what becomes of it.
pub(crate) struct Row {
    name: String,
    net: Net,
    before: fn(&mut Lab),
    frame: Make,
    counters: Vec<&'static str>,
    said: Vec<Said>,
    changes: bool,
    /// No other packet comes before it.
    is_first: bool,
}

/// A row for a frame that is refused in silence, unless it is changed.
pub(crate) fn row(name: impl Into<String>, frame: impl Fn(&mut Lab) -> Vec<u8> + 'static) -> Row {
    let (name, frame) = (name.into(), Box::new(frame));
    Row {
        name,
        net: Net::V4,
        before: |_| (),
        frame,
        counters: Vec::new(),
        said: Vec::new(),
        changes: false,
        is_first: false,
    }
}

impl Row {
    pub(crate) fn on(self, net: Net) -> Self {
        Self { net, ..self }
    }

    pub(crate) fn after(self, before: fn(&mut Lab)) -> Self {
        Self { before, ..self }
    }

    pub(crate) fn counts(mut self, name: &'static str) -> Self {
        self.counters.push(name);
        self
    }

    pub(crate) fn says(mut self, said: &[Said]) -> Self {
        self.said.extend(said);
        self
    }

    pub(crate) fn changes(self) -> Self {
        Self { changes: true, ..self }
    }

    /// It is what it says only where nothing was executed before.
    pub(crate) fn comes_first(self) -> Self {
        Self { is_first: true, ..self }
    }

    /// It is good: executed and acknowledged.
    pub(crate) fn executes(self) -> Self {
        self.counts("rx_requests").says(&[Said::Ack(0)]).changes()
    }

    pub(crate) fn invalid(self) -> Self {
        self.counts("resp_invalid_request").says(&[Said::Nak(NakCode::InvalidRequest, 0)])
    }

    pub(crate) fn denied(self) -> Self {
        self.counts("resp_remote_access_errors").says(&[Said::Nak(NakCode::RemoteAccess, 0)])
    }

    /// As [`Row::invalid`], of a second packet.
    pub(crate) fn invalid_next(self) -> Self {
        self.counts("resp_invalid_request").says(&[Said::Nak(NakCode::InvalidRequest, 1)])
    }

    /// As the victim's first packet, and as one behind others, with the fast path and without it: the victim does the same.
    pub(crate) fn run(&self) {
        self.run_in("first", &|| Lab::new(self.net));
        if self.is_first {
            return;
        }
        let fast = self.run_in("fast", &|| Lab::warm(self.net, true));
        let slow = self.run_in("slow", &|| Lab::warm(self.net, false));
        assert!(fast == slow, "{}: the fast path leaves something else", self.name);
    }

    fn run_in(&self, which: &str, open: &dyn Fn() -> Lab) -> Remains {
        let name = format!("{} ({:?}, {which})", self.name, self.net);
        let (mut calm, mut lab) = (open(), open());
        (self.before)(&mut calm);
        (self.before)(&mut lab);
        let before = lab.counters();
        let frame = (self.frame)(&mut lab);
        lab.inject(&frame);
        let said = lab.listen();
        let raised: Vec<_> = lab.counters().into_iter().filter(|(name, count)| before[name] != *count).collect();
        assert_eq!(raised, self.expected(&before), "{name}");
        assert_eq!(said, self.said, "{name}");
        let remains = lab.remains();
        assert_eq!(remains != calm.remains(), self.changes, "{name}: whether anything changes");
        remains
    }

    /// The counters that rise, by one each.
    fn expected(&self, before: &BTreeMap<&'static str, u64>) -> Vec<(&'static str, u64)> {
        let reaches_no_qp = self.counters.iter().any(|&name| {
            let of_delivered = ["rx_requests", "rx_wrong_transport", "rx_bad_pkey", "rx_wrong_state"];
            name.starts_with("rx_") && !of_delivered.contains(&name)
        });
        let delivered = (!reaches_no_qp).then_some("rx_delivered");
        let mut names: Vec<_> = ["rx_frames"].into_iter().chain(delivered).chain(self.counters.clone()).collect();
        names.sort_unstable();
        names.into_iter().map(|name| (name, before[name] + 1)).collect()
    }
}

pub(crate) fn run(rows: Vec<Row>) {
    rows.iter().for_each(Row::run);
}
