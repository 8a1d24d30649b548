//! How errors show themselves: a `main` that returns one prints its `Debug` form, so that is the sentence that `Display` has.

use roci_protocol::debug_as_sentence;

use crate::link::ZeroCopyError;
use crate::link::dpdk::{BindingError, EalError, ParseDeviceError, ParsePciError, PortError};
use crate::link::live::ParseLinkDeviceError;
use crate::link::udp::{ParseUdpAddressError, UdpError};
use crate::{
    AddressHandleError, AdoptError, ArenaError, CmCallError, ConnectError, ListError, MemoryError, MonitorError,
    ParseAddressError, PeerMemoryError, PortConfigError, PostError, RegionError, RegisterError, WrongKind,
};

debug_as_sentence!(
    AddressHandleError,
    AdoptError,
    ArenaError,
    BindingError,
    CmCallError,
    ConnectError,
    EalError,
    ListError,
    MemoryError,
    MonitorError,
    ParseAddressError,
    ParseDeviceError,
    ParseLinkDeviceError,
    ParsePciError,
    ParseUdpAddressError,
    PeerMemoryError,
    PortConfigError,
    PortError,
    PostError,
    RegionError,
    RegisterError,
    UdpError,
    WrongKind,
    ZeroCopyError,
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refused;

    #[test]
    fn a_main_that_returns_an_error_prints_its_sentence() {
        let refused: Refused<_, PostError> = Refused { why: PostError::NoQueuePair, given: [7; 100] };
        assert_eq!(format!("{refused:?}"), PostError::NoQueuePair.to_string());
        assert_eq!(format!("{:?}", roci_protocol::cm::ListenError::InUse), "the service is listened on already");
    }
}
