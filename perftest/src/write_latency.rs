//! `ib_write_lat`: each side counts its messages in their last byte, and waits for the other's count to appear there. The
//! server begins, and so it is the one test whose server must know how many messages there are.

use roci_driver::{Buffer, MemoryRegion, SendWr};

use crate::passive::with_region;
use crate::session::{Client, Session};
use crate::{EngineOwner, ServeError};

const MEETING: &str = "the news that it is ready";
const MESSAGE: &str = "its next message";
const END: &str = "the end of the test";
/// Polls between two looks at the client's connection, which cost a system call each.
const LOOK_EVERY: usize = 64;

/// Sends messages and waits for as many. The client hangs up at the end, and needs our acknowledgements until then.
pub(crate) fn serve<H: EngineOwner>(session: &mut Session<'_, H>, client: &Client) -> Result<u64, ServeError> {
    with_region(session, client, |session, region| {
        let mut buffer = session.buffer()?;
        session.introduce(client, region.rkey())?;
        for _ in 0..3 {
            session.meet_again(client, region.rkey(), MEETING)?;
        }
        let mut messages = 0;
        for size in session.settings.sizes.each() {
            for count in 1..=session.settings.iterations {
                buffer = ping(session, client, region, buffer, (size, count as u8))?;
                messages += 1;
            }
        }
        await_hang_up(session, client)?;
        Ok(messages)
    })
}

/// Sends a message, and waits for the client's with the same count. The buffer comes back.
fn ping<H: EngineOwner>(
    session: &mut Session<'_, H>,
    client: &Client,
    region: MemoryRegion,
    mut buffer: Buffer,
    (size, count): (usize, u8),
) -> Result<Buffer, ServeError> {
    buffer.set_len(size);
    buffer[size - 1] = count;
    session.post_send(client, SendWr::write(0, buffer, client.keys.rkey, client.keys.va))?;
    let mut sent = None;
    loop {
        for _ in 0..LOOK_EVERY {
            session.work(MESSAGE)?;
            if let Some(done) = session.completion(MESSAGE)? {
                sent = Some(done.buffer);
            }
            if last_byte(session, region, size) == Some(count)
                && let Some(buffer) = sent.take()
            {
                return Ok(buffer);
            }
        }
        look(session, client, MESSAGE)?;
    }
}

fn last_byte<H: EngineOwner>(session: &mut Session<'_, H>, region: MemoryRegion, size: usize) -> Option<u8> {
    let pd = session.pd;
    let mut byte = [0];
    session.engine().read_region(pd, region, size - 1, &mut byte).map(|()| byte[0])
}

/// The client has nothing to say until it hangs up.
fn look<H: EngineOwner>(session: &mut Session<'_, H>, client: &Client, due: &'static str) -> Result<(), ServeError> {
    session.check(client, due)?;
    match session.hear(client, due)? {
        None => Ok(()),
        Some(_) => Err(ServeError::OtherTest(due)),
    }
}

fn await_hang_up<H: EngineOwner>(session: &mut Session<'_, H>, client: &Client) -> Result<(), ServeError> {
    loop {
        match look(session, client, END) {
            Ok(()) => session.work(END)?,
            Err(ServeError::HungUp(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
