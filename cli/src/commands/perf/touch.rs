//! Payload of bare frames that is really written and read, as an application's is: a copy on either side.

use std::hint::black_box;

/// The payload of bare frames that the processor writes and reads.
pub(super) struct TouchedPayload {
    source: Vec<u8>,
    sink: Vec<u8>,
    /// Bytes of each frame but the last.
    full: usize,
    /// Where the next frame of the message that comes goes.
    at: usize,
}

impl TouchedPayload {
    /// Of messages in `parts` frames of `full` bytes and one more of `last` bytes.
    pub(super) fn new(parts: usize, full: usize, last: usize) -> Self {
        let len = parts * full + last;
        let byte = |at: usize| (at as u32).wrapping_mul(0x9e37_79b1).to_be_bytes()[0];
        Self { source: (0..len).map(byte).collect(), sink: vec![0; len], full, at: 0 }
    }

    /// Writes all of `body`, the frame of the message at index `part`.
    #[inline]
    pub(super) fn write(&self, part: usize, body: &mut [u8]) {
        let start = part * self.full;
        body.copy_from_slice(&self.source[start..start + body.len()]);
    }

    /// Reads all of `body`, the next frame of a message. A lost one shifts the rest of its message.
    #[inline]
    pub(super) fn read(&mut self, body: &[u8], is_last: bool) {
        let place = self.sink.get_mut(self.at..).and_then(|rest| rest.get_mut(..body.len()));
        // What does not fit is longer than was agreed, or follows a lost end: the next message begins.
        let Some(place) = place else {
            self.at = 0;
            return;
        };
        place.copy_from_slice(body);
        // Nothing reads the copy: without this the compiler could omit it.
        black_box(place);
        self.at = if is_last { 0 } else { self.at + body.len() };
    }
}

#[cfg(test)]
mod tests {
    use super::TouchedPayload;

    fn frames(payload: &TouchedPayload, parts: usize, last: usize) -> Vec<Vec<u8>> {
        let frame = |part: usize| {
            let mut body = vec![0xee; if part == parts { last } else { payload.full }];
            payload.write(part, &mut body);
            body
        };
        (0..=parts).map(frame).collect()
    }

    #[test]
    fn every_byte_goes_out_and_arrives() {
        for (parts, last) in [(0, 46), (3, 100), (2, 46)] {
            let mut payload = TouchedPayload::new(parts, 100, last);
            let frames = frames(&payload, parts, last);
            assert_eq!(frames.concat(), payload.source);
            for _ in 0..2 {
                payload.sink.fill(0);
                for (part, frame) in frames.iter().enumerate() {
                    payload.read(frame, part == parts);
                }
                assert_eq!(payload.sink, payload.source, "{parts} parts");
            }
        }
    }

    #[test]
    fn after_lost_or_odd_frames_a_message_arrives_in_its_place_again() {
        let mut payload = TouchedPayload::new(2, 100, 46);
        let frames = frames(&payload, 2, 46);
        for strangers in [&[(100, false)][..], &[(100, false), (100, false), (100, false)], &[(500, true), (46, true)]]
        {
            for &(len, is_last) in strangers {
                payload.read(&vec![0; len], is_last);
            }
            // The first message may be one that suffers from what went before.
            for _ in 0..2 {
                (0..3).for_each(|part| payload.read(&frames[part], part == 2));
            }
            assert_eq!(payload.sink, payload.source);
        }
    }
}
