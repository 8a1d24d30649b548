//! Packet scripts: one scenario each, against a requester or a responder alone.
