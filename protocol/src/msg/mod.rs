//! The layouts of the messaging core's own headers.
