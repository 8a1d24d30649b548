//! The end whose memory an atomic operation changes: an active message is executed on registered memory, one at a time, and answered
//! with what was there.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use roci_msgcore::active::{ActiveMessages as _, HandlerContext, HandlerId};
use roci_msgcore::{CallError, Worker};

use super::arithmetic::Arithmetic;
use crate::memory::ReachableMemory;

/// The handler's name, which all endpoints know.
const HANDLER: &str = "libfabric atomic";
/// What stands before the operands: where the answer belongs in the whole operation, and how many numbers there are.
pub(super) const PREFIX: usize = 8;

/// The memory of a domain that atomic operations may reach, by its key. It is locked for each operation, and nothing is locked
/// under it: so they exclude each other, and who takes memory out waits for the one that is in it.
#[derive(Default)]
pub(crate) struct AtomicTargets(Mutex<HashMap<u64, ReachableMemory>>);

impl AtomicTargets {
    pub(crate) fn insert(&self, key: u64, memory: ReachableMemory) {
        self.by_key().insert(key, memory);
    }

    pub(crate) fn remove(&self, key: u64) {
        self.by_key().remove(&key);
    }

    fn by_key(&self) -> MutexGuard<'_, HashMap<u64, ReachableMemory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes what a peer asks for, and returns what was there before.
    ///
    /// # Errors
    /// The memory is not there or not open for that, or the peer does not speak as this provider does.
    fn execute(&self, [key, addr, code]: [u64; 3], payload: &[u8]) -> Result<Vec<u8>, c_int> {
        let arithmetic = Arithmetic::from_wire(code).ok_or(libc::EOPNOTSUPP)?;
        let (prefix, numbers) = payload.split_at_checked(PREFIX).ok_or(libc::EINVAL)?;
        let &[_, _, _, _, c0, c1, c2, c3] = prefix else { return Err(libc::EINVAL) };
        let len = (u32::from_le_bytes([c0, c1, c2, c3]) as usize).checked_mul(arithmetic.size()).ok_or(libc::EINVAL)?;
        let expected = match (arithmetic.only_reads(), arithmetic.compares()) {
            (true, _) => 0,
            (false, false) => len,
            (false, true) => len.saturating_mul(2),
        };
        // What is read is no longer than what could be sent.
        if numbers.len() != expected || len > u16::MAX.into() {
            return Err(libc::EINVAL);
        }
        let (operands, compares) = numbers.split_at(len.min(numbers.len()));
        let mut before = vec![0; len];
        let by_key = self.by_key();
        let memory = by_key.get(&key).ok_or(libc::EACCES)?;
        let target = memory.reach(addr, len, !arithmetic.only_reads()).ok_or(libc::EACCES)?;
        // SAFETY: the bytes are registered, and stay so as long as the lock is held; other operations wait for it.
        unsafe { arithmetic.execute(target, operands, compares, &mut before) };
        Ok(before)
    }
}

/// Has a worker execute what peers ask for.
///
/// # Errors
/// It takes no more handlers.
pub(super) fn serve(worker: &mut Worker, targets: Arc<AtomicTargets>) -> Result<HandlerId, CallError> {
    worker.register_handler(
        HANDLER,
        Box::new(move |context, message| {
            // Endpoints of this kind send three arguments.
            if let &[key, addr, code] = message.arguments {
                answer(context, targets.execute([key, addr, code], message.payload), message.payload);
            }
        }),
    )
}

/// The answer has an error number, or where it belongs and what was there.
fn answer(context: &mut HandlerContext<'_>, outcome: Result<Vec<u8>, c_int>, asked: &[u8]) {
    let offset = asked.first_chunk().map_or(0, |&bytes| u32::from_le_bytes(bytes));
    let (error, before) = outcome.map_or_else(|error| (error, Vec::new()), |before| (0, before));
    let answered = context.reply(&[u64::from(offset) << 32 | u64::from(error.cast_unsigned())], &before);
    debug_assert!(answered.is_ok() || asked.is_empty(), "only who waits for an answer asks");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::atomic::{FI_ATOMIC_READ, FI_CSWAP, FI_INT32, FI_SUM};
    use crate::memory::ReachableMemory;

    fn payload(count: u32, numbers: usize) -> Vec<u8> {
        [&[0; 4], &count.to_le_bytes()[..], &vec![1; numbers]].concat()
    }

    #[test]
    fn a_peer_that_says_anything_else_is_refused_and_touches_nothing() {
        let targets = AtomicTargets::default();
        let mut memory = [7_u8; 16];
        targets.insert(5, ReachableMemory::for_tests(&mut memory));
        let code = |op, compares| Arithmetic::of(FI_INT32, op, compares).expect("it is defined").to_wire();
        let (sum, swap, read) = (code(FI_SUM, false), code(FI_CSWAP, true), code(FI_ATOMIC_READ, false));
        for (arguments, payload, error) in [
            ([5, 0, u64::MAX], payload(1, 4), libc::EOPNOTSUPP),
            ([5, 0, sum], vec![], libc::EINVAL),
            ([5, 0, sum], vec![0; 7], libc::EINVAL),
            ([5, 0, sum], payload(1, 3), libc::EINVAL),
            ([5, 0, sum], payload(2, 4), libc::EINVAL),
            ([5, 0, sum], payload(u32::MAX, 4), libc::EINVAL),
            ([5, 0, swap], payload(1, 4), libc::EINVAL),
            ([5, 0, read], payload(1, 4), libc::EINVAL),
            ([5, 0, read], payload(1 << 20, 0), libc::EINVAL),
            ([5, 13, sum], payload(1, 4), libc::EACCES),
            ([5, u64::MAX, sum], payload(1, 4), libc::EACCES),
            ([6, 0, sum], payload(1, 4), libc::EACCES),
        ] {
            assert_eq!(targets.execute(arguments, &payload), Err(error), "{arguments:?} {payload:?}");
        }
        assert_eq!(targets.execute([5, 12, sum], &payload(1, 4)), Ok(vec![7; 4]));
        targets.remove(5);
        assert_eq!(targets.execute([5, 12, sum], &payload(1, 4)), Err(libc::EACCES));
        assert_eq!(memory, [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 8, 8, 8]);
    }
}
