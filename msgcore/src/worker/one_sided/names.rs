//! Keys by name: a rank leaves the key to its memory with the launcher, and any rank of the job finds it there.

use roci_driver::link::Link;

use super::SegmentKey;
use crate::Worker;
use crate::backoff::Backoff;
use crate::core::completion::OpError;
use crate::core::refused::CallError;
use crate::worker::report::Awaited;

/// How often this rank makes progress, or idles, between two questions.
const LOOKS: u32 = 16;

/// Keys of a job by their names.
pub trait KeyNames {
    /// Leaves the key to a segment, or to what is offered, under a name with the launcher, until the job ends. A name has 1 to 200
    /// characters, and none of them is a blank.
    ///
    /// # Errors
    /// The name is none, or taken; there is no launcher, or it has no room.
    fn publish_key(&mut self, name: &str, key: SegmentKey) -> Result<(), CallError>;

    /// Waits until some rank has left a key under a name, and returns it.
    ///
    /// # Errors
    /// The name is none, there is no launcher, or the job is over.
    fn find_key(&mut self, name: &str) -> Result<SegmentKey, CallError>;
}

impl<L: Link> KeyNames for Worker<L> {
    fn publish_key(&mut self, name: &str, key: SegmentKey) -> Result<(), CallError> {
        let place = place_of(name)?;
        if self.is_forked() {
            return Err(CallError::Forked);
        }
        let job = self.job.as_mut().ok_or(CallError::NoLauncher)?;
        job.put(&place, &to_text(key)).map_err(|error| OpError::Job(error.to_string()).into())
    }

    fn find_key(&mut self, name: &str) -> Result<SegmentKey, CallError> {
        let place = place_of(name)?;
        let mut backoff = Backoff::new(self.limits);
        loop {
            if self.is_forked() {
                return Err(CallError::Forked);
            }
            let job = self.job.as_mut().ok_or(CallError::NoLauncher)?;
            let found = job.look(&place).map_err(|error| OpError::Job(error.to_string()))?;
            if let Some(text) = found {
                return of_text(&text).ok_or(CallError::BadName(name.to_owned()));
            }
            // Peers may need this rank before they can publish anything.
            for _ in 0..LOOKS {
                self.progress_or_idle(&mut backoff, Awaited::Key)?;
            }
        }
    }
}

/// The name on the launcher's board.
fn place_of(name: &str) -> Result<String, CallError> {
    let is_good =
        (1..=200).contains(&name.chars().count()) && !name.chars().any(|c| c.is_whitespace() || c.is_control());
    if is_good { Ok(format!("key:{name}")) } else { Err(CallError::BadName(name.to_owned())) }
}

fn to_text(key: SegmentKey) -> String {
    key.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn of_text(text: &str) -> Option<SegmentKey> {
    let digits = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digits).collect();
    SegmentKey::from_bytes(&bytes?)
}
