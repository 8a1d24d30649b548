//! A port between two processes that is opened beside others that work, without waiting for its peer.

use std::time::{Duration, Instant};

use super::bring_up::close_gate;
use super::configure;
use super::descriptors;
use super::device::Attachment;
use super::eal::{Eal, Setup, SyscallRefusal};
use super::error::PortError;
use super::gate;
use super::port::DpdkLink;
use crate::link::LinkState;

/// How long the interrupt thread rests between two steps of the handshake, where other ports are at work.
const REST: Duration = Duration::from_millis(1);

/// A port whose peer has not come yet.
pub struct PendingLink {
    link: DpdkLink,
    attachment: Attachment,
    /// When the interrupt thread was let go last.
    last_step: Instant,
}

impl DpdkLink {
    /// Opens one end of a memif port and returns at once. A server has made its socket then, at which its client is let in; a
    /// client has found its server, which must have come this far before.
    ///
    /// # Errors
    /// DPDK does not start or has no place or memory left, or there is no server.
    ///
    /// # Panics
    /// When the device is another one.
    pub fn begin(attachment: &Attachment) -> Result<PendingLink, PortError> {
        let _ = SyscallRefusal::take();
        assert!(attachment.tries_again(), "a port of memif, whose ends find each other again");
        let attachments = std::slice::from_ref(attachment);
        descriptors::check(attachments, Eal::running(&Setup::begin()).is_some())?;
        let mut links = Vec::new();
        Self::create_all(attachments, &mut links)?;
        let link = links.pop().expect("one for each attachment");
        // SAFETY: the port is configured.
        let status = unsafe { dpdk_sys::rte_eth_dev_start(link.port) };
        configure::check(attachment, "rte_eth_dev_start", status)?;
        Ok(PendingLink { link, attachment: attachment.clone(), last_step: Instant::now() })
    }
}

impl PendingLink {
    /// Returns whether the peer has come. To be called every now and then: where other ports are at work, the handshake goes on
    /// here, and takes a dozen calls at each end.
    ///
    /// # Errors
    /// The kernel refuses something that the handshake needs.
    pub fn is_up(&mut self) -> Result<bool, PortError> {
        if self.link.look() == LinkState::Up {
            return Ok(true);
        }
        if let Some(cause) = SyscallRefusal::take() {
            return Err(PortError::Refused { device: self.attachment.device().to_string(), cause });
        }
        if self.last_step.elapsed() >= REST {
            gate::let_work();
            self.last_step = Instant::now();
        }
        Ok(false)
    }

    /// Returns the link, whose peer has come. Its socket is removed: no other client will, and so the port need not be kept when the
    /// link goes.
    ///
    /// # Errors
    /// DPDK's interrupt thread could not be parked, which would tear the port down while it is used.
    pub fn finish(self) -> Result<DpdkLink, PortError> {
        let mut links = [self.link];
        close_gate(&mut links)?;
        let [mut link] = links;
        if let Some(socket) = self.attachment.lasting_socket() {
            // Somebody else may have done so.
            let _ = std::fs::remove_file(socket);
            link.pool.lasting = None;
        }
        Ok(link)
    }
}
