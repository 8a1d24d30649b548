//! Sequences of calls, on two engines whose wire loses frames.
//!
//! Every work request that was accepted ends exactly once by the time its queue pair is destroyed and its completions
//! are polled (an unsignaled one may end in silence), and all memory comes back.

mod host;

use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{Mtu, QpParams};
use roci_protocol::sim::Faults;

use crate::tape::Tape;
use host::FuzzHost;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut tape = Tape::new(bytes);
    let (clock, mut hosts) = hosts(&mut tape);
    while !tape.is_empty() {
        let action = tape.byte();
        let who = usize::from(action >> 7);
        match action % 16 {
            0 => connect(&mut tape, &mut hosts),
            1 => hosts[who].destroy(&mut tape),
            2..=3 => hosts[who].post_recv(&mut tape),
            4..=6 => post_send(&mut tape, &mut hosts, who),
            7 => hosts[who].change_memory(&mut tape),
            8 => hosts[who].change_window(&mut tape),
            9 => hosts[who].change_state(&mut tape),
            10 => hosts[who].change_datagrams(&mut tape),
            11 => post_datagram(&mut tape, &mut hosts, who),
            12 => hosts[who].poll_completions(),
            _ => pass(&mut tape, &clock, &mut hosts),
        }
    }
    hosts.into_iter().for_each(FuzzHost::end);
}

fn hosts(tape: &mut Tape<'_>) -> (Clock, [FuzzHost; 2]) {
    let clock = Clock::default();
    let (near, far) = SimLink::pair(&clock);
    let loss = f64::from(tape.byte() % 4) * 0.1;
    let faults = (loss > 0.0).then_some(Faults { loss, dup: loss, reorder: loss, corrupt: 0.05, seed: 7 });
    (clock, [FuzzHost::new(near, faults, 1), FuzzHost::new(far, faults, 2)])
}

fn connect(tape: &mut Tape<'_>, hosts: &mut [FuzzHost; 2]) {
    let mtu = tape.pick(&[Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096]).unwrap_or(Mtu::Mtu256);
    let shape = tape.byte();
    let params = QpParams {
        mtu,
        sq_depth: 1 + usize::from(shape & 7),
        rq_depth: usize::from(shape >> 3 & 3),
        window: 1 + u32::from(shape >> 5),
        max_rd_atomic: tape.below(4),
        ack_timeout_ns: 10_000,
        ack_timeout_max_ns: 40_000,
        retry_limit: u32::from(tape.byte() % 4),
        rnr_retry_limit: tape.flag().then_some(2),
        min_rnr_timer: tape.byte() % 8,
        end_to_end_credits: tape.flag(),
        ..QpParams::default()
    };
    let made = hosts.each_mut().map(|host| host.create(tape, &params));
    let addresses = made.each_ref().map(|(_, address)| *address);
    for (at, (qp, _)) in made.into_iter().enumerate() {
        hosts[at].connect(qp, &addresses[1 - at], &params, tape.byte());
    }
}

fn post_send(tape: &mut Tape<'_>, hosts: &mut [FuzzHost; 2], who: usize) {
    let key = tape.pick(&hosts[1 - who].keys()).unwrap_or_default();
    hosts[who].post_send(tape, key);
}

fn post_datagram(tape: &mut Tape<'_>, hosts: &mut [FuzzHost; 2], who: usize) {
    let peer = hosts[1 - who].datagram_qpn(tape);
    hosts[who].post_datagram(tape, peer);
}

fn pass(tape: &mut Tape<'_>, clock: &Clock, hosts: &mut [FuzzHost; 2]) {
    let time = 1 << (tape.byte() % 20);
    for _ in 0..=tape.byte() % 8 {
        clock.advance(time);
        hosts.iter_mut().for_each(FuzzHost::poll);
    }
}
