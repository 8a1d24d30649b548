//! How errors show themselves: a `main` that returns one prints its `Debug` form, so that is the sentence that `Display` has.

use roci_protocol::debug_as_sentence;

use crate::ConfigError;
use crate::core::breach::Breach;
use crate::core::completion::{MultiReceiveFailed, OpError, SomeFailed, Truncated};
use crate::core::no_connection::{NoConnection, NoReceives};
use crate::core::refused::CallError;
use crate::core::stage::IllegalStep;
use crate::endpoint::address::BadEndpointAddress;
use crate::endpoint::invariants::{InvariantViolation, LaneViolation};
use crate::endpoint::strangers::InsertError;
use crate::services::stream::StreamError;
use crate::worker::alone::ExchangeError;
use crate::worker::closing::CloseError;
use crate::worker::domain::DomainError;
use crate::worker::flush::FlushError;
use crate::worker::wireup_error::WireupError;

debug_as_sentence!(
    BadEndpointAddress,
    Breach,
    CallError,
    CloseError,
    DomainError,
    ConfigError,
    ExchangeError,
    FlushError,
    IllegalStep,
    InsertError,
    InvariantViolation,
    LaneViolation,
    MultiReceiveFailed,
    NoConnection,
    NoReceives,
    OpError,
    SomeFailed,
    StreamError,
    Truncated,
    WireupError,
);

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn a_main_that_returns_an_error_prints_its_sentence() {
        let error = Config::default().set("credit", "4", crate::config::Origin::Code).expect_err("no knob");
        assert_eq!(format!("{error:?}"), "unknown knob 'credit': did you mean 'credits'?");
        let error = "10.0.0.1".parse::<crate::EndpointAddress>().expect_err("no address");
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
