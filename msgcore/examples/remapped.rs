//! Rank 0 sends from memory that it unmaps and maps again, at the same places with other bytes; rank 1 compares all of them.
//! A device that reads payloads where they lie, and is not told that the memory has gone, sends what was there before.
//!
//! Run it with: `ROCI_ZCOPY_THRESHOLD=256 roci run -n 2 target/release/examples/remapped`

use std::error::Error;
use std::ptr::{NonNull, without_provenance_mut};

use roci_driver::{Buffer, SendWr, WorkCompletion};
use roci_msgcore::{Config, Fabric, UserMemory, ports};

const LEN: usize = 16 << 10;
const MAPPINGS: u64 = 256;
/// The first finds memory that is not registered, and the second finds that registered.
const MESSAGES_OF_EACH: u64 = 2;
const MESSAGES: u64 = MAPPINGS * MESSAGES_OF_EACH;
const RECEIVES: u64 = 8;
/// Polls between two looks at whether the other rank is still there.
const LOOK_AFTER: u32 = 1 << 16;
/// Places that take turns. A device may hold its last frames for a while, and with them what they name; what is mapped in
/// its place before that is copied.
const PLACES: u64 = 64;
/// The first, far below where the kernel maps what has no place of its own.
const PLACE: usize = 0x2000_0000_0000;

fn main() -> Result<(), Box<dyn Error>> {
    let config = Config::load(None)?;
    let mut fabric = Fabric::connect(&config, ports::join(&config)?)?;
    fabric.engine.configure_registration(config.registration())?;
    if fabric.rank == 0 { send(&mut fabric) } else { receive(&mut fabric) }
}

fn send(fabric: &mut Fabric) -> Result<(), Box<dyn Error>> {
    for mapping in 0..MAPPINGS {
        let mut pages = Pages::map(PLACE + (mapping % PLACES) as usize * LEN)?;
        for number in (0..MESSAGES_OF_EACH).map(|each| mapping * MESSAGES_OF_EACH + each) {
            // SAFETY: the buffer is dropped before the pages are registered again or unmapped: nothing is sent from it any more
            // when it is back.
            let memory = unsafe { pages.as_user_memory() };
            let mut buffer = fabric.engine.adopt(memory)?;
            buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = expected(number, at));
            let qp = fabric.queue_pairs[1].ok_or("no queue pair to rank 1")?;
            fabric.engine.post_send(qp, SendWr::send(number, buffer))?;
            drop(wait(fabric)?.buffer);
        }
    }
    meet(fabric)?;
    let (stats, zero_copy_frames) = (fabric.engine.registration_stats(), fabric.engine.link_stats(0).tx_zero_copy);
    let hits = stats.hits_fast + stats.hits_slow;
    println!(
        r#"{{"messages": {MESSAGES}, "mappings": {MAPPINGS}, "zero_copy_frames": {zero_copy_frames}, "hits": {hits}, "invalidations": {}}}"#,
        stats.invalidations
    );
    Ok(())
}

fn receive(fabric: &mut Fabric) -> Result<(), Box<dyn Error>> {
    for _ in 0..RECEIVES {
        let buffer = fabric.engine.buffer(LEN)?;
        post(fabric, buffer)?;
    }
    let mut wrong = 0;
    for number in 0..MESSAGES {
        let WorkCompletion { buffer, len, .. } = wait(fabric)?;
        let is_right = len == LEN && buffer.iter().enumerate().all(|(at, &byte)| byte == expected(number, at));
        wrong += u64::from(!is_right);
        post(fabric, buffer)?;
    }
    meet(fabric)?;
    if wrong > 0 { Err(format!("{wrong} of {MESSAGES} messages were wrong").into()) } else { Ok(()) }
}

/// Every byte of a message differs from that of the one before.
fn expected(number: u64, at: usize) -> u8 {
    (number + at as u64 / 251) as u8
}

fn post(fabric: &mut Fabric, buffer: Buffer) -> Result<(), Box<dyn Error>> {
    let qp = fabric.queue_pairs[0].ok_or("no queue pair to rank 0")?;
    Ok(fabric.engine.post_recv(qp, 0, buffer)?)
}

/// The next completion, which must have worked.
fn wait(fabric: &mut Fabric) -> Result<WorkCompletion, Box<dyn Error>> {
    let mut polls = 0_u32;
    loop {
        if let Some(done) = fabric.engine.poll_cq(fabric.cq) {
            return if done.status.is_success() { Ok(done) } else { Err(done.status.to_string().into()) };
        }
        if fabric.engine.poll() == 0 {
            std::thread::yield_now();
        }
        polls = polls.wrapping_add(1);
        if polls.is_multiple_of(LOOK_AFTER) {
            fabric.job.as_mut().ok_or("no job")?.check()?;
        }
    }
}

/// Waits for the other rank, and serves it meanwhile.
fn meet(fabric: &mut Fabric) -> Result<(), Box<dyn Error>> {
    fabric.job.as_mut().ok_or("no job")?.start_barrier()?;
    while !fabric.job.as_mut().ok_or("no job")?.poll_barrier()? {
        fabric.engine.poll();
    }
    Ok(())
}

/// Pages of this program's own, unmapped when dropped.
struct Pages {
    at: NonNull<u8>,
}

impl Pages {
    fn map(place: usize) -> Result<Self, Box<dyn Error>> {
        let place = without_provenance_mut(place);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: without MAP_FIXED it takes no memory that is somebody's.
        let at = unsafe { libc::mmap(place, LEN, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        let pages = Self { at: NonNull::new(at.cast()).ok_or("mapped at 0")? };
        if at == place { Ok(pages) } else { Err("the place is taken".into()) }
    }

    /// # Safety
    /// As [`UserMemory::new`] has it of memory that is mapped for as long as this lives.
    unsafe fn as_user_memory(&mut self) -> UserMemory {
        // SAFETY: the pages are mapped, and zero at first; the rest is the caller's word.
        unsafe { UserMemory::new(self.at, LEN) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and the buffer of them has been dropped.
        unsafe { libc::munmap(self.at.as_ptr().cast(), LEN) };
    }
}
