//! `roci decode`: one line a packet, with its time, the ICRC's verdict, the protocol's complaint, and whether it was sent
//! again; or one line a conversation.

mod conversations;
mod filter;
mod flows;
mod json;
mod packet;

use std::process::ExitCode;

use clap::ValueEnum;
use roci_protocol::Nanos;

pub(crate) use self::filter::Only;
use self::flows::Flows;
use self::packet::CapturedPacket;
pub(crate) use self::packet::is_roce;
use crate::capture::for_each_frame;
use crate::failure::Failure;
use crate::options::DecodeOptions;
use crate::output;

/// A dissector of what is ours, for Wireshark.
const DISSECTOR: &str = include_str!("../../../rocinante.lua");

/// Which time of a packet is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum PrintedTime {
    /// Seconds since the first packet
    Relative,
    /// Seconds since the packet before it
    Delta,
    /// Seconds since 1970
    Absolute,
    /// None
    None,
}

pub(crate) fn run(options: &DecodeOptions) -> Result<ExitCode, Failure> {
    let Some(file) = &options.file else {
        output::line(DISSECTOR.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    };
    let (mut index, mut found) = (0u64, 0u64);
    let mut times = PacketTimes { printed: options.time, first: None, last: None };
    let mut flows = Flows::default();
    for_each_frame(file, |captured, bytes| {
        let mut seen = CapturedPacket::read(index, captured.and_then(|at| times.of(at)), bytes);
        seen.mark = flows.note(captured, &seen);
        index += 1;
        found += u64::from(seen.is_roce());
        if options.conversations || !filter::is_wanted(options, &seen) {
            Ok(())
        } else if options.json {
            Ok(output::line(json::line(&seen))?)
        } else {
            Ok(output::line(seen)?)
        }
    })?;
    if found == 0 {
        let file = file.display();
        return Err(Failure::new(format!("{file}: none of its {index} frames is a RoCEv2 packet")));
    }
    if options.conversations {
        conversations::print(&flows, options.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Turns times of the capture into those that are printed.
struct PacketTimes {
    printed: PrintedTime,
    first: Option<Nanos>,
    last: Option<Nanos>,
}

impl PacketTimes {
    fn of(&mut self, captured: Nanos) -> Option<Nanos> {
        let first = *self.first.get_or_insert(captured);
        let last = self.last.replace(captured).unwrap_or(captured);
        match self.printed {
            PrintedTime::Relative => Some(captured.saturating_sub(first)),
            PrintedTime::Delta => Some(captured.saturating_sub(last)),
            PrintedTime::Absolute => Some(captured),
            PrintedTime::None => None,
        }
    }
}
