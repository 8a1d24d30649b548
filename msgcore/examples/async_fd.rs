//! An async task awaits completions of a dedicated worker in tokio's `AsyncFd`, on the thread of another task that ticks.
//!
//! Run it with: `roci run -n 2 target/release/examples/async_fd`

use std::cell::Cell;
use std::error::Error;
use std::io;
use std::time::Duration;

use roci_msgcore::dedicated::Arming;
use roci_msgcore::{Completion, Config, DedicatedWorker, Done, Pattern, Tag};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{interval, sleep};

const BALL: Tag = Tag::new(1);
const ROUNDS: u64 = 20;
/// How long each rank keeps the ball, so that the other one's thread has something else to do.
const HOLD: Duration = Duration::from_millis(5);
const TICK: Duration = Duration::from_millis(1);

/// Waits for a completion; other tasks run meanwhile.
async fn next(worker: &mut AsyncFd<DedicatedWorker>) -> Result<Completion, Box<dyn Error>> {
    loop {
        if let Some(completion) = worker.get_mut().poll_completion() {
            return Ok(completion);
        }
        if worker.get_mut().arm()? == Arming::Armed {
            worker.readable_mut().await?.clear_ready();
            worker.get_mut().acknowledge();
        }
    }
}

/// Waits for the next ball.
async fn catch(worker: &mut AsyncFd<DedicatedWorker>, round: u64) -> Result<(), Box<dyn Error>> {
    let peer = 1 - worker.get_ref().rank();
    let receive = worker.get_mut().recv_in_place(Pattern::new(peer, BALL))?;
    worker.get_mut().queue_completion(receive, round)?;
    let Completion { context, outcome, .. } = next(worker).await?;
    let Done { buffer, len, .. } = outcome?;
    assert_eq!((context, &buffer[..len]), (round, &round.to_le_bytes()[..]));
    worker.get_mut().give_back(buffer);
    Ok(())
}

fn throw(worker: &mut DedicatedWorker, round: u64) -> Result<(), Box<dyn Error>> {
    let send = worker.send_bytes(1 - worker.rank(), BALL, &round.to_le_bytes())?;
    worker.detach(send);
    Ok(())
}

async fn play(worker: &mut AsyncFd<DedicatedWorker>) -> Result<(), Box<dyn Error>> {
    let is_first = worker.get_ref().rank() == 0;
    for round in 0..ROUNDS {
        if is_first {
            throw(worker.get_mut(), round)?;
        }
        catch(worker, round).await?;
        sleep(HOLD).await;
        if !is_first {
            throw(worker.get_mut(), round)?;
        }
    }
    Ok(())
}

/// Does something else until the game is over; returns how often.
async fn tick(is_over: &Cell<bool>) -> u64 {
    let (mut ticks, mut clock) = (0, interval(TICK));
    while !is_over.get() {
        clock.tick().await;
        ticks += 1;
    }
    ticks
}

/// Registers the worker's descriptor with this runtime.
fn register(worker: DedicatedWorker) -> io::Result<AsyncFd<DedicatedWorker>> {
    #[expect(
        deprecated,
        reason = "its successor is the same and unsafe; a worker has one descriptor as long as it lives"
    )]
    AsyncFd::with_interest(worker, Interest::READABLE)
}

fn main() -> Result<(), Box<dyn Error>> {
    let worker = DedicatedWorker::open(&Config::load(None)?)?;
    let (rank, size) = (worker.rank(), worker.size());
    if size != 2 {
        return Err("this takes two ranks".into());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let worker = runtime.block_on(async {
        let (mut worker, is_over) = (register(worker)?, Cell::new(false));
        let game = async {
            let played = play(&mut worker).await;
            is_over.set(true);
            played
        };
        let (played, ticks) = tokio::join!(game, tick(&is_over));
        played?;
        println!("rank {rank} has caught {ROUNDS} balls, and another task has ticked {ticks} times");
        Ok::<_, Box<dyn Error>>(worker.into_inner())
    })?;
    worker.close()?;
    Ok(())
}
