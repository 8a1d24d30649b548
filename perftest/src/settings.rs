//! Which test is served, and how.

use std::str::FromStr;
use std::time::Duration;

use roci_driver::{Access, Dialect, Mtu, QpParams};
use thiserror::Error;

/// A test of perftest's; its client is the program with `ib_` before the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// `ib_send_lat`
    SendLat,
    /// `ib_send_bw`
    SendBw,
    /// `ib_write_lat`
    WriteLat,
    /// `ib_write_bw`
    WriteBw,
    /// `ib_read_lat`
    ReadLat,
    /// `ib_read_bw`
    ReadBw,
    /// `ib_atomic_lat`
    AtomicLat,
    /// `ib_atomic_bw`
    AtomicBw,
}

/// What the server does in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TestKind {
    /// Answers each SEND by another.
    SendLatency,
    /// Takes SENDs.
    SendBandwidth,
    /// Writes, and watches its memory for the client's answers.
    WriteLatency,
    /// Opens memory, and leaves the rest to the engine.
    PassiveLatency,
    /// The same, and hears what came of it.
    PassiveBandwidth,
}

/// No test has this name.
#[derive(Clone, PartialEq, Eq, Error)]
#[error("unknown test '{0}': known are {known}", known = Test::ALL.map(Test::name).join(" "))]
pub struct UnknownTest(String);

/// Bytes of an atomic's operand.
const ATOMIC: usize = 8;

impl Test {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::SendLat,
        Self::SendBw,
        Self::WriteLat,
        Self::WriteBw,
        Self::ReadLat,
        Self::ReadBw,
        Self::AtomicLat,
        Self::AtomicBw,
    ];

    /// The client's program, without `ib_`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SendLat => "send_lat",
            Self::SendBw => "send_bw",
            Self::WriteLat => "write_lat",
            Self::WriteBw => "write_bw",
            Self::ReadLat => "read_lat",
            Self::ReadBw => "read_bw",
            Self::AtomicLat => "atomic_lat",
            Self::AtomicBw => "atomic_bw",
        }
    }

    /// The size of messages that a client takes where it is given none.
    pub const fn default_size(self) -> usize {
        match self {
            Self::AtomicLat | Self::AtomicBw => ATOMIC,
            Self::SendLat | Self::WriteLat | Self::ReadLat => 2,
            Self::SendBw | Self::WriteBw | Self::ReadBw => 65_536,
        }
    }

    pub(crate) const fn kind(self) -> TestKind {
        match self {
            Self::SendLat => TestKind::SendLatency,
            Self::SendBw => TestKind::SendBandwidth,
            Self::WriteLat => TestKind::WriteLatency,
            Self::ReadLat | Self::AtomicLat => TestKind::PassiveLatency,
            Self::WriteBw | Self::ReadBw | Self::AtomicBw => TestKind::PassiveBandwidth,
        }
    }

    const fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicLat | Self::AtomicBw)
    }
}

impl FromStr for Test {
    type Err = UnknownTest;

    fn from_str(name: &str) -> Result<Self, UnknownTest> {
        Self::ALL.into_iter().find(|test| test.name() == name).ok_or_else(|| UnknownTest(name.to_owned()))
    }
}

/// The sizes of a client's messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageSizes {
    /// All messages have this many bytes (`-s`).
    One(usize),
    /// One after the other, all powers of two from 2 to [`MessageSizes::LARGEST`] (`-a`).
    All,
}

impl MessageSizes {
    /// The last size of `-a`.
    pub const LARGEST: usize = 8 << 20;

    /// One after the other.
    pub(crate) fn each(self) -> impl Iterator<Item = usize> {
        let (first, last) = match self {
            Self::One(size) => (size, size),
            Self::All => (2, Self::LARGEST),
        };
        std::iter::successors(Some(first), |size| Some(size * 2)).take_while(move |&size| size <= last)
    }

    pub(crate) const fn largest(self) -> usize {
        match self {
            Self::One(size) => size,
            Self::All => Self::LARGEST,
        }
    }
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    pub(crate) test: Test,
    pub(crate) sizes: MessageSizes,
    pub(crate) params: QpParams,
    /// Messages of each size (`-n`). The server of `ib_write_lat` alone has to know.
    pub iterations: u64,
    /// Which of the engine's ports, and which address there, is ours.
    pub place: (usize, usize),
    /// How long a client that has connected may be silent.
    pub patience: Duration,
    /// How long a client may take to connect; for ever without it.
    pub wait: Option<Duration>,
}

/// Why there is no such server.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// perftest's clients refuse it, too.
    #[error("atomics have {ATOMIC} bytes: no other size, and not all sizes")]
    AtomicSize,
    /// IBTA 9.3.3.1
    #[error("a message has 1 to {} bytes", ServerSettings::LONGEST)]
    Size,
}

impl ServerSettings {
    /// The longest message.
    pub const LONGEST: usize = 1 << 31;
    /// Messages of each size that a client of `ib_write_lat` sends by default.
    pub const ITERATIONS: u64 = 1000;
    /// Receives that are posted at most: as many as clients have SENDs under way.
    const MOST_RECEIVES: usize = 128;
    /// Bytes of receives that are enough to keep a client busy.
    const RECEIVE_BYTES: usize = 8 << 20;
    /// READs and atomics in flight: as many as adapters take.
    const RD_ATOMIC: usize = 16;

    /// A server of one test, whose queue pair behaves as `params` say where the test does not say it.
    pub fn new(test: Test, sizes: MessageSizes, params: QpParams) -> Result<Self, SettingsError> {
        if test.is_atomic() && sizes != MessageSizes::One(ATOMIC) {
            return Err(SettingsError::AtomicSize);
        }
        if !(1..=Self::LONGEST).contains(&sizes.largest()) {
            return Err(SettingsError::Size);
        }
        let patience = Duration::from_mins(1);
        let settings = Self { test, sizes, params, iterations: Self::ITERATIONS, place: (0, 0), patience, wait: None };
        let params = settings.suited();
        Ok(Self { params, ..settings })
    }

    /// Receives to post for a SEND test.
    pub(crate) fn receives(&self) -> usize {
        (Self::RECEIVE_BYTES / self.sizes.largest()).clamp(2, Self::MOST_RECEIVES)
    }

    /// The parameters of a queue pair that a client of perftest meets.
    fn suited(&self) -> QpParams {
        let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC);
        let QpParams { mtu, rq_depth, max_rd_atomic, .. } = self.params;
        QpParams {
            mtu: mtu.min(Mtu::Mtu4096),
            rq_depth: rq_depth.max(self.receives()),
            max_rd_atomic: max_rd_atomic.clamp(1, Self::RD_ATOMIC),
            rnr_retry_limit: None,
            access,
            dialect: Dialect::Verbs,
            ..self.params.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(test: Test, sizes: MessageSizes) -> Result<ServerSettings, SettingsError> {
        ServerSettings::new(test, sizes, QpParams::default())
    }

    #[test]
    fn every_test_is_found_by_its_name_alone() {
        for test in Test::ALL {
            assert_eq!(test.name().parse(), Ok(test));
            assert!(settings(test, MessageSizes::One(test.default_size())).is_ok());
        }
        assert_eq!("send".parse::<Test>(), Err(UnknownTest("send".into())));
        assert!("ib_send_lat".parse::<Test>().is_err());
    }

    #[test]
    fn sizes_that_no_client_has_are_refused() {
        for (test, sizes, error) in [
            (Test::AtomicLat, MessageSizes::One(16), SettingsError::AtomicSize),
            (Test::AtomicBw, MessageSizes::All, SettingsError::AtomicSize),
            (Test::SendBw, MessageSizes::One(0), SettingsError::Size),
            (Test::WriteLat, MessageSizes::One(ServerSettings::LONGEST + 1), SettingsError::Size),
        ] {
            assert_eq!(settings(test, sizes).err(), Some(error), "{test:?} {sizes:?}");
        }
        assert!(settings(Test::ReadBw, MessageSizes::One(ServerSettings::LONGEST)).is_ok());
    }

    #[test]
    fn all_sizes_are_powers_of_two() {
        assert_eq!(MessageSizes::One(5000).each().collect::<Vec<_>>(), [5000]);
        let all: Vec<_> = MessageSizes::All.each().collect();
        assert_eq!((all.len(), &all[..2], all.last()), (23, &[2, 4][..], Some(&(8 << 20))));
    }

    #[test]
    fn a_queue_pair_for_a_verbs_peer_is_asked_for_whatever_the_caller_prefers() {
        let own = QpParams {
            mtu: Mtu::Mtu8192,
            rq_depth: 4,
            max_rd_atomic: 255,
            rnr_retry_limit: Some(1),
            dialect: Dialect::Rocinante,
            ..QpParams::default()
        };
        let params = ServerSettings::new(Test::SendBw, MessageSizes::One(1), own).expect("a size").params;
        assert_eq!((params.mtu, params.rq_depth, params.max_rd_atomic), (Mtu::Mtu4096, 128, 16));
        assert_eq!((params.rnr_retry_limit, params.dialect), (None, Dialect::Verbs));
    }

    #[test]
    fn long_messages_have_few_receives() {
        let receives = |size| settings(Test::SendBw, size).expect("a size").receives();
        assert_eq!(receives(MessageSizes::One(65_536)), 128);
        assert_eq!(receives(MessageSizes::One(1 << 20)), 8);
        assert_eq!(receives(MessageSizes::All), 2);
    }
}
