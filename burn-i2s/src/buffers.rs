//! Activation buffers that a thread keeps between operations.
//!
//! A forward asks for the same few sizes hundreds of times. Fresh memory would be zeroed each time, by the allocator or
//! by the system when its pages are first touched, only to be overwritten; so an operation that is given a tensor that
//! nothing else holds keeps its buffer for a later operation's result.
//!
//! Memory of tensors whose rows several threads write is kept apart from that of the pieces a thread has for itself. Mixed
//! up, the rows of one thread would come to lie where another wrote last, and each of their cache lines would first have
//! to be fetched from that one's core.

use crate::threads;
use std::cell::RefCell;

/// Buffers of either kind that a thread keeps: more than a transformer block has alive at once.
const MAX_KEPT: usize = 10;

/// The longest buffer that is kept, in values: 32 MiB. Beyond it, a long text's memory goes back to the system.
const MAX_LEN: usize = 1 << 23;

/// The buffers that a thread keeps, those that have waited longest first.
struct Kept {
    /// For tensors that all threads work on.
    whole: Vec<Vec<f32>>,
    /// For one part of work that was divided.
    parts: Vec<Vec<f32>>,
}

thread_local! {
    static KEPT: RefCell<Kept> = const { RefCell::new(Kept { whole: Vec::new(), parts: Vec::new() }) };
}

/// Calls `f` with the buffers of the kind that the caller works on.
fn with_kept<R>(f: impl FnOnce(&mut Vec<Vec<f32>>) -> R) -> R {
    KEPT.with_borrow_mut(|kept| f(if threads::is_serial() { &mut kept.parts } else { &mut kept.whole }))
}

/// A buffer of `len` values, which are unspecified: the caller writes them all.
pub(crate) fn take(len: usize) -> Vec<f32> {
    let kept = with_kept(|kept| {
        // A larger one is left for the results of its own width, which it would have to be filled up for again. Texts
        // that are a little shorter than the last ones may use it.
        let fits = |buffer: &Vec<f32>| (len..=len + len / 3).contains(&buffer.capacity());
        let fitting = kept.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        let smallest = fitting.min_by_key(|(_, buffer)| buffer.capacity()).map(|(index, _)| index);
        smallest.map(|index| kept.remove(index))
    });
    match kept {
        Some(mut buffer) => {
            // Fills nothing but what lies beyond the last use's length.
            buffer.resize(len, 0.0);
            buffer
        }
        None => vec![0.0; len],
    }
}

/// Keeps a buffer for a later [`take`] on this thread.
pub(crate) fn give(buffer: Vec<f32>) {
    if buffer.capacity() == 0 || buffer.capacity() > MAX_LEN {
        return;
    }
    with_kept(|kept| {
        if kept.len() == MAX_KEPT {
            // The one that has waited longest: sizes go out of use when texts change.
            kept.remove(0);
        }
        kept.push(buffer);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_given_is_taken_again_where_it_fits() {
        let mut buffer = Vec::with_capacity(100);
        buffer.resize(80, 1.0);
        let address = buffer.as_ptr();
        give(buffer);
        assert_eq!(take(70).len(), 70, "a buffer far too large is left alone");
        assert_eq!(take(101).len(), 101);
        let again = take(90);
        assert_eq!((again.as_ptr(), again.len()), (address, 90));
        let another = take(90);
        assert_ne!(another.as_ptr(), address);
    }

    #[test]
    fn a_part_of_divided_work_does_not_get_the_memory_of_the_whole() {
        let whole = vec![1.0; 50];
        let address = whole.as_ptr();
        give(whole);
        threads::serially(|| {
            let part = take(50);
            assert_ne!(part.as_ptr(), address);
            give(part);
        });
        let again = take(50);
        assert_eq!(again.as_ptr(), address, "nor is it given that of a part");
    }

    #[test]
    fn no_more_than_a_few_and_none_too_long_are_kept() {
        give(Vec::with_capacity(MAX_LEN + 1));
        give(Vec::new());
        assert_eq!(with_kept(|kept| kept.len()), 0);
        for len in 1..=MAX_KEPT + 3 {
            give(Vec::with_capacity(len * 1000));
        }
        assert_eq!(with_kept(|kept| kept.len()), MAX_KEPT);
        assert!(with_kept(|kept| kept.iter().all(|buffer| buffer.capacity() >= 4000)), "the oldest go first");
    }
}
