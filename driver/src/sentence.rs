//! How errors show themselves: a `main` that returns one prints its `Debug` form, so that is the sentence that `Display` has.

use crate::link::dpdk::{EalError, PortError};
use crate::link::udp::UdpError;
use crate::{
    AddressHandleError, AdoptError, ArenaError, CmCallError, ConnectError, ListError, MemoryError, PortConfigError,
    PostError, RefusedRequest, RegionError, RegisterError,
};

/// Gives errors a `Debug` form that is their `Display` form.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_sentence {
    ($($error:ident $(<$parameter:ident>)?),* $(,)?) => {$(
        impl $(<$parameter>)? std::fmt::Debug for $error $(<$parameter>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

debug_as_sentence!(
    AddressHandleError,
    AdoptError,
    ArenaError,
    CmCallError,
    ConnectError,
    EalError,
    ListError,
    MemoryError,
    PortConfigError,
    PortError,
    PostError,
    RefusedRequest<W>,
    RegionError,
    RegisterError,
    UdpError,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_that_returns_an_error_prints_its_sentence() {
        let refused = RefusedRequest { reason: PostError::NoQueuePair, request: [7; 100] };
        assert_eq!(format!("{refused:?}"), PostError::NoQueuePair.to_string());
    }
}
