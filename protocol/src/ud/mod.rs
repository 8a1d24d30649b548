//! Unreliable datagrams (IBTA 9.8): one packet a message, from any peer that knows the key.
//!
//! There is no connection and no acknowledgement: a [`UdQueuePair`] judges what arrives and numbers what leaves.

use std::collections::VecDeque;

use crate::rc::RecvRequest;
use crate::wire::{Bth, Deth, Extensions, Headers, ImmDt, Opcode, Packet, Transport};
use crate::{Mtu, Pkey, Psn, Qpn};

/// What stands before the payload in every receive: the sender's IPv6 header, or twenty unused bytes and the
/// sender's IPv4 header (IBTA A17.4.5.2).
pub const GRH_LEN: usize = 40;

/// A Q_Key with this bit set can only be used by the privileged (IBTA 10.2.5).
pub const PRIVILEGED_QKEY: u32 = 1 << 31;

/// Why a datagram was not delivered; it is dropped without an answer (IBTA 9.8.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Drop {
    /// No datagram.
    Transport,
    /// A foreign partition key.
    Pkey,
    /// Not this queue pair's key.
    Qkey,
    /// No receive is posted.
    NoReceive,
    /// The receive that comes next cannot hold it; the receive stays.
    TooLong,
}

/// The counters of one queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Datagrams delivered.
    pub rx_datagrams: u64,
    /// Datagrams sent.
    pub tx_datagrams: u64,
    /// Packets dropped, by reason.
    pub drops: [u64; 5],
}

impl Stats {
    /// Every counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let [transport, pkey, qkey, no_receive, too_long] = self.drops;
        [
            ("rx_datagrams", self.rx_datagrams),
            ("tx_datagrams", self.tx_datagrams),
            ("rx_datagram_transport", transport),
            ("rx_datagram_pkey", pkey),
            ("rx_datagram_qkey", qkey),
            ("rx_datagram_no_receive", no_receive),
            ("rx_datagram_too_long", too_long),
        ]
        .into_iter()
    }

    /// Adds another queue pair's counters to these.
    pub fn add(&mut self, other: &Self) {
        self.rx_datagrams += other.rx_datagrams;
        self.tx_datagrams += other.tx_datagrams;
        for (sum, drops) in self.drops.iter_mut().zip(other.drops) {
            *sum += drops;
        }
    }
}

/// A datagram queue pair's receiving and numbering half; `B` is the caller's token for a piece of memory.
#[derive(Debug)]
pub struct UdQueuePair<B> {
    pkey: Pkey,
    qkey: u32,
    mtu: Mtu,
    psn: Psn,
    depth: usize,
    receives: VecDeque<RecvRequest<B>>,
    stats: Stats,
}

/// Whom a datagram goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    /// The queue pair.
    pub qpn: Qpn,
    /// Its key.
    pub qkey: u32,
}

impl<B> UdQueuePair<B> {
    /// A queue pair that takes datagrams with `qkey` and holds `depth` receives.
    pub fn new(qkey: u32, mtu: Mtu, psn: Psn, depth: usize) -> Self {
        let (pkey, receives, stats) = (Pkey::DEFAULT, VecDeque::with_capacity(depth), Stats::default());
        Self { pkey, qkey, mtu, psn, depth, receives, stats }
    }

    /// The same in another partition than the default one.
    #[must_use]
    pub fn in_partition(self, pkey: Pkey) -> Self {
        Self { pkey, ..self }
    }

    /// The counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The longest message.
    pub fn max_message(&self) -> usize {
        self.mtu.bytes()
    }

    /// Posts a receive, whose first [`GRH_LEN`] bytes are the header's; handed back where the queue is full.
    pub fn post_recv(&mut self, request: RecvRequest<B>) -> Result<(), RecvRequest<B>> {
        if self.receives.len() == self.depth {
            return Err(request);
        }
        self.receives.push_back(request);
        Ok(())
    }

    /// Takes all receives back.
    pub fn flush(&mut self) -> impl Iterator<Item = RecvRequest<B>> + '_ {
        self.receives.drain(..)
    }

    /// The receive that a packet, parsed and with its ICRC verified, is to be placed in.
    pub fn accept(&mut self, packet: &Packet<'_>) -> Result<RecvRequest<B>, Drop> {
        let verdict = self.judge(packet);
        match verdict {
            Ok(_) => self.stats.rx_datagrams += 1,
            Err(reason) => self.stats.drops[reason as usize] += 1,
        }
        verdict
    }

    fn judge(&mut self, packet: &Packet<'_>) -> Result<RecvRequest<B>, Drop> {
        let Headers { bth: base, ext } = &packet.headers;
        let deth = ext.deth.filter(|_| base.opcode.transport() == Transport::Ud).ok_or(Drop::Transport)?;
        if !self.pkey.hears(base.pkey) {
            return Err(Drop::Pkey);
        }
        if deth.qkey != self.qkey {
            return Err(Drop::Qkey);
        }
        let len = self.receives.front().ok_or(Drop::NoReceive)?.len as usize;
        if packet.payload.len() + GRH_LEN > len || packet.payload.len() > self.mtu.bytes() {
            return Err(Drop::TooLong);
        }
        self.receives.pop_front().ok_or(Drop::NoReceive)
    }

    /// The headers of the next datagram, from the queue pair that is known as `ours`; once it has left, say
    /// [`UdQueuePair::sent`].
    pub fn headers(&self, ours: Qpn, to: Destination, imm: Option<u32>, solicited: bool) -> Headers {
        let opcode = if imm.is_some() { Opcode::UdSendOnlyImm } else { Opcode::UdSendOnly };
        let bth = Bth { solicited, pkey: self.pkey, ..Bth::new(opcode, to.qpn, self.psn) };
        // A privileged key stands for the queue pair's own (IBTA 10.2.5).
        let qkey = if to.qkey & PRIVILEGED_QKEY != 0 { self.qkey } else { to.qkey };
        let deth = Deth { qkey, source_qpn: ours, reserved: 0 };
        Headers { bth, ext: Extensions { deth: Some(deth), imm: imm.map(ImmDt), ..Extensions::default() } }
    }
}

impl<B> UdQueuePair<B> {
    /// A datagram has left.
    pub fn sent(&mut self) {
        self.psn = self.psn.plus(1);
        self.stats.tx_datagrams += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QKEY: u32 = 0x1111;

    fn queue_pair() -> UdQueuePair<u32> {
        UdQueuePair::new(QKEY, Mtu::Mtu256, Psn::new(0xff_ffff), 1)
    }

    fn packet(qkey: u32, payload: &[u8]) -> Packet<'_> {
        let to = Destination { qpn: Qpn::new(5), qkey };
        Packet { headers: queue_pair().headers(Qpn::new(7), to, None, false), payload }
    }

    fn receive(len: usize) -> RecvRequest<u32> {
        RecvRequest { wr_id: 1, buffer: 0, len: len as u32 }
    }

    #[test]
    fn a_datagram_takes_a_receive_that_holds_it_and_the_header() {
        let mut qp = queue_pair();
        qp.post_recv(receive(GRH_LEN + 3)).expect("room");
        assert_eq!(qp.accept(&packet(QKEY, &[0; 4])), Err(Drop::TooLong));
        assert_eq!(qp.accept(&packet(QKEY, &[0; 3])).map(|receive| receive.wr_id), Ok(1));
        assert_eq!(qp.accept(&packet(QKEY, &[0; 3])), Err(Drop::NoReceive));
        assert_eq!((qp.stats().rx_datagrams, qp.stats().drops), (1, [0, 0, 0, 1, 1]));
    }

    #[test]
    fn a_datagram_with_the_wrong_key_is_dropped() {
        let mut qp = queue_pair();
        qp.post_recv(receive(100)).expect("room");
        assert_eq!(qp.accept(&packet(QKEY + 1, &[])), Err(Drop::Qkey));
        let mut foreign = packet(QKEY, &[]);
        foreign.headers.bth.pkey = Pkey(1);
        assert_eq!(qp.accept(&foreign), Err(Drop::Pkey));
        let mut connected = packet(QKEY, &[]);
        connected.headers.bth.opcode = Opcode::RcSendOnly;
        assert_eq!(qp.accept(&connected), Err(Drop::Transport));
    }

    #[test]
    fn a_privileged_key_stands_for_our_own() {
        let mut qp = queue_pair();
        let to = Destination { qpn: Qpn::new(5), qkey: PRIVILEGED_QKEY | 5 };
        let headers = qp.headers(Qpn::new(7), to, Some(9), true);
        assert_eq!(headers.ext.deth.map(|deth| (deth.qkey, deth.source_qpn)), Some((QKEY, Qpn::new(7))));
        assert_eq!(
            (headers.bth.opcode, headers.bth.psn, headers.bth.solicited),
            (Opcode::UdSendOnlyImm, Psn::new(0xff_ffff), true)
        );
        qp.sent();
        assert_eq!(qp.headers(Qpn::new(7), to, None, false).bth.psn, Psn::new(0));
        assert_eq!(qp.stats().tx_datagrams, 1);
    }

    #[test]
    fn a_full_queue_hands_the_receive_back() {
        let mut qp = queue_pair();
        qp.post_recv(receive(64)).expect("room");
        assert_eq!(qp.post_recv(receive(65)).map_err(|receive| receive.len), Err(65));
        assert_eq!(qp.flush().count(), 1);
    }
}
