//! The completion queue: outcomes with values of the application's, errors among them; and waiting for one of several.

use roci_msgcore::{Completion, OpError, Source, Tag};
use roci_testkit::World as _;

use super::common::{World, pattern};

/// Takes completions of a worker until there are so many.
fn collect(pair: &mut World, who: usize, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    pair.find("all completions", |pair| {
        assert!(pair.workers[who].poll_completions(&mut completions, 3) <= 3);
        (completions.len() >= count).then_some(())
    });
    assert!(pair.workers[who].poll_completion().is_none(), "each comes once");
    completions
}

#[test]
fn every_operation_completes_once_with_its_context() {
    for settings in [&[][..], &[("rndv_protocol", "rput")], &[("receive_queues", "S,8KiB,64")]] {
        let mut pair = World::pair(settings);
        let lens = [0, 10, 8_000, 100_000, 10];
        let mut sent = Vec::new();
        for (context, &len) in (100..).zip(&lens) {
            let send = pair.send(0, 1, &pattern(len, context as usize));
            pair.workers[0].queue_completion(send, context).expect("it is under way, or over");
            sent.push(context);
        }
        for context in 0..5 {
            let receive = pair.recv(1, Tag::new(1), 100_000);
            pair.workers[1].queue_completion(receive, context).expect("it is under way");
        }
        let mut received = collect(&mut pair, 1, 5);
        received.sort_by_key(|completion| completion.context);
        for (completion, (context, len)) in received.into_iter().zip((100..).zip(lens)) {
            let done = completion.outcome.expect("it arrives");
            assert_eq!((completion.context, done.len), (context as u64 - 100, len));
            assert!(done.buffer[..len] == pattern(len, context)[..]);
        }
        let mut completed: Vec<_> = collect(&mut pair, 0, 5)
            .into_iter()
            .map(|completion| completion.outcome.map(|_| completion.context).expect("it is sent"))
            .collect();
        completed.sort_unstable();
        assert_eq!(completed, sent);
        pair.workers.iter().for_each(|worker| worker.inside().check_invariants().expect("what must hold"));
    }
}

#[test]
fn completions_have_errors_and_cancels_and_leave_other_operations_alone() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let short = pair.recv(1, Tag::new(1), 3);
    let cancelled = pair.recv(1, Tag::new(2), 3);
    let by_name = pair.recv(1, Tag::new(3), 5);
    let detached = pair.recv(1, Tag::new(4), 5);
    pair.workers[1].queue_completion(short, u64::MAX).expect("it is under way");
    pair.workers[1].queue_completion(cancelled, 7).expect("it is under way");
    pair.workers[1].queue_completion(detached, 9).expect("it is under way");
    pair.workers[1].detach(detached);
    pair.workers[1].cancel(cancelled);
    let sends = [1, 3, 4].map(|tag| pair.send(0, tag, b"hello"));
    pair.expect(1, by_name, b"hello");
    for completion in collect(&mut pair, 1, 2) {
        match (completion.context, completion.outcome) {
            (7, Ok(done)) => assert!(done.is_cancelled),
            (u64::MAX, Err(OpError::Truncated(truncated))) => assert_eq!(truncated.envelope.len, 5),
            other => panic!("{other:?}"),
        }
    }
    for send in sends {
        pair.wait(0, send).expect("sent");
        assert_eq!(pair.workers[0].queue_completion(send, 1), Err(OpError::NoRequest), "its outcome was taken");
    }
}

/// An eager send is over at once, and can be taken back all the same: its completion says which it was.
#[test]
fn a_send_that_is_taken_back_completes_once() {
    let mut pair = World::pair(&[]);
    pair.connect_all();
    let (late, early) = (pair.send(0, 1, b"late"), pair.send(0, 2, b"early"));
    pair.steps(100);
    let receive = pair.recv(1, Tag::new(1), 4);
    pair.expect(1, receive, b"late");
    for (send, context) in [(late, 1), (early, 2)] {
        pair.workers[0].queue_completion(send, context).expect("it is there");
        pair.workers[0].cancel(send);
    }
    let mut completions = collect(&mut pair, 0, 2);
    completions.sort_by_key(|completion| completion.context);
    let cancelled = completions.into_iter().map(|completion| completion.outcome.expect("it is over").is_cancelled);
    assert_eq!(cancelled.collect::<Vec<_>>(), [false, true]);
    pair.steps(1_000);
    assert!(pair.workers[0].poll_completion().is_none());
}

#[test]
fn operations_with_a_peer_that_is_gone_complete_with_its_end() {
    let mut pair = World::pair(&[("retry_limit", "3"), ("ack_timeout_us", "100"), ("ack_timeout_max_us", "200")]);
    pair.connect_all();
    let receive = pair.recv_from(1, Source::from(0), Tag::new(1), 3);
    pair.cut(0);
    let send = pair.send(1, 1, &pattern(100_000, 1));
    for (request, context) in [(receive, 1), (send, 2)] {
        pair.workers[1].queue_completion(request, context).expect("it is under way");
    }
    for completion in collect(&mut pair, 1, 2) {
        let error = completion.outcome.map(|done| done.len).expect_err("the peer is gone");
        assert!(matches!(error, OpError::PeerGone { peer, .. } if peer == 0), "{error}");
    }
}

/// No rank is left, and receives are posted all the same: who waits for a completion is answered for those that would be one.
/// Others stay posted, but on a dedicated worker, whose engine does not know which the application waits for.
#[test]
fn a_wait_for_a_completion_ends_no_other_receive() {
    let mut pair = World::pair(&[("retry_limit", "3"), ("ack_timeout_us", "100"), ("ack_timeout_max_us", "200")]);
    pair.connect_all();
    pair.cut(0);
    let send = pair.send(1, 1, b"is anybody there?");
    pair.until("the peer is gone", |pair| pair.workers[1].stats().peers_gone == 1);
    let (by_name, queued) = (pair.recv(1, Tag::new(5), 3), pair.recv(1, Tag::new(6), 3));
    pair.workers[1].queue_completion(queued, 6).expect("it is under way");
    let completion = pair.workers[1].wait_completion().expect("it ends");
    assert_eq!(completion.context, 6);
    assert_eq!(completion.outcome.map(|done| done.len).expect_err("no rank is left"), OpError::NobodyLeft);
    let is_over = pair.workers[1].test(by_name).is_some();
    assert_eq!(is_over, pair.workers[1].is_dedicated());
    let _ = pair.wait(1, send);
}

#[test]
fn waiting_for_nothing_ends_at_once() {
    let mut pair = World::pair(&[]);
    assert_eq!(pair.workers[0].wait_completion().map(|completion| completion.context), Err(OpError::NoRequest));
    assert_eq!(pair.workers[0].wait_any(&[]).map(|(index, _)| index), Err(OpError::NoRequest));
    let receive = pair.recv(0, Tag::new(1), 3);
    pair.workers[0].queue_completion(receive, 1).expect("it is under way");
    assert!(pair.workers[0].test(receive).is_none());
    pair.workers[0].cancel(receive);
    let taken = pair.find("its end, by name", |pair| pair.workers[0].test(receive));
    assert!(taken.expect("taken back").is_cancelled);
    assert_eq!(pair.workers[0].wait_completion().map(|completion| completion.context), Err(OpError::NoRequest));
}

#[test]
fn one_of_several_is_waited_for() {
    let mut pair = World::pair(&[]);
    let mut receives: Vec<_> = (0..4).map(|tag| pair.recv(1, Tag::new(tag), 8)).collect();
    for tag in [2, 0, 3, 1_u64] {
        let send = pair.send(0, tag, &tag.to_le_bytes());
        pair.wait(0, send).expect("sent");
        pair.steps(1_000);
        let (index, outcome) = pair.workers[1].wait_any(&receives).expect("one is over");
        assert_eq!(outcome.expect("it arrives").buffer[..8], tag.to_le_bytes());
        let _ = receives.swap_remove(index);
    }
}
