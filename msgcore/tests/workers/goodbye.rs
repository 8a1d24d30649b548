//! How ranks meet and part that use their ports without a worker: two threads, over real memif ports, which tell at once when
//! their peer's end is closed.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use roci_driver::State;
use roci_msgcore::{Fabric, Ports};

use crate::ranks::{config, run_ranks};

/// Long enough for a port to notice that its peer is gone, whatever the machine is busy with: what is tested does not depend
/// on it, but a defect may stay hidden where it is too short.
const A_WHILE: Duration = Duration::from_millis(300);

#[test]
fn a_peer_whose_ports_close_while_all_say_goodbye_is_no_failure() {
    run_ranks(2, |job, _| {
        let mut fabric = Fabric::connect(&config(&[]), job).expect("it connects");
        fabric.barrier().expect("both are there");
        if fabric.rank == 1 {
            let Fabric { engine, job, .. } = fabric;
            drop(engine);
            thread::sleep(A_WHILE);
            job.expect("it has one").barrier().expect("rank 0 waits");
            return;
        }
        fabric.barrier().expect("rank 1 comes, without its ports");
        let qp = fabric.queue_pairs[1].expect("it was connected");
        while fabric.engine.qp_state(qp) != Some(State::Error) {
            fabric.engine.poll();
        }
    });
}

#[test]
fn a_peer_that_goes_without_a_goodbye_is_reported_by_the_launcher() {
    run_ranks(2, |job, board| {
        let mut fabric = Fabric::connect(&config(&[]), job).expect("it connects");
        fabric.barrier().expect("both are there");
        if fabric.rank == 1 {
            drop(fabric);
            board.fail_rank(1, "rank 1 was killed");
            return;
        }
        let error = fabric.barrier().expect_err("rank 1 never comes").to_string();
        assert!(error.contains("rank 1 was killed"), "{error}");
    });
}

#[test]
fn a_peer_that_opens_its_ports_and_never_publishes_is_not_waited_for_for_ever() {
    let (start, over) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    run_ranks(2, move |job, _| {
        let config = config(&[("connect_timeout_s", "8")]);
        start.wait();
        if job.rank() == 1 {
            let ports = Ports::open(&config, job).expect("its peer's port is there");
            over.wait();
            return drop(ports);
        }
        let outcome = Fabric::connect(&config, job).map(|_| ());
        over.wait();
        let error = outcome.expect_err("rank 1 publishes nothing").to_string();
        assert!(error.contains("within 8 s"), "{error}");
    });
}
