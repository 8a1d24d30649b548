//! How errors show themselves: a `main` that returns one prints its `Debug` form, so that is the sentence that `Display` has.

use crate::NoPkey;
use crate::cm::{CmError, ListenError};
use crate::rc::{Denied, RcPostError};
use crate::wire::ethernet::ParseMacError;

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

debug_as_sentence!(CmError, Denied, ListenError, NoPkey, ParseMacError, RcPostError);
