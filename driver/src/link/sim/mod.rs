//! A wire between two ends, or a switch between many stations, in one process and under a clock that the test moves.

mod net;

use std::cell::Cell;
use std::rc::Rc;

use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;

use super::{BURST, Batch, Full, Link, LinkState, LinkStats};

pub use net::{Net, NetConfig};

use net::{Network, SimStation};

/// Bytes of the longest frame.
const MAX_FRAME: usize = 9216;
/// Stations whose numbers, counted from 1, fit into the last two bytes of their addresses.
const STATIONS_MAX: usize = u16::MAX as usize;

/// A clock that moves only when it is set.
#[derive(Clone, Default, Debug)]
pub struct Clock(Rc<Cell<Nanos>>);

impl Clock {
    /// Moves time forward.
    pub fn advance(&self, by: Nanos) {
        self.0.set(self.0.get() + by);
    }

    /// The time.
    pub fn now(&self) -> Nanos {
        self.0.get()
    }
}

/// One station at a simulated wire or switch.
#[derive(Debug)]
pub struct SimLink {
    clock: Clock,
    network: Rc<Network>,
    /// Which of the network's stations this is.
    number: usize,
    /// Frames that wait for the doorbell, as they do in a device's queue.
    queued: Vec<Vec<u8>>,
    /// Frames that are received at a time.
    burst: usize,
    max_frame: usize,
    stats: LinkStats,
}

impl SimLink {
    /// The two ends of a wire that carries frames of up to `9216` bytes. It is full when 256 frames wait.
    pub fn pair(clock: &Clock) -> (Self, Self) {
        Self::pair_over(clock, NetConfig::default())
    }

    /// The two ends of a wire of this kind.
    pub fn pair_over(clock: &Clock, config: NetConfig) -> (Self, Self) {
        let mut ends = Self::all_of(clock, Network::wire(clock, config));
        let far = ends.swap_remove(1);
        (ends.swap_remove(0), far)
    }

    /// The stations of a switch that carries frames of up to `9216` bytes.
    ///
    /// Station `n` of the result has the address `02:00:00:00:hi:lo` with `n + 1` in its last two bytes. A frame goes to
    /// the station that it is addressed to, and to all others where no station or a group is. 256 frames wait for a
    /// station; what comes then is lost, and counts as its [`LinkStats::rx_missed`].
    ///
    /// # Panics
    /// When there are more than 65535 stations.
    pub fn switch(clock: &Clock, stations: usize) -> Vec<Self> {
        Self::switch_over(clock, stations, NetConfig::default())
    }

    /// The stations of a switch of this kind.
    ///
    /// # Panics
    /// When there are more than 65535 stations.
    pub fn switch_over(clock: &Clock, stations: usize, config: NetConfig) -> Vec<Self> {
        assert!(stations <= STATIONS_MAX, "a switch of {stations} stations: there are addresses for {STATIONS_MAX}");
        Self::all_of(clock, Network::switch(clock, stations, config))
    }

    /// The link of a station that another process has now: one that was started again, on the same host.
    pub fn again(net: &Net, clock: &Clock, station: usize) -> Self {
        assert!(station < net.0.stations.len(), "it was a station before");
        Self::station_at(net.0.clone(), clock, station)
    }

    /// The network that it is a station of.
    pub fn net(&self) -> Net {
        Net(self.network.clone())
    }

    /// The same, whose frames have at most so many bytes.
    #[must_use]
    pub fn with_max_frame(self, max_frame: usize) -> Self {
        Self { max_frame: max_frame.min(MAX_FRAME), ..self }
    }

    /// A handle that cuts this link. The other end of a wire is cut with it; at a switch the other stations stay up,
    /// and frames to and from this one vanish. What has arrived already can still be received.
    pub fn cutter(&self) -> impl Fn() + use<> {
        self.station().cutter()
    }

    fn all_of(clock: &Clock, network: Network) -> Vec<Self> {
        let network = Rc::new(network);
        (0..network.stations.len()).map(|number| Self::station_at(network.clone(), clock, number)).collect()
    }

    fn station_at(network: Rc<Network>, clock: &Clock, number: usize) -> Self {
        let (clock, stats) = (clock.clone(), LinkStats::default());
        Self { clock, network, number, queued: Vec::new(), burst: BURST, max_frame: MAX_FRAME, stats }
    }

    fn station(&self) -> &SimStation {
        &self.network.stations[self.number]
    }
}

impl Link for SimLink {
    type Frame = Vec<u8>;

    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn mac(&self) -> MacAddr {
        let [hi, lo] = (self.number as u16 + 1).to_be_bytes();
        MacAddr([2, 0, 0, 0, hi, lo])
    }

    fn receive_at_most(&mut self, frames: usize) {
        self.burst = frames;
    }

    fn receive(&mut self, batch: &mut Batch<Vec<u8>>) {
        let now = self.clock.now();
        let end = (batch.len() + self.burst).min(BURST);
        while let Some(frame) = (batch.len() < end).then(|| self.station().take(now)).flatten() {
            self.stats.rx_frames += 1;
            self.stats.rx_bytes += frame.len() as u64;
            batch.push(frame);
        }
    }

    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        if self.queued.len() == BURST {
            self.flush();
        }
        if self.network.is_full_for(self.number, self.queued.len()) {
            self.stats.tx_full += 1;
            return Err(Full);
        }
        assert!(len <= self.max_frame, "a frame of {len} bytes, and the link carries {}", self.max_frame);
        let mut frame = vec![0; len];
        fill(&mut frame);
        self.stats.tx_frames += 1;
        self.stats.tx_bytes += len as u64;
        self.queued.push(frame);
        Ok(())
    }

    fn flush(&mut self) {
        self.stats.tx_bursts += u64::from(!self.queued.is_empty());
        let is_up = self.station().is_up();
        for frame in self.queued.drain(..) {
            if is_up {
                self.network.forward(self.number, frame);
            }
        }
    }

    fn maintain(&mut self, _now: Nanos) -> LinkState {
        if self.station().is_up() { LinkState::Up } else { LinkState::Down }
    }

    fn stats(&self) -> LinkStats {
        LinkStats { rx_missed: self.station().missed(), ..self.stats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames that wait at most.
    const CAPACITY: usize = 256;

    fn send(links: &mut [SimLink], from: usize, to: MacAddr, mark: u8) -> Result<(), Full> {
        let sent = links[from].transmit(60, |bytes| {
            bytes[..6].copy_from_slice(&to.0);
            bytes[6] = mark;
        });
        links[from].flush();
        sent
    }

    /// The marks of the frames that one station has got.
    fn received(link: &mut SimLink) -> Vec<u8> {
        let mut marks = Vec::new();
        loop {
            let mut batch = Batch::new();
            link.receive(&mut batch);
            if batch.is_empty() {
                return marks;
            }
            marks.extend(batch.iter().map(|frame| frame[6]));
        }
    }

    fn all_received(links: &mut [SimLink]) -> Vec<Vec<u8>> {
        links.iter_mut().map(received).collect()
    }

    #[test]
    fn a_frame_goes_to_the_station_it_is_addressed_to() {
        let mut links = SimLink::switch(&Clock::default(), 1000);
        assert_eq!(links[999].mac(), MacAddr([2, 0, 0, 0, 0x03, 0xe8]));
        for (from, to) in [(0, 999), (999, 0), (1, 256), (256, 255), (7, 7)] {
            let mac = links[to].mac();
            send(&mut links, from, mac, 1).expect("a switch is never full");
            let got = all_received(&mut links);
            let expected = |number| number == to && from != to;
            assert!(got.iter().enumerate().all(|(number, marks)| marks.is_empty() != expected(number)), "{from} {to}");
        }
    }

    #[test]
    fn what_no_station_or_a_group_is_addressed_by_goes_to_all_others() {
        let mut links = SimLink::switch(&Clock::default(), 4);
        let group = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
        for to in [MacAddr([0xff; 6]), group, MacAddr([2, 0, 0, 0, 0, 0]), MacAddr([2, 0, 0, 0, 0, 5])] {
            send(&mut links, 2, to, 9).expect("a switch is never full");
            assert_eq!(all_received(&mut links), [vec![9], vec![9], vec![], vec![9]], "{to:?}");
        }
    }

    #[test]
    fn a_full_station_loses_and_counts_frames_and_delays_no_other_station() {
        let mut links = SimLink::switch(&Clock::default(), 3);
        let (slow, quick) = (links[1].mac(), links[2].mac());
        for number in 0..CAPACITY + 3 {
            send(&mut links, 0, slow, number as u8).expect("a switch is never full");
            send(&mut links, 0, quick, number as u8).expect("a switch is never full");
            assert_eq!(received(&mut links[2]), [number as u8]);
        }
        assert!(received(&mut links[1]).into_iter().eq(0..=255), "the first ones are kept, in order");
        assert_eq!(links.iter().map(|link| link.stats().rx_missed).collect::<Vec<_>>(), [0, 3, 0]);
        send(&mut links, 0, slow, 1).expect("a switch is never full");
        assert_eq!(received(&mut links[1]), [1], "there is room again");
    }

    #[test]
    fn one_station_is_cut_while_the_others_talk() {
        let mut links = SimLink::switch(&Clock::default(), 3);
        let macs: Vec<_> = links.iter().map(SimLink::mac).collect();
        links[1].cutter()();
        let states: Vec<_> = links.iter_mut().map(|link| link.maintain(0)).collect();
        assert_eq!(states, [LinkState::Up, LinkState::Down, LinkState::Up]);
        for (from, to, mark) in [(0, 1, 1), (1, 0, 2), (1, 2, 3), (0, 2, 4), (2, 0, 5)] {
            send(&mut links, from, macs[to], mark).expect("a switch is never full");
        }
        send(&mut links, 0, MacAddr([0xff; 6]), 6).expect("a switch is never full");
        assert_eq!(all_received(&mut links), [vec![5], vec![], vec![4, 6]]);
    }

    #[test]
    fn a_wire_is_full_until_somebody_receives_and_goes_down_at_both_ends() {
        let (near, far) = SimLink::pair(&Clock::default());
        let mut ends = [near, far];
        let anybody = MacAddr([0; 6]);
        for _ in 0..CAPACITY {
            send(&mut ends, 0, anybody, 0).expect("there is room");
        }
        assert_eq!(send(&mut ends, 0, anybody, 0), Err(Full));
        assert_eq!((ends[0].stats().tx_full, ends[1].stats().rx_missed), (1, 0));
        assert_eq!(received(&mut ends[1]).len(), CAPACITY);
        send(&mut ends, 0, anybody, 0).expect("there is room again");
        ends[1].cutter()();
        assert_eq!(ends.each_mut().map(|end| end.maintain(0)), [LinkState::Down; 2]);
    }

    #[test]
    fn a_frame_is_on_its_way_for_the_distance_and_for_its_bits() {
        let clock = Clock::default();
        // 60 bytes at 480 Mb/s take a microsecond.
        let config = NetConfig { latency_ns: 10_000, rate: Some(480_000_000), ..NetConfig::default() };
        let mut links = SimLink::switch_over(&clock, 2, config);
        let to = links[1].mac();
        for mark in [1, 2, 3] {
            send(&mut links, 0, to, mark).expect("a switch is never full");
        }
        let mut seen = Vec::new();
        for _ in 0..14 {
            seen.push(received(&mut links[1]).len());
            clock.advance(1_000);
        }
        assert_eq!(seen, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
    }

    #[test]
    fn what_is_under_way_takes_no_place_in_a_queue_and_what_waits_for_the_rate_does() {
        let clock = Clock::default();
        let config = NetConfig { latency_ns: 1_000_000, queue: 4, ..NetConfig::default() };
        for (rate, arrive) in [(None, 20), (Some(480_000_000), 4)] {
            let mut links = SimLink::switch_over(&clock, 2, NetConfig { rate, ..config });
            let to = links[1].mac();
            (0..20).for_each(|mark| send(&mut links, 0, to, mark).expect("a switch is never full"));
            clock.advance(2_000_000);
            assert!(received(&mut links[1]).into_iter().eq(0..arrive), "{rate:?}");
            assert_eq!(links[1].stats().rx_missed, 20 - u64::from(arrive));
        }
    }

    #[test]
    fn jitter_lets_frames_overtake_each_other_and_loses_none() {
        let run = |seed| {
            let clock = Clock::default();
            let config = NetConfig { jitter_ns: 50_000, seed, ..NetConfig::default() };
            let (mut near, mut far) = SimLink::pair_over(&clock, config);
            let mut marks = Vec::new();
            for mark in 0..100 {
                near.transmit(60, |bytes| bytes[6] = mark).expect("the wire has room");
                near.flush();
                clock.advance(1_000);
                marks.extend(received(&mut far));
            }
            clock.advance(50_000);
            marks.extend(received(&mut far));
            marks
        };
        let mut marks = run(1);
        assert!(!marks.is_sorted());
        assert_eq!(marks, run(1));
        assert_ne!(marks, run(2));
        marks.sort_unstable();
        assert!(marks.into_iter().eq(0..100));
    }

    #[test]
    fn a_network_that_is_cut_in_two_carries_frames_within_each_part_until_it_heals() {
        let mut links = SimLink::switch(&Clock::default(), 4);
        let macs: Vec<_> = links.iter().map(SimLink::mac).collect();
        let net = links[0].net();
        net.part(&[0, 1]);
        for (from, to) in [(0, 1), (0, 2), (2, 3), (3, 1)] {
            send(&mut links, from, macs[to], from as u8).expect("a switch is never full");
        }
        assert_eq!(all_received(&mut links), [vec![], vec![0], vec![], vec![2]]);
        net.heal();
        send(&mut links, 3, macs[1], 9).expect("a switch is never full");
        assert_eq!(received(&mut links[1]), [9]);
    }

    /// As every RoCE packet does: the CRC-32 of such a frame is the same whatever is in it.
    #[test]
    fn a_trace_sees_what_is_in_frames_that_end_with_their_own_crc() {
        let run = |mark: u8| {
            let clock = Clock::default();
            let mut links = SimLink::switch(&clock, 2);
            let (net, to) = (links[0].net(), links[1].mac());
            net.record();
            let frame = |bytes: &mut [u8]| {
                bytes[..6].copy_from_slice(&to.0);
                bytes[6..56].fill(mark);
                let crc = crc32fast::hash(&bytes[..56]);
                bytes[56..60].copy_from_slice(&crc.to_le_bytes());
            };
            links[0].transmit(60, frame).expect("a switch is never full");
            links[0].flush();
            net.trace().expect("it is recorded")
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn two_runs_have_one_trace_where_the_same_was_sent_at_the_same_time() {
        let run = |mark, wait| {
            let clock = Clock::default();
            let mut links = SimLink::switch(&clock, 2);
            let (net, to) = (links[0].net(), links[1].mac());
            assert_eq!(net.trace(), None);
            net.record();
            clock.advance(wait);
            send(&mut links, 0, to, mark).expect("a switch is never full");
            net.trace().expect("it is recorded")
        };
        assert_eq!(run(1, 1), run(1, 1));
        assert_ne!(run(1, 1), run(2, 1));
        assert_ne!(run(1, 1), run(1, 2));
    }
}
