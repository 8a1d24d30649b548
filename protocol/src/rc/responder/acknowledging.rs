//! What the responder says beside responses: acknowledgements, NAKs and notifications of congestion.

use arrayvec::ArrayVec;

use super::super::congestion::Algorithm;
use super::super::credits;
use super::super::recovery::SACK_MAP_LEN;
use super::super::{Config, Dialect, Env, Payload, RcQueuePair, State, TxError, WcStatus};
use super::{ECHO_LEN, NOTIFICATION, Owed, Responder};
use crate::wire::{Aeth, HeaderWords, Headers, NakCode, Opcode, Syndrome, aeth};
use crate::{Nanos, Psn};

impl<B> RcQueuePair<B> {
    /// Whether an acknowledgement is due that no READ response must go before: a NAK, a notification of congestion, or an
    /// acknowledgement of at least `packets` packets.
    #[inline]
    pub fn owes_acknowledgement(&self, packets: u32) -> bool {
        let responder = &self.responder;
        responder.notification.owed.is_some()
            || (responder.resources.is_idle() && responder.acknowledgement.is_due(packets))
    }

    /// Whether an acknowledgement is owed that may wait for others, and for some time: that of a message without AckReq.
    #[inline]
    pub fn owes_acknowledgement_later(&self) -> bool {
        self.responder.acknowledgement.owed() == Owed::Later
    }

    /// Since when such an acknowledgement is owed.
    pub fn acknowledgement_waits_since(&self) -> Option<Nanos> {
        self.responder.acknowledgement.waits_since()
    }

    /// An acknowledgement that could wait is due: it has waited for long, or its queue pair ends.
    pub fn hasten_acknowledgement(&mut self) {
        self.responder.acknowledgement.hasten();
    }

    /// Sends the notification of congestion and, where no response must go before it, the acknowledgement that is owed.
    ///
    /// A refusal is answered even though it has put the queue pair into the error state.
    #[inline]
    pub fn pump_acknowledgement<E: Env<Buffer = B>>(&mut self, now: Nanos, env: &mut E) -> Result<(), TxError> {
        if self.state == State::Error {
            self.responder.flush(WcStatus::WrFlushErr, env);
        }
        if self.responder.send_notification(&self.config, env)? {
            self.stats.np_cnp_sent += 1;
        }
        let waits = matches!(self.responder.acknowledgement.owed(), Owed::Nothing | Owed::Later);
        if self.responder.resources.is_idle() && !waits {
            self.responder.send_owed(now, &self.config, env)?;
            self.stats.tx_acks += 1;
        }
        Ok(())
    }
}

impl<B> Responder<B> {
    fn send_notification<E: Env<Buffer = B>>(&mut self, config: &Config, env: &mut E) -> Result<bool, TxError> {
        let Some(psn) = self.notification.owed else { return Ok(false) };
        let psn = if config.dialect == Dialect::Verbs { Psn::default() } else { psn };
        let mut bth = config.bth(Opcode::Cnp, psn);
        bth.becn = true;
        env.transmit(&Headers::plain(bth), Payload::Bytes(&NOTIFICATION))?;
        self.notification.owed = None;
        Ok(true)
    }

    /// Sends the acknowledgement that is owed.
    fn send_owed<E: Env<Buffer = B>>(&mut self, now: Nanos, config: &Config, env: &mut E) -> Result<(), TxError> {
        let owed = self.acknowledgement.owed();
        let reports_gap = !self.held.is_empty() && owed == Owed::Ack;
        let owed = if reports_gap { Owed::Nak(NakCode::PsnSequence, self.expected) } else { owed };
        let (syndrome, psn) = match owed {
            Owed::Nothing | Owed::Later => return Ok(()),
            Owed::Ack => {
                let psn = self.acknowledgement.acknowledgeable();
                let psn = psn.expect("an acknowledgement is owed for a SEND or WRITE only");
                (self.ack_syndrome(config), psn)
            }
            Owed::Rnr => (Syndrome::Rnr { timer: config.min_rnr_timer }, self.expected),
            Owed::Nak(code, psn) => (Syndrome::Nak(code), psn),
        };
        let headers = config.words(Opcode::RcAck, psn).with_aeth(Aeth { syndrome, msn: self.msn });
        // Only between two ends of ours: a verbs peer never makes us keep anything.
        let has_map = !self.held.is_empty() && matches!(owed, Owed::Nak(NakCode::PsnSequence, _));
        let has_echo = config.congestion == Algorithm::Delay && config.dialect == Dialect::Rocinante;
        if has_map || has_echo {
            self.send_with_payload(&headers, has_map, has_echo.then(|| self.acknowledgement.waited(now)), env)?;
        } else {
            env.transmit_words(&headers, Payload::None)?;
        }
        self.acknowledgement.sent();
        Ok(())
    }

    /// Sends an acknowledgement with a map of what is kept, and with the time that it waited.
    #[cold]
    fn send_with_payload<E: Env<Buffer = B>>(
        &self,
        headers: &HeaderWords,
        has_map: bool,
        waited: Option<Nanos>,
        env: &mut E,
    ) -> Result<(), TxError> {
        let mut payload = ArrayVec::<u8, { SACK_MAP_LEN + ECHO_LEN }>::new();
        if has_map {
            let mut map = [0; SACK_MAP_LEN];
            let len = self.held.write_sack_map(&mut map);
            payload.extend(map[..len].iter().copied());
        }
        if let Some(waited) = waited {
            payload.extend(u32::try_from(waited).unwrap_or(u32::MAX).to_be_bytes());
        }
        env.transmit_words(headers, Payload::Bytes(&payload))
    }

    /// The syndrome of an acknowledgement: receives posted, rounded down to a code. Shared ones are not advertised
    /// (IBTA 9.7.7.2.5).
    pub(super) fn ack_syndrome(&self, config: &Config) -> Syndrome {
        let shared = config.shared_receives;
        Syndrome::Ack { credit: if shared { aeth::CREDIT_UNLIMITED } else { credits::code_of(self.receives.len()) } }
    }
}
