//! Whether the link is up, and when that is looked at.

use roci_protocol::Nanos;

use super::device::Attachment;
use crate::link::LinkState;

/// How often the gate opens and the link's state is looked at.
const MAINTAIN_NS: Nanos = 50_000_000;

/// The state of a port's link as of the last look.
pub(super) struct LinkWatch {
    pub(super) state: LinkState,
    next: Nanos,
    /// The device, where it leads to a network: one peer's end is no news of the link.
    network: Option<Box<str>>,
}

impl LinkWatch {
    pub(super) fn new(attachment: &Attachment) -> Self {
        let network = (!attachment.device().is_point_to_point()).then(|| attachment.device().to_string().into());
        Self { state: LinkState::Down, next: 0, network }
    }

    #[inline]
    pub(super) fn is_down(&self) -> bool {
        self.state == LinkState::Down
    }

    /// Whether it is time to look again; the next time is noted.
    #[inline]
    pub(super) fn is_due(&mut self, now: Nanos) -> bool {
        let is_due = now >= self.next;
        if is_due {
            self.next = now + MAINTAIN_NS;
        }
        is_due
    }

    /// Logs the state, where the device leads to a network.
    pub(super) fn report(&self) {
        if let Some(device) = self.network.as_deref() {
            log_state(device, self.state);
        }
    }
}

#[cold]
fn log_state(device: &str, state: LinkState) {
    match state {
        LinkState::Down => tracing::warn!("device {device}: the link is down, and frames are lost until it is up"),
        LinkState::Up => tracing::warn!("device {device}: the link is up again"),
    }
}
