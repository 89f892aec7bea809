//! Activation buffers that a thread keeps between operations.
//!
//! A forward asks for the same few sizes hundreds of times. Fresh memory would be zeroed each time, by the allocator or
//! by the system when its pages are first touched, only to be overwritten; so an operation that is given a tensor that
//! nothing else holds keeps its buffer for a later operation's result.

use std::cell::RefCell;

/// Buffers that a thread keeps: more than a transformer block has alive at once.
const MAX_KEPT: usize = 10;

/// The longest buffer that is kept, in values: 32 MiB. Beyond it, a long text's memory goes back to the system.
const MAX_LEN: usize = 1 << 23;

thread_local! {
    static KEPT: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of `len` values, which are unspecified: the caller writes them all.
pub(crate) fn take(len: usize) -> Vec<f32> {
    let kept = KEPT.with_borrow_mut(|kept| {
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
    KEPT.with_borrow_mut(|kept| {
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
    fn no_more_than_a_few_and_none_too_long_are_kept() {
        give(Vec::with_capacity(MAX_LEN + 1));
        give(Vec::new());
        assert_eq!(KEPT.with_borrow(Vec::len), 0);
        for len in 1..=MAX_KEPT + 3 {
            give(Vec::with_capacity(len * 1000));
        }
        assert_eq!(KEPT.with_borrow(Vec::len), MAX_KEPT);
        assert!(KEPT.with_borrow(|kept| kept.iter().all(|buffer| buffer.capacity() >= 4000)), "the oldest go first");
    }
}
