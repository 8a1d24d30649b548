//! Work requests and completions are written once, to where they wait.

use std::collections::VecDeque;

/// Appends what `make` returns, which is made in its place.
///
/// [`VecDeque::push_back`] finds out whether there is room when it has the item, so that this lies on the stack until then, and is
/// copied. A copy of fields that were written just before makes the processor wait until they have left its store buffer.
#[inline(always)]
pub fn push_in_place<T>(queue: &mut VecDeque<T>, make: impl FnOnce() -> T) {
    if queue.len() == queue.capacity() {
        grow(queue);
    }
    // With this the compiler knows that nothing is left to be found out.
    assert!(queue.len() < queue.capacity(), "room was made");
    queue.push_back(make());
}

#[cold]
#[inline(never)]
fn grow<T>(queue: &mut VecDeque<T>) {
    queue.reserve(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_order_while_the_queue_grows_and_turns() {
        let (mut queue, mut expected) = (VecDeque::new(), VecDeque::new());
        for item in 0..1_000 {
            push_in_place(&mut queue, || item);
            expected.push_back(item);
            if item % 3 == 0 {
                assert_eq!(queue.pop_front(), expected.pop_front());
            }
        }
        assert_eq!(queue, expected);
    }
}
