//! The states of a connection as its manager sees it (IBTA 12.9.5 and 12.9.6, Linux's `ib_cm_state`) and the moves
//! between them.

/// The state of a connection of the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CmState {
    /// There is no connection: before it begins, and after its identifier was released.
    Idle,
    /// Active: a REQ is sent until it is answered.
    ReqSent,
    /// Active: the peer has the REQ and asks for time.
    MraReqRcvd,
    /// Active: the peer granted the connection, the application has not confirmed.
    RepRcvd,
    /// Passive: the application has not decided about a REQ.
    ReqRcvd,
    /// Passive: a REP is sent until it is answered.
    RepSent,
    /// Passive: the peer has the REP and asks for time.
    MraRepRcvd,
    /// The connection carries data.
    Established,
    /// A DREQ is sent until it is answered.
    DreqSent,
    /// It is over; its names stay reserved until late messages and packets have died out.
    Timewait,
}

/// What can happen to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Input {
    /// The application: connect.
    Connect,
    /// The application: grant a REQ.
    Accept,
    /// The application: refuse a REQ.
    Reject,
    /// The application: a REP is good, and the queue pair ready.
    Confirm,
    /// The application: refuse a REP.
    Refuse,
    /// The application: give up before there is a REP.
    Abandon,
    /// The application: end.
    Disconnect,
    /// The application: the peer's first packet is here, so it has the REP.
    Data,
    /// The peer's queue pair asks for another connection, so it forgot this one.
    Stale,
    /// A message.
    Req,
    /// A message.
    Rep,
    /// A message.
    Rtu,
    /// A message, of any subject.
    Rej,
    /// A message.
    Dreq,
    /// A message.
    Drep,
    /// A message about a REQ.
    MraOfReq,
    /// A message about a REP.
    MraOfRep,
    /// The timer, with retries left or the end of [`CmState::Timewait`].
    Timeout,
    /// The timer, with no retry left.
    Exhausted,
}

/// What an input does to a connection's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Transition {
    /// Go there.
    To(CmState),
    /// Stay, and say the last thing again: it may have been lost.
    Repeat,
    /// Stay, and ask the peer for time: MRA.
    Wait,
    /// Stay: an echo of what is settled.
    Ignore,
    /// Stay: nothing that makes sense here.
    Illegal,
}

impl CmState {
    /// The row of the table.
    pub(super) const fn on(self, input: Input) -> Transition {
        use CmState::{
            DreqSent, Established, Idle, MraRepRcvd, MraReqRcvd, RepRcvd, RepSent, ReqRcvd, ReqSent, Timewait,
        };
        use Input as I;
        use Transition::{Ignore, Illegal, Repeat, To, Wait};
        match (input, self) {
            // The way in, active.
            (I::Connect, Idle) => To(ReqSent),
            (I::MraOfReq, ReqSent) => To(MraReqRcvd),
            (I::Rep, ReqSent | MraReqRcvd) => To(RepRcvd),
            (I::Confirm, RepRcvd) => To(Established),
            // The way in, passive.
            (I::Req, Idle) => To(ReqRcvd),
            (I::Accept, ReqRcvd) => To(RepSent),
            (I::MraOfRep, RepSent) => To(MraRepRcvd),
            (I::Rtu | I::Data, RepSent | MraRepRcvd) => To(Established),
            // The way out before it was open.
            (I::Abandon, ReqSent | MraReqRcvd) | (I::Refuse, RepRcvd) | (I::Reject, ReqRcvd) => To(Timewait),
            // The way out.
            (I::Disconnect | I::Stale, RepSent | MraRepRcvd | Established) => To(DreqSent),
            (I::Dreq, RepRcvd | RepSent | MraRepRcvd | Established | DreqSent) => To(Timewait),
            (I::Drep, DreqSent) => To(Timewait),
            (I::Rej, Idle) => Illegal,
            (I::Rej, Timewait) => Ignore,
            (I::Rej, _) => To(Timewait),
            // Time.
            (I::Timeout, ReqSent | MraReqRcvd | RepSent | MraRepRcvd | DreqSent) => Repeat,
            (I::Exhausted, ReqSent | MraReqRcvd | RepSent | MraRepRcvd | DreqSent) => To(Timewait),
            (I::Timeout, Timewait) => To(Idle),
            // What the peer says again because our answer was lost, or is not there yet.
            (I::Req, ReqRcvd) => Wait,
            (I::Req, RepSent | MraRepRcvd | Timewait) => Repeat,
            (I::Rep, Established | Timewait) | (I::Dreq, Timewait) => Repeat,
            // Echoes.
            (I::Req, RepRcvd | Established | DreqSent) => Ignore,
            (I::Rep, RepRcvd | DreqSent) => Ignore,
            (I::Rtu | I::Data, Established | DreqSent | Timewait) => Ignore,
            (I::Drep, Timewait) => Ignore,
            (I::MraOfReq, MraReqRcvd | RepRcvd) | (I::MraOfRep, MraRepRcvd | Established) => Ignore,
            (I::Stale, RepRcvd | ReqRcvd | DreqSent | Timewait) => Ignore,
            _ => Illegal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [CmState; 10] = [
        CmState::Idle,
        CmState::ReqSent,
        CmState::MraReqRcvd,
        CmState::RepRcvd,
        CmState::ReqRcvd,
        CmState::RepSent,
        CmState::MraRepRcvd,
        CmState::Established,
        CmState::DreqSent,
        CmState::Timewait,
    ];

    /// Columns are states in the order of `STATES`, a cell the index of the state gone to, or R(epeat), W(ait),
    /// i(gnore), - (illegal).
    #[rustfmt::skip]
    const TABLE: [(Input, &str); 19] = [
        //                  Id ReS MrQ ReR RqR RpS MrP Est Drq Tim
        (Input::Connect,    "1 - - - - - - - - -"),
        (Input::Accept,     "- - - - 5 - - - - -"),
        (Input::Reject,     "- - - - 9 - - - - -"),
        (Input::Confirm,    "- - - 7 - - - - - -"),
        (Input::Refuse,     "- - - 9 - - - - - -"),
        (Input::Abandon,    "- 9 9 - - - - - - -"),
        (Input::Disconnect, "- - - - - 8 8 8 - -"),
        (Input::Data,       "- - - - - 7 7 i i i"),
        (Input::Stale,      "- - - i i 8 8 8 i i"),
        (Input::Req,        "4 - - i W R R i i R"),
        (Input::Rep,        "- 3 3 i - - - R i R"),
        (Input::Rtu,        "- - - - - 7 7 i i i"),
        (Input::Rej,        "- 9 9 9 9 9 9 9 9 i"),
        (Input::Dreq,       "- - - 9 - 9 9 9 9 R"),
        (Input::Drep,       "- - - - - - - - 9 i"),
        (Input::MraOfReq,   "- 2 i i - - - - - -"),
        (Input::MraOfRep,   "- - - - - 6 i i - -"),
        (Input::Timeout,    "- R R - - R R - R 0"),
        (Input::Exhausted,  "- 9 9 - - 9 9 - 9 -"),
    ];

    #[test]
    fn every_move_is_as_the_table_says() {
        for (input, row) in TABLE {
            let cells: Vec<_> = row.split(' ').collect();
            assert_eq!(cells.len(), STATES.len(), "{input:?}");
            for (state, cell) in STATES.into_iter().zip(cells) {
                let expected = match cell {
                    "R" => Transition::Repeat,
                    "W" => Transition::Wait,
                    "i" => Transition::Ignore,
                    "-" => Transition::Illegal,
                    index => Transition::To(STATES[index.parse::<usize>().expect("an index")]),
                };
                assert_eq!(state.on(input), expected, "{state:?} {input:?}");
            }
        }
    }

    #[test]
    fn every_state_leads_back_to_idle() {
        let mut reaches = vec![CmState::Idle];
        for _ in STATES {
            for state in STATES {
                let leads = |(input, _)| matches!(state.on(input), Transition::To(next) if reaches.contains(&next));
                if !reaches.contains(&state) && TABLE.into_iter().any(leads) {
                    reaches.push(state);
                }
            }
        }
        assert_eq!(reaches.len(), STATES.len());
    }
}
