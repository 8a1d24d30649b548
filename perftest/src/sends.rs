//! `ib_send_lat` and `ib_send_bw`: the client sends, and the one wants each message answered.

use roci_driver::{Operation, Rkey, SendWr, WorkCompletion};

use crate::session::{Client, Session, Word};
use crate::{EngineOwner, ServeError};

const DUE: &str = "messages, or the end of the test";
/// Nothing is opened to a client that only sends.
const NO_KEY: Rkey = Rkey(0);
/// Polls between two looks at the client's connection, which cost a system call each.
const LOOK_EVERY: usize = 64;

/// Takes messages until the client is through, and counts them. How many there are, and how long, is the client's choice.
pub(crate) fn serve<H: EngineOwner>(
    session: &mut Session<'_, H>,
    client: &Client,
    is_answered: bool,
) -> Result<u64, ServeError> {
    for _ in 0..session.settings.receives() {
        let buffer = session.buffer()?;
        session.post_recv(client, buffer)?;
    }
    session.introduce(client, NO_KEY)?;
    let mut messages = 0;
    loop {
        for _ in 0..LOOK_EVERY {
            session.work(DUE)?;
            while let Some(done) = session.completion(DUE)? {
                messages += u64::from(done.operation == Operation::Recv);
                settle(session, client, done, is_answered)?;
            }
        }
        match session.hear(client, DUE)? {
            None => {}
            Some(Word::Keys) => session.introduce(client, NO_KEY)?,
            Some(Word::Done) => {
                session.say_done();
                return Ok(messages);
            }
        }
    }
}

/// A message goes back in the buffer that it came in; a buffer that is free is posted again.
fn settle<H: EngineOwner>(
    session: &mut Session<'_, H>,
    client: &Client,
    done: WorkCompletion,
    is_answered: bool,
) -> Result<(), ServeError> {
    let WorkCompletion { mut buffer, len, operation, .. } = done;
    if is_answered && operation == Operation::Recv {
        buffer.set_len(len);
        return session.post_send(client, SendWr::send(0, buffer));
    }
    buffer.set_len(session.settings.sizes.largest());
    session.post_recv(client, buffer)
}
