//! Multi-receives, at the application's side.

use roci_driver::Buffer;

use super::calls::UNCHANGED;
use super::rings::{Command, RecvMulti};
use super::{DedicatedWorker, EngineHost};
use crate::Request;
use crate::core::refused::Refused;
use crate::endpoint::buffer_checks::check_multi;
use crate::services::tag::matching::Pattern;

impl<H: EngineHost> DedicatedWorker<H> {
    /// Receives messages into `buffer`, one behind the other, as [`Worker::recv_multi`](crate::Worker::recv_multi) does.
    pub fn recv_multi(
        &mut self,
        pattern: Pattern,
        buffer: Buffer,
        least: usize,
        context: u64,
    ) -> Result<Request, Refused<Buffer>> {
        let can_be = self.check_source(&pattern).and_then(|()| check_multi(&buffer));
        let request = match can_be.and_then(|()| self.mint()) {
            Ok(request) => request,
            Err(why) => return Err(Refused::new(why, buffer)),
        };
        self.outcomes.queue_completion(request, context);
        let multi = RecvMulti { request, pattern, buffer, least };
        self.begin(request, Command::RecvMulti(Box::new(multi))).map_err(|(why, command)| match command {
            Command::RecvMulti(multi) => Refused::new(why, multi.buffer),
            _ => unreachable!("{UNCHANGED}"),
        })
    }
}
