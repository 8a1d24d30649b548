//! A port between two processes that is opened beside others that work, without waiting for its peer.

use std::path::Path;
use std::time::Duration;

use super::bring_up::close_gate;
use super::configure;
use super::descriptors;
use super::device::Attachment;
use super::eal::{self, Eal, Setup};
use super::error::PortError;
use super::gate;
use super::idle;
use super::port::DpdkLink;
use crate::link::LinkState;

/// How long the interrupt thread rests between two steps of handshakes, where other ports are at work.
const REST: Duration = Duration::from_millis(2);

/// A port whose peer has not come yet.
pub struct PendingLink {
    link: DpdkLink,
    attachment: Attachment,
}

impl DpdkLink {
    /// Opens one end of a memif port and returns at once. A server has its socket then, at which its client is let in: the one that
    /// was asked for, or that of a port that was kept, in the same directory ([`PendingLink::socket`]). A client has found its server, which must
    /// have come this far before.
    ///
    /// # Errors
    /// DPDK does not start or has no place or memory left, or there is no server.
    ///
    /// # Panics
    /// When the device is another one.
    pub fn begin(attachment: &Attachment) -> Result<PendingLink, PortError> {
        assert!(attachment.tries_again(), "a port of memif, whose ends find each other again");
        let attachments = std::slice::from_ref(attachment);
        eal::check_not_inherited()?;
        let setup = Setup::begin();
        descriptors::check(attachments, Eal::running(&setup).is_some())?;
        let kept = idle::take_beside(&setup, attachment);
        drop(setup);
        if let Some(kept) = kept {
            let attachment = kept.attachment.clone();
            return Ok(PendingLink { link: Self::revive(kept), attachment });
        }
        let mut links = Vec::new();
        Self::create_all(attachments, &mut links)?;
        let link = links.pop().expect("one for each attachment");
        // SAFETY: the port is configured.
        let status = unsafe { dpdk_sys::rte_eth_dev_start(link.port) };
        configure::check(attachment, "rte_eth_dev_start", status)?;
        Ok(PendingLink { link, attachment: attachment.clone() })
    }
}

impl PendingLink {
    /// Returns where a server's client finds it.
    pub fn socket(&self) -> &Path {
        self.attachment.socket()
    }

    /// Returns whether the peer has come. To be called every now and then: where other ports are at work, the handshake goes on
    /// here, and takes a dozen calls at each end.
    pub fn is_up(&mut self) -> bool {
        self.link.look() == LinkState::Up || {
            gate::let_work_after(REST);
            self.link.look() == LinkState::Up
        }
    }

    /// Returns the link, whose peer has come.
    ///
    /// # Errors
    /// DPDK's interrupt thread could not be parked, which would tear the port down while it is used.
    pub fn finish(self) -> Result<DpdkLink, PortError> {
        let mut links = [self.link];
        close_gate(&mut links)?;
        let [link] = links;
        Ok(link)
    }
}
