//! A transfer wants memory of this rank's: the source of a put, the destination of a get.

use super::FirehoseEngine;
use super::bucket::{Region, Span};
use super::environment::Environment;
use super::error::{AcquireError, Failed};
use super::operations::{FirehoseOperation, Hold, OperationId, Phase, Place};
use super::pin_error::PinError;

impl FirehoseEngine {
    /// Pins this rank's memory for a transfer, within MAXVICTIM. It need not lie in the segment that peers reach. A
    /// [`Hold`] says that it is pinned, `None` that the environment will hear of it, with `context`.
    pub fn local_pin(
        &mut self,
        env: &mut impl Environment,
        span: Span,
        context: u64,
    ) -> Result<Option<Hold>, AcquireError> {
        let region = self.limits.grain().cover(span)?;
        let most = self.limits.victims() as u64;
        if region.count() > most {
            return Err(AcquireError::TooLarge { buckets: region.count(), most });
        }
        let id = self.begin(FirehoseOperation { place: Place::Here, span, region, context, phase: Phase::InLine })?;
        if self.line.is_empty() && self.pins.has_room(region) {
            return Ok(self.pin_for(env, id, region).map(Some)?);
        }
        self.stats.stalls += 1;
        self.line.push_back(id);
        Ok(None)
    }

    /// A local operation has ended: the first in line may have its room.
    pub(super) fn advance_local(&mut self, env: &mut impl Environment) {
        while let Some(&id) = self.line.front() {
            let FirehoseOperation { region, context, .. } =
                *self.operations.get(id).expect("who stands in line has not ended");
            if !self.pins.has_room(region) {
                return;
            }
            self.line.pop_front();
            let outcome = self.pin_for(env, id, region).map_err(Failed::Pin);
            env.ended(context, outcome);
        }
    }

    fn pin_for(&mut self, env: &mut impl Environment, id: OperationId, region: Region) -> Result<Hold, PinError> {
        if let Err(error) = self.pins.pin_local(env, &mut self.stats, region) {
            self.stats.failures += 1;
            self.operations.remove(id);
            return Err(error);
        }
        self.operations.get_mut(id).expect("it has not ended").phase = Phase::Granted;
        Ok(self.hold(id))
    }
}
