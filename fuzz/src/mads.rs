//! Management datagrams: any bytes are read without panic, and what is read can be said again.

use roci_protocol::wire::cm::Mad;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    if let Ok(mad) = Mad::parse(bytes) {
        assert_eq!(mad.emit()[..], bytes[..]);
        assert!(!mad.to_string().is_empty());
    }
}
