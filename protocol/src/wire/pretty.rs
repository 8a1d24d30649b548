//! One line a packet, for people.

use std::fmt;

use super::cm::Mad;
use super::{NakCode, Packet, Syndrome};
use crate::rc::rnr_timer_ns;

impl fmt::Display for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = &self.headers.bth;
        let ext = &self.headers.ext;
        write!(f, "{} dest_qpn={} psn={}", bth.opcode.name(), bth.dest_qpn, bth.psn)?;
        write!(f, " payload={} pad={} pkey={}", self.payload.len(), bth.pad, bth.pkey)?;
        write_flags(f, self)?;
        if let Some(deth) = ext.deth {
            write!(f, " deth[qkey={:#010x} source_qpn={}]", deth.qkey, deth.source_qpn)?;
        }
        if let Some(reth) = ext.reth {
            write!(f, " reth[va={:#x} rkey={:#010x} len={}]", reth.va, reth.rkey.0, reth.len)?;
        }
        if let Some(a) = ext.atomic {
            let (va, rkey) = (a.va, a.rkey.0);
            write!(f, " atomic[va={va:#x} rkey={rkey:#010x} swap_add={:#x} compare={:#x}]", a.swap_or_add, a.compare)?;
        }
        if let Some(aeth) = ext.aeth {
            write!(f, " aeth[{} msn={}]", aeth.syndrome, aeth.msn.get())?;
        }
        if let Some(ack) = ext.atomic_ack {
            write!(f, " original={:#x}", ack.original)?;
        }
        if let Some(imm) = ext.imm {
            write!(f, " imm={:#010x}", imm.0)?;
        }
        if let Some(ieth) = ext.ieth {
            write!(f, " invalidate={:#010x}", ieth.0.0)?;
        }
        if let Some(Ok(mad)) = Mad::of_packet(self) {
            write!(f, " cm[{mad}]")?;
        }
        Ok(())
    }
}

/// The names of the flags that are set, in the order of the header.
pub fn flags(packet: &Packet<'_>) -> impl Iterator<Item = &'static str> {
    let bth = &packet.headers.bth;
    let all =
        [(bth.solicited, "se"), (bth.mig_req, "mig"), (bth.fecn, "fecn"), (bth.becn, "becn"), (bth.ack_req, "ackreq")];
    all.into_iter().filter_map(|(set, name)| set.then_some(name))
}

fn write_flags(f: &mut fmt::Formatter<'_>, packet: &Packet<'_>) -> fmt::Result {
    let mut separator = " flags=";
    for name in flags(packet) {
        write!(f, "{separator}{name}")?;
        separator = ",";
    }
    Ok(())
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ack { credit } => write!(f, "ack credit={credit}"),
            Self::Rnr { timer } => write!(f, "rnr timer={timer} ({} us)", rnr_timer_ns(timer) / 1000),
            Self::Nak(code) => write!(f, "nak {code}"),
            Self::Reserved(byte) => write!(f, "reserved {byte:#04x}"),
        }
    }
}

impl fmt::Display for NakCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PsnSequence => "psn_sequence_error",
            Self::InvalidRequest => "invalid_request",
            Self::RemoteAccess => "remote_access_error",
            Self::RemoteOperational => "remote_operational_error",
            Self::InvalidRdRequest => "invalid_rd_request",
        })
    }
}
