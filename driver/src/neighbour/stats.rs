//! What became of each frame, and the counters of it.

/// What a frame was to the neighbour table; each has a counter of the same name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NeighbourVerdict {
    /// ARP that was answered or learnt from.
    Arp,
    /// Neighbour discovery that was answered or learnt from.
    Ndp,
    /// An echo request, answered.
    Echo,
    /// ARP or neighbour discovery that claims a static neighbour's address, or ours, for another station. The
    /// claim is not believed; a question that came with it may have been answered.
    Conflict,
    /// Nothing was done.
    Ignored(Ignored),
}

/// Why nothing was done about a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Ignored {
    /// Shorter than an Ethernet header with its tag.
    Truncated,
    /// Sent by our own station.
    OwnFrame,
    /// For another station.
    OtherStation,
    /// On a VLAN where we have no address.
    WrongVlan,
    /// Neither ARP, nor neighbour discovery, nor an echo request.
    OtherProtocol,
    /// Lengths, versions or address formats that contradict the protocol.
    Malformed,
    /// A checksum does not match.
    Checksum,
    /// An IPv4 fragment.
    Fragment,
    /// Neighbour discovery from off the link: the hop limit is not 255.
    HopLimit,
    /// Well formed, but with values that the protocol's checks refuse.
    Invalid,
    /// Asks for an address that is not ours, or announces one that was not asked for.
    NotOurs,
}

impl Ignored {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [Self; 11] = [
        Self::Truncated,
        Self::OwnFrame,
        Self::OtherStation,
        Self::WrongVlan,
        Self::OtherProtocol,
        Self::Malformed,
        Self::Checksum,
        Self::Fragment,
        Self::HopLimit,
        Self::Invalid,
        Self::NotOurs,
    ];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "nb_truncated",
            Self::OwnFrame => "nb_own_frame",
            Self::OtherStation => "nb_other_station",
            Self::WrongVlan => "nb_wrong_vlan",
            Self::OtherProtocol => "nb_other_protocol",
            Self::Malformed => "nb_malformed",
            Self::Checksum => "nb_checksum",
            Self::Fragment => "nb_fragment",
            Self::HopLimit => "nb_hop_limit",
            Self::Invalid => "nb_invalid",
            Self::NotOurs => "nb_not_ours",
        }
    }
}

/// Counters of the neighbours; each frame raises exactly one of those that [`NeighbourStats::frames`] adds up.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NeighbourStats {
    /// Frames of ARP that were answered or learnt from.
    pub arp: u64,
    /// Frames of neighbour discovery that were answered or learnt from.
    pub ndp: u64,
    /// Echo requests answered.
    pub echo: u64,
    /// Frames that claimed a static neighbour's address, or ours.
    pub conflict: u64,
    ignored: [u64; Ignored::ALL.len()],
    /// Questions sent.
    pub tx_requests: u64,
    /// Addresses for which no answer came.
    pub unanswered: u64,
    /// Entries that gave way to another in a full table.
    pub evicted: u64,
    /// Addresses not asked for because too many were.
    pub too_many: u64,
    /// Stations not learnt from their questions because too many others just were.
    pub too_fast: u64,
}

impl NeighbourStats {
    /// Frames ignored for this reason.
    pub const fn ignored(&self, reason: Ignored) -> u64 {
        self.ignored[reason as usize]
    }

    /// How many frames there were.
    pub fn frames(&self) -> u64 {
        self.arp + self.ndp + self.echo + self.conflict + self.ignored.iter().sum::<u64>()
    }

    /// Every counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let frames =
            [("nb_arp", self.arp), ("nb_ndp", self.ndp), ("nb_echo", self.echo), ("nb_conflict", self.conflict)];
        let ignored = Ignored::ALL.map(|reason| (reason.name(), self.ignored(reason)));
        let table = [
            ("nb_tx_requests", self.tx_requests),
            ("nb_unanswered", self.unanswered),
            ("nb_evicted", self.evicted),
            ("nb_too_many", self.too_many),
            ("nb_too_fast", self.too_fast),
        ];
        frames.into_iter().chain(ignored).chain(table)
    }

    pub(super) fn count(&mut self, verdict: NeighbourVerdict) {
        let counter = match verdict {
            NeighbourVerdict::Arp => &mut self.arp,
            NeighbourVerdict::Ndp => &mut self.ndp,
            NeighbourVerdict::Echo => &mut self.echo,
            NeighbourVerdict::Conflict => &mut self.conflict,
            NeighbourVerdict::Ignored(reason) => &mut self.ignored[reason as usize],
        };
        *counter += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{Ignored, NeighbourStats};

    #[test]
    fn the_list_of_reasons_follows_the_discriminants() {
        for (index, reason) in Ignored::ALL.into_iter().enumerate() {
            assert_eq!(index, reason as usize);
        }
    }

    #[test]
    fn every_counter_has_a_name_of_its_own() {
        let mut names: Vec<_> = NeighbourStats::default().iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
