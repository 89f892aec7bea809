//! When work is worth more than one thread, and the scratch memory it uses.
//!
//! Everything runs in the caller's current rayon pool; this crate never builds a global one.

use std::cell::{Cell, RefCell};

thread_local! {
    static SERIAL: Cell<bool> = const { Cell::new(false) };
}

/// Threads that an operation started on this thread may use.
pub(crate) fn available() -> usize {
    if SERIAL.get() { 1 } else { rayon::current_num_threads() }
}

/// Whether what is called is one part of work that was already divided.
#[cfg(feature = "burn")]
pub(crate) fn is_serial() -> bool {
    SERIAL.get()
}

/// Runs `f`, whose operations stay on this thread: they are one part of work that was already divided.
#[cfg(feature = "burn")]
pub(crate) fn serially<R>(f: impl FnOnce() -> R) -> R {
    /// Restores the previous state when dropped, so that a panic in `f` does not leave the thread alone for ever.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            SERIAL.set(self.0);
        }
    }
    let _restore = Restore(SERIAL.replace(true));
    f()
}

/// Elements of streaming work (a few operations each) that are worth handing to another thread.
const JOB: usize = 1 << 15;

/// How many of `units` equal pieces of work of `cost` elements each one job should take; `units` itself when splitting
/// would cost more than it gains.
pub(crate) fn units_per_job(units: usize, cost: usize) -> usize {
    let total = units.saturating_mul(cost);
    // The order matters: small work must not be what starts rayon's threads.
    if total < 2 * JOB || available() == 1 {
        return units.max(1);
    }
    JOB.div_ceil(cost.max(1)).clamp(1, units.div_ceil(available()))
}

thread_local! {
    static POOL: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

/// Buffers that a thread keeps between operations.
const KEPT: usize = 4;

/// Runs `f` with `len` floats of this thread's scratch, aligned to a cache line; their values are unspecified.
///
/// Calls may nest, and a thread that helps another operation while it waits gets another buffer.
pub(crate) fn with_scratch<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    const ALIGN: usize = 64;
    let slack = ALIGN / size_of::<f32>();
    let mut buffer = POOL.with_borrow_mut(|pool| pool.pop()).unwrap_or_default();
    if buffer.len() < len + slack {
        buffer.resize(len + slack, 0.0);
    }
    let start = buffer.as_ptr().align_offset(ALIGN).min(slack);
    let result = f(&mut buffer[start..start + len]);
    POOL.with_borrow_mut(|pool| {
        if pool.len() < KEPT {
            pool.push(buffer);
        }
    });
    result
}
