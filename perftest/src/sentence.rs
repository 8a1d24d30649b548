//! How errors show themselves: a `main` that returns one prints its `Debug` form, so that is the sentence that `Display` has.

use roci_protocol::debug_as_sentence;

use crate::error::ServeError;
use crate::settings::{SettingsError, UnknownTest};

debug_as_sentence!(ServeError, SettingsError, UnknownTest);
