//! READs, atomics, and WRITEs in a stream: the client works alone on memory of ours, and the engine answers it.

use roci_driver::{Access, MemoryRegion};

use crate::exchange::{ClientReport, REPORT_NUMBERS};
use crate::session::{Client, Session};
use crate::{EngineOwner, ServeError};

const MEETING: &str = "the news that it is ready";
const RESULT: &str = "the news that it is through";
const REPORT: &str = "its report";

/// `ib_read_lat` and `ib_atomic_lat`.
pub(crate) fn serve_latency<H: EngineOwner>(session: &mut Session<'_, H>, client: &Client) -> Result<(), ServeError> {
    with_region(session, client, |session, region| {
        session.introduce(client, region.rkey())?;
        session.see_off(client, region.rkey())
    })
}

/// `ib_write_bw`, `ib_read_bw` and `ib_atomic_bw`.
pub(crate) fn serve_bandwidth<H: EngineOwner>(
    session: &mut Session<'_, H>,
    client: &Client,
) -> Result<ClientReport, ServeError> {
    with_region(session, client, |session, region| {
        session.introduce(client, region.rkey())?;
        for due in [MEETING, MEETING, RESULT] {
            session.meet_again(client, region.rkey(), due)?;
        }
        let report = exchange_reports(session, client)?;
        session.see_off(client, region.rkey())?;
        Ok(report)
    })
}

/// Runs `action` while the client may reach memory of ours, all zeros: as much as its longest message, or as all those
/// that it spreads.
pub(crate) fn with_region<H: EngineOwner, R>(
    session: &mut Session<'_, H>,
    client: &Client,
    action: impl FnOnce(&mut Session<'_, H>, MemoryRegion) -> Result<R, ServeError>,
) -> Result<R, ServeError> {
    let len = session.settings.sizes.largest().max(client.cycle_buffer);
    let mut buffer = session.buffer_of(len)?;
    buffer.fill(0);
    let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC);
    let pd = session.pd;
    let region = session.engine().register(pd, buffer, access).map_err(|_| ServeError::NoKey)?;
    let outcome = action(session, region);
    session.engine().deregister(region);
    outcome
}

/// We have measured nothing, and say so: clients look at it in tests of both directions only.
fn exchange_reports<H: EngineOwner>(session: &mut Session<'_, H>, client: &Client) -> Result<ClientReport, ServeError> {
    let mut numbers = [[0; 8]; REPORT_NUMBERS];
    for number in &mut numbers {
        *number = session.read_figure(client, REPORT)?;
        session.send(&[0; 8], REPORT)?;
    }
    Ok(ClientReport::parse(numbers))
}
