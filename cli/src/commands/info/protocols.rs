//! `roci info --protocols`: which protocol carries which lengths, and why. In a job rank 0 prints one table for each peer,
//! with the protocols of their connection; elsewhere the command prints a table for each kind of peer and moment that makes
//! a difference.

use std::process::ExitCode;

use roci_msgcore::config::show_size;
use roci_msgcore::ports;
use roci_msgcore::{Capabilities, Circumstances, Config, ProtocolRange, Worker, protocol_ranges};
use serde_json::json;

use crate::failure::Failure;
use crate::output;

/// To whom, and the rows.
type Section = (String, Vec<ProtocolRange>);

pub(super) fn run(config: &Config, as_json: bool) -> Result<ExitCode, Failure> {
    let Some(job) = ports::join_if_started(config)? else {
        print(&sections_of(config), as_json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut worker = Worker::open_job(config, job)?;
    worker.connect_all()?;
    if worker.rank() == 0 {
        let of_peer = |peer| Some((format!("rank {peer}"), worker.protocol_ranges(peer)?));
        print(&(0..worker.size()).filter_map(of_peer).collect::<Vec<_>>(), as_json)?;
    }
    worker.close()?;
    Ok(ExitCode::SUCCESS)
}

/// The peers and moments that make a difference.
fn sections_of(config: &Config) -> Vec<Section> {
    let well = Circumstances { peer: Capabilities { rdma: true }, has_credits: true, has_keys: true };
    let without_credits = Circumstances { has_credits: false, ..well };
    let sections = if config.rdma {
        vec![
            ("a peer with RDMA", well),
            ("one that has few receives left", without_credits),
            ("one, while no key is left", Circumstances { has_keys: false, ..well }),
            ("a peer without RDMA", Circumstances { peer: Capabilities { rdma: false }, ..well }),
        ]
    } else {
        // What the peer can do makes no difference then.
        vec![("any peer, with ROCI_RDMA=off here", well), ("one that has few receives left", without_credits)]
    };
    let table = |(name, circumstances): (&str, _)| (name.to_owned(), protocol_ranges(config, &circumstances));
    sections.into_iter().map(table).collect()
}

fn print(sections: &[Section], as_json: bool) -> Result<(), Failure> {
    if as_json {
        output::line(json(sections))?;
    } else {
        output::line(text(sections))?;
    }
    Ok(())
}

/// A line for each range, below whom it is sent to.
fn text(sections: &[Section]) -> String {
    let line = |row: &ProtocolRange| {
        let range = format!("{} to {} bytes", show_size(&row.from), show_size(&row.to));
        format!("  {range:<25}{:<10}{}", row.protocol.to_string(), row.reason)
    };
    let section = |(name, rows): &Section| {
        let head = format!("To {name}:");
        std::iter::once(head).chain(rows.iter().map(line)).collect::<Vec<_>>().join("\n")
    };
    sections.iter().map(section).collect::<Vec<_>>().join("\n\n")
}

fn json(sections: &[Section]) -> serde_json::Value {
    let row = |row: &ProtocolRange| {
        let (protocol, reason) = (row.protocol.to_string(), row.reason.to_string());
        json!({"from": row.from, "to": row.to, "protocol": protocol, "reason": reason})
    };
    let section = |(name, rows): &Section| json!({"to": name, "ranges": rows.iter().map(row).collect::<Vec<_>>()});
    json!(sections.iter().map(section).collect::<Vec<_>>())
}
