//! What must be true of all ranks together, at each step.

use roci_protocol::Rkey;

use super::broken::BrokenPromise;
use super::station::Station;
use crate::Rank;
use crate::services::rma::firehose::Bucket;

/// An RDMA lands at `at`: its memory must be pinned, and be opened by its key, now.
pub(super) fn check_landing(at: &Station, from: Rank, bucket: Bucket, key: Rkey) -> Result<(), BrokenPromise> {
    let pinned = at.host.pinned.get(&bucket).copied();
    if pinned == Some(key) { Ok(()) } else { Err(BrokenPromise::Landing { from, key, bucket, pinned }) }
}

/// What one rank believes, after something has happened to it: alone, and with each of its peers.
pub(super) fn check_around(
    stations: &[Station],
    who: Rank,
    is_dead: impl Fn(Rank) -> bool,
) -> Result<(), BrokenPromise> {
    let station = &stations[who];
    station.engine.check_invariants().map_err(|violation| BrokenPromise::Counts { rank: who, violation })?;
    let (counts, pinned) = (station.engine.pin_counts(), station.host.pinned.len());
    if counts.pinned != pinned {
        return Err(BrokenPromise::Pinned { rank: who, pinned, counts });
    }
    for peer in (0..stations.len()).filter(|&peer| peer != who && !is_dead(peer)) {
        check_pair(stations, who, peer)?;
        check_pair(stations, peer, who)?;
    }
    Ok(())
}

/// Where one's firehoses lead, the other has granted them, and has the memory pinned with that key.
fn check_pair(stations: &[Station], holder: Rank, owner: Rank) -> Result<(), BrokenPromise> {
    if !stations[holder].knows(owner) || !stations[owner].knows(holder) {
        return Ok(());
    }
    for (bucket, key) in stations[holder].engine.firehoses_to(owner.into()) {
        let owner = &stations[owner];
        let is_pinned = owner.engine.key(bucket) == Some(key) && owner.host.pinned.get(&bucket) == Some(&key);
        if !is_pinned || !owner.engine.has_granted(holder.into(), bucket) {
            let state = owner.engine.state(bucket);
            return Err(BrokenPromise::Led { holder, bucket, key, state });
        }
    }
    Ok(())
}

/// When nothing is under way: what the ranks hold together of one's memory is what it counts.
pub(super) fn check_sums(stations: &[Station], owner: Rank) -> Result<(), BrokenPromise> {
    let holders = stations
        .iter()
        .enumerate()
        .filter(|(holder, station)| *holder != owner && station.knows(owner) && stations[owner].knows(*holder));
    let held: usize = holders.map(|(_, station)| station.engine.firehoses_to(owner.into()).len()).sum();
    let counted = stations[owner].engine.pin_counts().held;
    if held as u64 != counted {
        return Err(BrokenPromise::Sum { owner, held, counted });
    }
    Ok(())
}
