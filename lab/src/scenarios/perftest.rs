//! perftest's clients, unmodified in the guest, against our server of their exchange.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use roci_driver::{Address, Engine, QpParams, QueuePair, UnconnectedQp};
use roci_perftest::{EngineOwner, MessageSizes, Served, ServerSettings, Test, serve};

use super::connected::expect;
use super::manager::start;
use crate::LabError;
use crate::lab::{GidRoute, Lab, PairTerms, V4, V6};
use crate::wire::{LabLink, WireEvent};

const MESSAGES: usize = 100;
/// As few as clients take: all sizes have 16 MiB together, each time.
const MESSAGES_OF_EACH_SIZE: usize = 5;
const SIZES: usize = 23;
/// The guest's processor is emulated, and so is the time that a client takes to begin.
const PATIENCE: Duration = Duration::from_secs(30);

impl EngineOwner for Lab {
    type Link = LabLink;

    fn engine(&mut self) -> &mut Engine<LabLink> {
        &mut self.engine
    }

    fn connecting(&mut self, ours: &UnconnectedQp, peer: &Address) {
        let route = if peer.ip.is_ipv4() { V4 } else { V6 };
        self.record_opening(ours, route, peer).expect("the lab's addresses are addresses");
    }

    fn receive_posted(&mut self, qp: QueuePair) {
        self.record(WireEvent::Posted(qp.qpn()));
    }
}

/// The client's options.
#[derive(Clone, Copy)]
enum ClientOptions {
    /// One size.
    Size(usize),
    /// One size, over IPv6.
    Ipv6(usize),
    /// All sizes.
    All,
}

impl ClientOptions {
    const fn route(self) -> GidRoute {
        if matches!(self, Self::Ipv6(_)) { V6 } else { V4 }
    }

    const fn sizes(self) -> MessageSizes {
        match self {
            Self::Size(size) | Self::Ipv6(size) => MessageSizes::One(size),
            Self::All => MessageSizes::All,
        }
    }

    fn words(self) -> String {
        let size = match self {
            Self::Size(size) | Self::Ipv6(size) => format!("-s {size}"),
            Self::All => "-a".to_owned(),
        };
        format!("{size} -n {}", self.messages_of_a_size())
    }

    /// The beginnings of the rows that the client must print.
    fn rows(self) -> Vec<[usize; 2]> {
        let sizes: Vec<usize> = match self {
            Self::Size(size) | Self::Ipv6(size) => vec![size],
            Self::All => (1..=SIZES).map(|power| 1 << power).collect(),
        };
        sizes.into_iter().map(|size| [size, self.messages_of_a_size()]).collect()
    }

    const fn messages_of_a_size(self) -> usize {
        if matches!(self, Self::All) { MESSAGES_OF_EACH_SIZE } else { MESSAGES }
    }

    fn messages(self) -> usize {
        self.rows().len() * self.messages_of_a_size()
    }
}

/// Serves one client.
fn meet(lab: &mut Lab, test: Test, form: ClientOptions) -> Result<(), LabError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let GidRoute { gid, .. } = form.route();
    let mut settings = ServerSettings::new(test, form.sizes(), patient())?;
    (settings.place, settings.patience, settings.wait) = (lab.place(form.route())?, PATIENCE, Some(PATIENCE));
    settings.iterations = form.messages_of_a_size() as u64;
    // The management network's host, as the guest sees it.
    let port = listener.local_addr()?.port();
    start(lab, &format!("ib_{} -d rxe0 -x {gid} -F {} -p {port} 10.0.2.2", test.name(), form.words()))?;
    let outcome = serve(lab, &listener, &settings);
    drop(listener);
    let served = outcome.map_err(|error| format!("{error}; the client: {}", output(lab).unwrap_or_default()))?;
    let output = output(lab)?;
    expect("the client's end", output.ends_with("rc=0\n"), true).map_err(|why| format!("{why}: {output}"))?;
    expect("its rows", rows(&output), form.rows()).map_err(|why| format!("{why}: {output}"))?;
    check(&served, form)
}

/// A client that polls its memory leaves the guest's only processor to its packets now and then.
fn patient() -> QpParams {
    QpParams { ack_timeout_max_ns: 4_000_000_000, ..PairTerms::default().params }
}

/// What the server saw must be what the client did.
fn check(served: &Served, form: ClientOptions) -> Result<(), LabError> {
    if let Some(messages) = served.messages {
        expect("the messages that came", messages, form.messages() as u64)?;
    }
    if let Some(report) = served.report {
        let last = form.rows().last().map(|&[size, messages]| (size as u64, messages as u64));
        expect("the reported size and count", Some((report.size, report.messages)), last)?;
    }
    expect("the client's version", &served.version[..], "6.06")
}

/// What the guest's program printed, and how it ended.
fn output(lab: &mut Lab) -> Result<String, LabError> {
    lab.run("n=0; while [ ! -e /tmp/rc ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n+1)); done; cat /tmp/output; cat /tmp/rc || true")
}

/// Size and count of each row below the heading. The figures behind them are left alone: beside a disturbance clients take
/// the processor's rate as zero.
fn rows(output: &str) -> Vec<[usize; 2]> {
    let numbers = |line: &str| {
        let mut words = line.split_whitespace();
        Some([words.next()?.parse().ok()?, words.next()?.parse().ok()?])
    };
    let below = output.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    below.skip(1).map_while(numbers).collect()
}

macro_rules! tests {
    ($($name:ident, $test:ident, $forms:expr;)*) => {
        $(pub(super) fn $name(lab: &mut Lab) -> Result<(), LabError> {
            $forms.into_iter().try_for_each(|form| {
                meet(lab, Test::$test, form).map_err(|failure| format!("{}: {failure}", form.words()).into())
            })
        })*
    };
}

tests! {
    send_lat, SendLat, [ClientOptions::Size(2), ClientOptions::Ipv6(5000), ClientOptions::All];
    send_bw, SendBw, [ClientOptions::Size(65_536), ClientOptions::Ipv6(1), ClientOptions::All];
    write_lat, WriteLat, [ClientOptions::Size(2), ClientOptions::Ipv6(5000), ClientOptions::All];
    write_bw, WriteBw, [ClientOptions::Size(65_536), ClientOptions::Ipv6(1)];
    read_lat, ReadLat, [ClientOptions::Size(2), ClientOptions::Ipv6(5000)];
    read_bw, ReadBw, [ClientOptions::Size(65_536), ClientOptions::Ipv6(1)];
    atomic_lat, AtomicLat, [ClientOptions::Size(8), ClientOptions::Ipv6(8)];
    atomic_bw, AtomicBw, [ClientOptions::Size(8), ClientOptions::Ipv6(8)];
}
