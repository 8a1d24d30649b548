//! Strangers without a launcher: each process has an address, finds those of the others in a directory, and sends to all of them.
//!
//! It is written as a C program would be: what is sent lies in memory of the program's own, and what comes goes there; operations are
//! named by pointers, which come back in a completion queue; several threads share one worker behind a lock.
//!
//! Run it on hosts that share a directory, or on one, once for each number: `all_to_all DIR 0 3`. They meet over UDP sockets, or over
//! what `ROCI_DEVICE` names: `ROCI_DEVICE=af_packet:eth0 ROCI_IP=10.0.0.1 all_to_all DIR 0 3`

use std::error::Error;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use std::{env, fs, process, thread};

use roci_msgcore::{
    Config, DedicatedWorker, Done, EndpointAddress, Messaging, Pattern, PeerId, SendOptions, Source, Tag, UserMemory,
};

/// Threads of a process, which share its worker.
const THREADS: usize = 2;
/// Messages to each peer, of each thread.
const ROUNDS: usize = 50;
/// From what is injected to what is fetched by RDMA READ.
const LENGTHS: [usize; 4] = [8, 1_000, 9_000, 300_000];
const PATIENCE: Duration = Duration::from_mins(1);

/// What an application knows of an operation: it is found again by its address.
struct Operation {
    kind: Kind,
    thread: usize,
    peer: usize,
    round: usize,
    /// From `malloc`, as it were.
    memory: Option<NonNull<[u8]>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    Receive,
}

/// What the threads share.
struct World {
    worker: Mutex<DedicatedWorker>,
    /// Of each process, this one among them.
    peers: Vec<PeerId>,
    own: usize,
    /// Operations under way, by thread: one that waits for others' messages must not keep another from sending its own.
    open: [AtomicUsize; THREADS],
    received: AtomicUsize,
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let [_, directory, own, count] = &arguments[..] else {
        eprintln!("usage: all_to_all DIRECTORY NUMBER COUNT");
        process::exit(2);
    };
    let (Ok(own), Ok(count)) = (own.parse(), count.parse()) else {
        eprintln!("all_to_all: NUMBER and COUNT are numbers");
        process::exit(2);
    };
    if let Err(error) = run(Path::new(directory), own, count) {
        eprintln!("all_to_all: {error}");
        process::exit(1);
    }
}

fn run(directory: &Path, own: usize, count: usize) -> Result<(), Box<dyn Error>> {
    let mut worker = DedicatedWorker::open_alone(&Config::load(None)?)?;
    publish(directory, own, worker.address())?;
    let mut peers = Vec::new();
    for number in 0..count {
        peers.push(worker.insert(find(directory, number)?)?);
    }
    let world =
        World { worker: Mutex::new(worker), peers, own, open: Default::default(), received: AtomicUsize::new(0) };
    thread::scope(|scope| {
        for number in 0..THREADS {
            let world = &world;
            scope.spawn(move || talk(world, number));
        }
    });
    let mut worker = world.worker.into_inner().expect("no thread has panicked");
    worker.flush(None, PATIENCE)?;
    let expected = THREADS * ROUNDS * (count - 1);
    let received = world.received.into_inner();
    println!("process {own} of {count}: {received} messages");
    if received != expected {
        return Err(format!("{received} messages came, and not {expected}").into());
    }
    // Others may need an answer still: who has all leaves when all have.
    fs::write(directory.join(format!("done.{own}")), "")?;
    for number in 0..count {
        wait_for(&directory.join(format!("done.{number}")))?;
    }
    Ok(())
}

/// Posts all receives and sends of a thread, and polls for their ends.
fn talk(world: &World, thread: usize) {
    let others: Vec<usize> = (0..world.peers.len()).filter(|&peer| peer != world.own).collect();
    for round in 0..ROUNDS {
        for &peer in &others {
            for kind in [Kind::Receive, Kind::Send] {
                begin(world, Operation { kind, thread, peer, round, memory: None });
            }
        }
        while world.open[thread].load(Ordering::Acquire) > 8 * others.len() {
            poll(world);
        }
    }
    while world.open[thread].load(Ordering::Acquire) > 0 {
        poll(world);
    }
}

fn lock(world: &World) -> MutexGuard<'_, DedicatedWorker> {
    world.worker.lock().expect("no thread has panicked")
}

/// Posts an operation, whose address goes with it through the completion queue.
fn begin(world: &World, operation: Operation) {
    let (peer, len) = (world.peers[operation.peer], LENGTHS[operation.round % LENGTHS.len()]);
    let tag = Tag::new((operation.thread * ROUNDS + operation.round) as u64);
    let mut worker = lock(world);
    let options = SendOptions::default().with_data((world.own as u64) << 32 | operation.round as u64);
    if operation.kind == Kind::Send && len <= LENGTHS[0] {
        // The bytes are this thread's again at once, and there is no operation.
        worker.inject(peer, tag, &pattern(world.own, operation.peer, len), options).expect("it is short");
        return;
    }
    let memory = match operation.kind {
        Kind::Send => allocate(pattern(world.own, operation.peer, len)),
        Kind::Receive => allocate(vec![0; len]),
    };
    let request = match operation.kind {
        Kind::Send => {
            // SAFETY: nothing writes it, and `end` frees it when the operation is over and its buffer dropped.
            let source = worker.adopt(unsafe { UserMemory::source(memory.cast(), len) }).expect("it is mapped");
            worker.send_with(peer, tag, source, options).expect("a peer")
        }
        Kind::Receive => {
            // SAFETY: there is no reference to it before `end` looks at it, and frees it.
            let target = worker.adopt(unsafe { UserMemory::target(memory.cast(), len) }).expect("it is mapped");
            worker.recv_with(Pattern::new(Source::Peer(peer), tag), target).expect("a peer")
        }
    };
    world.open[operation.thread].fetch_add(1, Ordering::AcqRel);
    let operation = Box::new(Operation { memory: Some(memory), ..operation });
    worker.queue_completion(request, Box::into_raw(operation).expose_provenance() as u64).expect("it was just made");
}

fn allocate(bytes: Vec<u8>) -> NonNull<[u8]> {
    NonNull::from(Box::leak(bytes.into_boxed_slice()))
}

/// Takes the completions that there are.
fn poll(world: &World) {
    let mut completions = Vec::new();
    lock(world).poll_completions(&mut completions, 16);
    if completions.is_empty() {
        thread::yield_now();
    }
    for completion in completions {
        let address = completion.context as usize;
        // SAFETY: the context is the address of a box that `begin` has leaked, and each operation has one completion.
        let operation = unsafe { Box::from_raw(std::ptr::with_exposed_provenance_mut::<Operation>(address)) };
        end(world, &operation, completion.outcome.unwrap_or_else(|error| panic!("{error}")));
        world.open[operation.thread].fetch_sub(1, Ordering::AcqRel);
    }
}

/// An operation is over: its memory is the program's again once the buffer is dropped that was made of it.
fn end(world: &World, operation: &Operation, done: Done) {
    let Done { buffer, len, peer, data, .. } = done;
    drop(buffer);
    // SAFETY: `begin` has leaked it, and nothing else uses it any more.
    let memory = operation.memory.map(|memory| unsafe { Box::from_raw(memory.as_ptr()) }).expect("it has some");
    if operation.kind == Kind::Receive {
        assert_eq!(peer, world.peers[operation.peer], "it was received from one peer");
        assert_eq!(data, Some((operation.peer as u64) << 32 | operation.round as u64));
        let expected = pattern(operation.peer, world.own, LENGTHS[operation.round % LENGTHS.len()]);
        assert!(memory[..len] == *expected, "a message of {len} bytes differs");
        world.received.fetch_add(1, Ordering::AcqRel);
    }
}

fn pattern(from: usize, to: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + from * 7 + to * 13 + at / 251) as u8).collect()
}

/// Leaves this process's address where the others find it.
fn publish(directory: &Path, own: usize, address: EndpointAddress) -> Result<(), Box<dyn Error>> {
    let unfinished = directory.join(format!("writing.{own}"));
    fs::write(&unfinished, address.to_bytes())?;
    Ok(fs::rename(unfinished, directory.join(format!("address.{own}")))?)
}

fn find(directory: &Path, number: usize) -> Result<EndpointAddress, Box<dyn Error>> {
    let path = directory.join(format!("address.{number}"));
    wait_for(&path)?;
    Ok(EndpointAddress::from_bytes(&fs::read(path)?)?)
}

fn wait_for(path: &Path) -> Result<(), Box<dyn Error>> {
    let since = std::time::Instant::now();
    while !path.exists() {
        if since.elapsed() > PATIENCE {
            return Err(format!("{} is not there after {PATIENCE:?}", path.display()).into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
