//! Pieces: messages that multi-receives have taken. One that is under way is an operation under a name of its own, which a peer
//! may speak of; the application gets its end as a completion of the multi-receive.

use roci_driver::Buffer;
use roci_protocol::msg::Label;

use super::{MultiPiece, Requests, piece_mut};
use crate::core::completion::{Done, OpError};
use crate::core::peer::PeerId;
use crate::core::request::Request;
use crate::services::tag::matching::Encounter;
use crate::services::tag::multi::{MultiEnd, MultiReceive};
use crate::services::tag::operation::TagOperation;

impl Requests {
    /// A multi-receive of this name begins, whose completions have `context`; without one the application's side, on another
    /// thread, knows it.
    pub(crate) fn open_multi(
        &mut self,
        request: Request,
        (buffer, least): (Buffer, usize),
        context: Option<u64>,
        oneself: PeerId,
    ) {
        let multi = MultiReceive::new(buffer, least, oneself);
        self.open(request, || TagOperation::Multi(Box::new(multi)));
        if let Some(context) = context {
            self.queue_completion(request, context);
        }
        self.close_if_used_up(request);
    }

    /// Whether a multi-receive takes messages.
    pub(crate) fn is_open_multi(&self, request: Request) -> bool {
        matches!(self.get(request), Some(TagOperation::Multi(multi)) if multi.is_open())
    }

    /// A receive meets a message of `len` bytes. Returns the name of the operation that takes it.
    #[inline]
    pub(crate) fn meet(&mut self, receive: Request, len: usize) -> (Request, Encounter) {
        match self.get(receive) {
            Some(TagOperation::Multi(_)) => self.begin_piece(receive, len),
            _ => (receive, Encounter::Over),
        }
    }

    #[cold]
    fn begin_piece(&mut self, of: Request, len: usize) -> (Request, Encounter) {
        let multi = self.multi_mut(of).expect("the caller has looked");
        multi.note_begun();
        let operation = TagOperation::Waiting { buffer: Some(multi.cut(len)), posted: None };
        let key = self.pieces.insert(MultiPiece { of, operation });
        let key = key.expect("a piece under way has memory, of which there is not so much");
        (Request::of_piece(key), self.close_if_used_up(of))
    }

    /// Gives a message to a multi-receive that has room for it; every other operation declines.
    #[inline(never)]
    pub(super) fn receive_part(
        &mut self,
        request: Request,
        (from, label): (PeerId, Label),
        payload: &[u8],
    ) -> Encounter {
        let len = payload.len();
        let Some(multi) = self.multi_mut(request).filter(|multi| len <= multi.room()) else {
            return Encounter::Declined;
        };
        let mut piece = multi.cut(len);
        piece.copy_in(0, payload);
        self.report_part(request, Ok(Done::new(piece, len, from, label)));
        self.close_if_used_up(request)
    }

    /// A multi-receive may have nothing more to give: then it leaves its place.
    fn close_if_used_up(&mut self, request: Request) -> Encounter {
        if self.multi_mut(request).is_some_and(|multi| !multi.is_used_up()) {
            return Encounter::Stays;
        }
        self.end_multi(request, MultiEnd::UsedUp);
        Encounter::Over
    }

    /// A multi-receive, which has no place among the receives that wait any more, ends with what it has taken.
    pub(crate) fn end_multi(&mut self, request: Request, end: MultiEnd) {
        if let Some(multi) = self.multi_mut(request) {
            multi.close(end);
        }
        self.finish_multi(request);
    }

    fn finish_multi(&mut self, request: Request) {
        let Some(multi) = self.multi_mut(request).filter(|multi| multi.is_over()) else { return };
        let placeholder = TagOperation::Queued { to: multi.oneself() };
        if let Some(TagOperation::Multi(multi)) = self.replace(request, placeholder) {
            self.end(request, multi.into_outcome());
        }
    }

    /// Ends a receive that has met nothing, and has no place among those that wait any more.
    pub(crate) fn fail_receive(&mut self, request: Request, error: OpError) {
        match self.get(request) {
            Some(TagOperation::Multi(_)) => self.end_multi(request, MultiEnd::Failed(error)),
            _ => self.end(request, Err(error)),
        }
    }

    /// Of a message that has not got a piece, because it is longer than what is left to its multi-receive: how much that is.
    pub(crate) fn room_beside(&self, request: Request) -> Option<usize> {
        match self.get(self.pieces.get(request.piece()?)?.of) {
            Some(TagOperation::Multi(multi)) => Some(multi.room()),
            _ => None,
        }
    }

    /// Returns what is under way of a piece, if it is the name of one.
    #[cold]
    pub(super) fn piece(&self, request: Request) -> Option<&TagOperation> {
        self.pieces.get(request.piece()?).map(|piece| &piece.operation)
    }

    /// Sees to a piece that may have ended: its end is a completion of its multi-receive, which may be over with it.
    #[cold]
    pub(super) fn settle_piece(&mut self, request: Request) {
        if !matches!(piece_mut(&mut self.pieces, request), Some(TagOperation::Ended(_))) {
            return;
        }
        let piece = request.piece().and_then(|key| self.pieces.remove(key));
        let Some(MultiPiece { of, operation: TagOperation::Ended(outcome) }) = piece else {
            unreachable!("it was there, and over")
        };
        self.report_part(of, outcome);
        self.multi_mut(of).expect("a multi-receive outlives its messages").note_ended();
        self.finish_multi(of);
    }

    fn report_part(&mut self, of: Request, outcome: Result<Done, OpError>) {
        match &mut self.ended {
            None => self.completions.push_part(of, outcome),
            Some(ended) => {
                ended.push_back(Request::PART);
                self.parts.push_back((of, outcome));
            }
        }
    }

    /// Takes the message that [`Request::PART`] has stood for, and whose it is.
    #[cold]
    pub(crate) fn next_part(&mut self) -> Option<(Request, Result<Done, OpError>)> {
        self.parts.pop_front()
    }

    fn multi_mut(&mut self, request: Request) -> Option<&mut MultiReceive> {
        match self.slots.get_mut(request.0).map(|slot| &mut slot.operation) {
            Some(TagOperation::Multi(multi)) => Some(multi),
            _ => None,
        }
    }

    /// Whether each piece is one of its multi-receive's, and each of those is over or has messages that are not.
    pub(crate) fn are_pieces_sound(&self) -> bool {
        let multis = self.slots.iter().filter_map(|(key, slot)| match &slot.operation {
            TagOperation::Multi(multi) => Some((Request(key), multi)),
            _ => None,
        });
        let mut counted = 0;
        let are_multis_sound = multis.into_iter().all(|(request, multi)| {
            let own = self.pieces.iter().filter(|(_, piece)| piece.of == request).count();
            counted += own;
            own == multi.under_way() && multi.posted.is_some() == multi.is_open() && !multi.is_over()
        });
        are_multis_sound && counted == self.pieces.len()
    }
}

#[cfg(test)]
mod tests {
    use roci_driver::Arena;

    use super::*;
    use crate::services::tag::multi::FOR_NOTHING;

    const ONESELF: PeerId = PeerId::NONE;

    fn of_room(len: usize, least: usize) -> (Requests, Request) {
        let mut requests = Requests::default();
        let request = requests.mint().expect("room");
        let buffer = Arena::new(1 << 16).expect("memory").buffer(len).expect("room");
        requests.open_multi(request, (buffer, least), Some(7), ONESELF);
        (requests, request)
    }

    /// Takes the next completion: its length, what its buffer takes, and whether it is the last.
    fn next(requests: &mut Requests) -> Option<(usize, usize, bool)> {
        let (_, completion) = requests.next_completion()?;
        assert_eq!(completion.context, 7);
        let done = completion.outcome.expect("it is good");
        Some((done.len, done.buffer.capacity(), completion.is_last))
    }

    #[test]
    fn a_message_takes_its_length_rounded_up_and_the_last_completion_the_rest() {
        let (mut requests, multi) = of_room(1000, 128);
        for (len, encounter) in
            [(64, Encounter::Stays), (65, Encounter::Stays), (0, Encounter::Stays), (700, Encounter::Over)]
        {
            let payload = vec![len as u8; len];
            assert_eq!(requests.receive_whole(multi, (1.into(), Label::default()), &payload), encounter);
        }
        assert_eq!(next(&mut requests), Some((64, 64, false)));
        assert_eq!(next(&mut requests), Some((65, 128, false)));
        assert_eq!(next(&mut requests), Some((0, 0, false)));
        assert_eq!(next(&mut requests), Some((700, 704, false)));
        assert_eq!(next(&mut requests), Some((0, 128, true)));
        assert!(next(&mut requests).is_none() && requests.is_empty() && requests.completions_open() == 0);
    }

    #[test]
    fn pieces_end_in_any_order_under_names_of_their_own_and_the_receive_behind_them() {
        let (mut requests, multi) = of_room(256, 1);
        let ((first, stays), (second, over)) = (requests.meet(multi, 100), requests.meet(multi, 128));
        assert_eq!((stays, over), (Encounter::Stays, Encounter::Over));
        assert_eq!(Request::from_wire(first.to_wire()), first);
        assert!(
            first != second && first.piece().is_some() && multi.piece().is_none() && Request::PART.piece().is_none()
        );
        for (piece, len) in [(second, 128), (first, 100)] {
            assert!(!requests.is_open_multi(multi) && requests.get(multi).is_some());
            let Some(TagOperation::Waiting { buffer: Some(buffer), .. }) =
                requests.replace(piece, TagOperation::Queued { to: 1.into() })
            else {
                panic!("a piece has a buffer");
            };
            assert_eq!(requests.depending_on(1.into()), [piece]);
            requests.end(piece, Ok(Done::new(buffer, len, 1.into(), Label::default())));
            assert!(requests.get(piece).is_none(), "its name is over with it");
        }
        assert_eq!(next(&mut requests), Some((128, 128, false)));
        assert_eq!(next(&mut requests), Some((100, 128, false)));
        assert_eq!(next(&mut requests), Some((0, 0, true)));
    }

    #[test]
    fn messages_that_use_up_nothing_are_bounded() {
        let (mut requests, multi) = of_room(256, 0);
        for count in 1..=FOR_NOTHING {
            let encounter = if count == FOR_NOTHING { Encounter::Over } else { Encounter::Stays };
            if count % 2 == 0 {
                assert_eq!(requests.receive_whole(multi, (1.into(), Label::default()), &[]), encounter);
                continue;
            }
            assert_eq!(requests.receive_whole(multi, (1.into(), Label::default()), &[0; 257]), Encounter::Declined);
            let (piece, its) = requests.meet(multi, 257);
            assert_eq!((its, requests.room_beside(piece)), (encounter, Some(256)));
            requests.end(
                piece,
                Ok(Done::new(
                    Arena::new(4096).expect("memory").buffer(0).expect("room"),
                    0,
                    1.into(),
                    Label::default(),
                )),
            );
        }
        let all: Vec<_> = std::iter::from_fn(|| next(&mut requests)).collect();
        assert_eq!(all.len(), FOR_NOTHING + 1);
        assert_eq!(all.last(), Some(&(0, 256, true)));
    }

    #[test]
    fn what_is_smaller_than_the_minimum_is_over_at_once() {
        for (len, least) in [(0, 0), (63, 64)] {
            let (mut requests, multi) = of_room(len, least);
            assert!(!requests.is_open_multi(multi));
            assert!(next(&mut requests).is_some_and(|(len, _, is_last)| len == 0 && is_last));
        }
        let (mut requests, multi) = of_room(64, 64);
        assert!(requests.is_open_multi(multi) && next(&mut requests).is_none());
    }

    #[test]
    fn its_end_is_taken_by_name_and_its_messages_stay_completions() {
        let (mut requests, multi) = of_room(256, 200);
        assert_eq!(requests.receive_whole(multi, (1.into(), Label::default()), b"hello"), Encounter::Over);
        assert_eq!(requests.close(multi).expect("over").expect("good").buffer.len(), 192);
        assert_eq!(requests.completions_open(), 1);
        assert_eq!(next(&mut requests), Some((5, 64, false)));
        assert!(next(&mut requests).is_none());
    }

    #[test]
    fn another_thread_gets_messages_and_the_end_behind_them() {
        let mut requests = Requests::default();
        requests.serve_another_thread();
        let multi = Request(crate::core::slab::Key { index: 3, generation: 9 });
        let buffer = Arena::new(4096).expect("memory").buffer(128).expect("room");
        requests.open_multi(multi, (buffer, 1), None, ONESELF);
        let (piece, _) = requests.meet(multi, 64);
        assert_eq!(requests.receive_whole(multi, (1.into(), Label::default()), &[1; 60]), Encounter::Over);
        requests.end(piece, Err(OpError::NobodyLeft));
        let ended: Vec<_> = std::iter::from_fn(|| requests.next_ended()).collect();
        assert_eq!(ended, [Request::PART, Request::PART, multi]);
        assert_eq!(requests.next_part().map(|(of, outcome)| (of, outcome.is_ok())), Some((multi, true)));
        assert_eq!(requests.next_part().map(|(of, outcome)| (of, outcome.is_ok())), Some((multi, false)));
        assert!(requests.close(multi).is_some() && requests.is_empty() && requests.are_pieces_sound());
    }
}
