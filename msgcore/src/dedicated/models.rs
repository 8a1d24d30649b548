//! The rings and their wakeups under every order of both sides' steps. What runs are [`Rings`] and their wakeups; sleeps have no
//! end of their own here, so that a call that is slept through is a deadlock, which loom reports.

use std::sync::Arc;
use std::time::Duration;

use loom::model;
use loom::thread::spawn;

use super::outcomes::Outcomes;
use super::rings::{Answer, Command, LastWish, OperationEnd, Rings};
use crate::sync::EventFd;
use crate::{OpError, WorkerEvent};

const AT_MOST: Duration = Duration::from_micros(1);

/// The engine's loop, as in `progress_thread::run`, without a worker: takes commands until one ends it, or it is let
/// go; returns how many it took.
fn obey(rings: &Rings) -> usize {
    let mut count = 0;
    while !rings.is_released() {
        match rings.commands.pop() {
            Some(Command::End(_)) => return count + 1,
            Some(_) => count += 1,
            None => rings.engine_wakeup.sleep(AT_MOST, || rings.has_orders()),
        }
    }
    count
}

/// A wait of the handle's, as in `DedicatedWorker::wait`: until an operation has ended, or the engine.
fn wait(rings: &Rings) -> Option<OpError> {
    loop {
        if let Some(completion) = rings.completions.pop() {
            return Some(completion.outcome.expect_err("the tests only send those"));
        }
        if rings.is_over() {
            // What it did before its end was done.
            return rings.completions.pop().map(|last| last.outcome.expect_err("the tests only send those"));
        }
        rings.handle_wakeup.sleep(AT_MOST, || rings.has_news());
    }
}

fn complete(rings: &Rings) {
    let request = Outcomes::default().open().expect("room");
    let outcome = Err(OpError::NobodyLeft);
    assert!(rings.completions.push(OperationEnd { request, outcome, has_left: false, is_part: false }).is_ok());
    rings.handle_wakeup.wake();
}

#[test]
fn no_command_is_slept_through() {
    model(|| {
        let rings = Arc::new(Rings::new());
        let theirs = rings.clone();
        let engine = spawn(move || obey(&theirs));
        let question = super::rings::Question::Stats;
        assert!(rings.post(Command::Ask(question)).is_ok());
        assert!(rings.post(Command::End(LastWish::Abort)).is_ok());
        assert_eq!(engine.join().expect("no panic"), 2);
    });
}

#[test]
fn an_engine_that_sleeps_is_let_go() {
    model(|| {
        let rings = Arc::new(Rings::new());
        let theirs = rings.clone();
        let engine = spawn(move || obey(&theirs));
        rings.release();
        assert_eq!(engine.join().expect("no panic"), 0);
    });
}

#[test]
fn a_wait_sees_each_end_and_what_was_done_before_the_engines() {
    model(|| {
        let rings = Arc::new(Rings::new());
        let theirs = rings.clone();
        let engine = spawn(move || {
            complete(&theirs);
            complete(&theirs);
            theirs.finish();
        });
        assert_eq!(
            [wait(&rings), wait(&rings), wait(&rings)],
            [Some(OpError::NobodyLeft), Some(OpError::NobodyLeft), None]
        );
        engine.join().expect("no panic");
    });
}

#[test]
fn question_and_answer_meet_though_both_sleep() {
    model(|| {
        let rings = Arc::new(Rings::new());
        let theirs = rings.clone();
        let engine = spawn(move || {
            while theirs.commands.pop().is_none() {
                theirs.engine_wakeup.sleep(AT_MOST, || theirs.has_orders());
            }
            assert!(theirs.answers.push(Answer::IsConnected(true)).is_ok());
            theirs.handle_wakeup.wake();
        });
        assert!(rings.post(Command::End(LastWish::Abort)).is_ok());
        while rings.answers.pop().is_none() {
            rings.handle_wakeup.sleep(AT_MOST, || rings.has_news());
        }
        engine.join().expect("no panic");
    });
}

/// A sleep of the application's on the descriptor, as in `DedicatedWorker::arm` and its loop: until an operation has ended, or
/// the engine.
fn wait_by_descriptor(rings: &Rings, wait_fd: &EventFd) -> Option<OpError> {
    loop {
        if let Some(completion) = rings.completions.pop() {
            return Some(completion.outcome.expect_err("the tests only send those"));
        }
        rings.handle_wakeup.arm();
        if let Some(completion) = rings.completions.pop() {
            rings.handle_wakeup.disarm();
            return Some(completion.outcome.expect_err("the tests only send those"));
        }
        if rings.is_over() {
            rings.handle_wakeup.disarm();
            return rings.completions.pop().map(|last| last.outcome.expect_err("the tests only send those"));
        }
        wait_fd.poll();
        rings.handle_wakeup.acknowledge();
    }
}

fn rings_with_wait_fd() -> (Arc<Rings>, Arc<EventFd>) {
    let wait_fd = Arc::new(EventFd::new().expect("it is played"));
    (Arc::new(Rings::with_wait_fd(wait_fd.clone())), wait_fd)
}

#[test]
fn no_end_is_slept_through_on_the_descriptor() {
    model(|| {
        let (rings, wait_fd) = rings_with_wait_fd();
        let theirs = rings.clone();
        let engine = spawn(move || {
            complete(&theirs);
            complete(&theirs);
            theirs.finish();
        });
        let ends = [(); 3].map(|()| wait_by_descriptor(&rings, &wait_fd));
        assert_eq!(ends, [Some(OpError::NobodyLeft), Some(OpError::NobodyLeft), None]);
        engine.join().expect("no panic");
    });
}

#[test]
fn no_event_is_slept_through_on_the_descriptor() {
    model(|| {
        let (rings, wait_fd) = rings_with_wait_fd();
        let theirs = rings.clone();
        let engine = spawn(move || {
            assert!(theirs.events.push(WorkerEvent::Connected { peer: 1.into() }).is_ok());
            theirs.note_event();
        });
        while rings.events.pop().is_none() {
            rings.handle_wakeup.arm();
            if rings.events.is_empty() {
                wait_fd.poll();
            }
            rings.handle_wakeup.acknowledge();
        }
        engine.join().expect("no panic");
    });
}

/// Whatever the application does in between: here a wait that parks its thread.
#[test]
fn what_is_armed_stays_armed_over_a_wait_that_parks() {
    model(|| {
        let (rings, wait_fd) = rings_with_wait_fd();
        let theirs = rings.clone();
        let engine = spawn(move || {
            complete(&theirs);
            complete(&theirs);
        });
        rings.handle_wakeup.arm();
        if rings.completions.is_empty() {
            assert!(wait(&rings).is_some());
            wait_fd.poll();
            assert_eq!(wait_fd.take(), 1, "it is written once for an arming");
        }
        engine.join().expect("no panic");
    });
}

#[test]
fn a_descriptor_that_is_not_armed_is_not_written() {
    model(|| {
        let (rings, wait_fd) = rings_with_wait_fd();
        let theirs = rings.clone();
        let engine = spawn(move || {
            complete(&theirs);
            theirs.finish();
        });
        assert!(wait(&rings).is_some());
        assert!(wait(&rings).is_none());
        engine.join().expect("no panic");
        assert_eq!(wait_fd.take(), 0);
    });
}

/// One that no ring has met leaves nothing behind, and one that a ring has met is written once.
#[test]
fn an_arming_that_is_taken_back_is_written_once_at_most() {
    model(|| {
        let (rings, wait_fd) = rings_with_wait_fd();
        let theirs = rings.clone();
        rings.handle_wakeup.arm();
        let engine = spawn(move || {
            complete(&theirs);
            complete(&theirs);
        });
        rings.handle_wakeup.disarm();
        engine.join().expect("no panic");
        assert!(wait_fd.take() <= 1);
        rings.handle_wakeup.wake();
        assert_eq!(wait_fd.take(), 0);
    });
}
