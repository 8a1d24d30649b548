//! The rings and their bells under every order of both sides' steps. What runs are [`Rings`] and their bells; sleeps have no
//! end of their own here, so that a call that is slept through is a deadlock, which loom reports.

use std::sync::Arc;
use std::time::Duration;

use loom::model;
use loom::thread::spawn;

use super::outcomes::Outcomes;
use super::rings::{Answer, Command, LastWish, OperationEnd, Rings};
use crate::OpError;

const AT_MOST: Duration = Duration::from_micros(1);

/// The engine's loop, as in `progress_thread::run`, without a worker: takes commands until one ends it, or it is let
/// go; returns how many it took.
fn obey(rings: &Rings) -> usize {
    let mut count = 0;
    while !rings.is_released() {
        match rings.commands.pop() {
            Some(Command::End(_)) => return count + 1,
            Some(_) => count += 1,
            None => rings.engine_bell.sleep(AT_MOST, || rings.has_orders()),
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
        rings.handle_bell.sleep(AT_MOST, || rings.has_news());
    }
}

fn complete(rings: &Rings) {
    let request = Outcomes::default().open().expect("room");
    let outcome = Err(OpError::NobodyLeft);
    assert!(rings.completions.push(OperationEnd { request, outcome, has_left: false }).is_ok());
    rings.handle_bell.ring();
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
                theirs.engine_bell.sleep(AT_MOST, || theirs.has_orders());
            }
            assert!(theirs.answers.push(Answer::IsConnected(true)).is_ok());
            theirs.handle_bell.ring();
        });
        assert!(rings.post(Command::End(LastWish::Abort)).is_ok());
        while rings.answers.pop().is_none() {
            rings.handle_bell.sleep(AT_MOST, || rings.has_news());
        }
        engine.join().expect("no panic");
    });
}
