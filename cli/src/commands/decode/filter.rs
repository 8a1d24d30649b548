//! Which packets of a capture are printed.

use clap::ValueEnum;
use roci_protocol::wire::{Frame, Syndrome};

use super::flows::PacketMark;
use super::packet::{CapturedPacket, name_of_unread};
use crate::options::DecodeOptions;

/// A kind of packet that something is wrong with, or that says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Only {
    /// A packet that was captured before
    Retransmitted,
    /// A packet behind which others were captured before
    OutOfOrder,
    /// A NAK or an RNR NAK
    Nak,
    /// A wrong ICRC, or a packet that cannot be read
    Bad,
}

/// Whether a packet has all that was asked for.
pub(super) fn is_wanted(options: &DecodeOptions, seen: &CapturedPacket<'_>) -> bool {
    let frame = seen.frame.ok();
    let has_qpn = options.qpn.is_empty() || frame.is_some_and(|frame| options.qpn.contains(&qpn(&frame)));
    let is_of_host =
        |frame: Frame<'_>| options.host.iter().any(|host| [frame.ip.source(), frame.ip.destination()].contains(host));
    let has_host = options.host.is_empty() || frame.is_some_and(is_of_host);
    let name = frame.map_or_else(|| name_of_unread(seen.bytes), |frame| frame.packet.headers.bth.opcode.name().into());
    let has_opcode = options.opcode.is_empty() || options.opcode.iter().any(|part| name.contains(&part.to_uppercase()));
    let is_kind = options.only.is_empty() || options.only.iter().any(|&only| is(only, seen, frame.as_ref()));
    has_qpn && has_host && has_opcode && is_kind
}

fn qpn(frame: &Frame<'_>) -> u32 {
    frame.packet.headers.bth.dest_qpn.get()
}

fn is(only: Only, seen: &CapturedPacket<'_>, frame: Option<&Frame<'_>>) -> bool {
    match only {
        Only::Retransmitted => seen.mark == Some(PacketMark::Retransmitted),
        Only::OutOfOrder => seen.mark == Some(PacketMark::OutOfOrder),
        Only::Nak => frame
            .and_then(|frame| frame.packet.headers.ext.aeth)
            .is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::Nak(_) | Syndrome::Rnr { .. })),
        Only::Bad => seen.is_roce() && (frame.is_none() || seen.has_bad_icrc()),
    }
}
