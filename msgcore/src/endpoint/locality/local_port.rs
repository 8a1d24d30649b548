//! Opening a port between two processes of one host: what an endpoint asks of it.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use roci_driver::PortConfig;
use roci_driver::link::Link;
use thiserror::Error;

use super::message::MeetingPoint;

/// Opens ports between two processes of this host, for the engine of one endpoint.
pub trait LocalPorts<L: Link>: Send {
    /// Opens the server's end of a port, and returns where its client finds it.
    ///
    /// # Errors
    /// There is no place or memory for it.
    fn serve(&mut self) -> Result<(Box<dyn PendingPort<L>>, MeetingPoint), LocalPortError>;

    /// Opens the client's end, where the server waits.
    ///
    /// # Errors
    /// There is no place or memory for it, or no server.
    fn join(&mut self, point: &MeetingPoint) -> Result<Box<dyn PendingPort<L>>, LocalPortError>;

    /// Returns a link that does nothing, for the place of one that is closed.
    fn closed(&self) -> L;
}

/// A port whose peer has not come yet.
pub trait PendingPort<L: Link>: Send {
    /// Whether the link is up. To be called until it is.
    fn is_up(&mut self) -> bool;

    /// Returns the link, which is up, and this host on it.
    ///
    /// # Errors
    /// It cannot be used.
    fn finish(self: Box<Self>) -> Result<(L, PortConfig), LocalPortError>;
}

/// Why there is no port between two processes of this host. They connect over the network then.
#[derive(Debug, Error)]
#[error("no local port: {0}")]
pub struct LocalPortError(pub String);

/// Whether a socket is the one that the server has made, and its user's.
pub(super) fn check_point(point: &MeetingPoint) -> Result<(), LocalPortError> {
    let seen = point.path.symlink_metadata().map_err(|error| elsewhere(point, &error))?;
    let is_it = seen.file_type().is_socket()
        && (seen.dev(), seen.ino()) == point.file
        && seen.uid() == rustix::process::geteuid().as_raw();
    if is_it { Ok(()) } else { Err(elsewhere(point, &io::ErrorKind::NotFound.into())) }
}

fn elsewhere(point: &MeetingPoint, error: &io::Error) -> LocalPortError {
    LocalPortError(format!("the peer's {} is not to be seen from here: {error}", point.path.display()))
}
