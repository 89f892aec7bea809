//! What happens to a file being written when the process is told to end.
//!
//! A signal to end removes the partial file first. Reaching the limit on file sizes is made an error of the write instead
//! of the end of the process, so that it is reported and cleaned up like a full disk.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

static PARTIAL: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Names the partial file of this process for as long as it lives.
pub(crate) struct Registered(());

impl Registered {
    pub(crate) fn new(partial: &Path) -> Self {
        set(Some(partial.to_owned()));
        Self(())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        set(None);
    }
}

fn set(partial: Option<PathBuf>) {
    if let Ok(mut slot) = PARTIAL.lock() {
        *slot = partial;
    }
}

/// Listens for signals, once per process.
///
/// Where that is not possible the process ends as it always would; what it leaves is taken over by the next run.
#[cfg(unix)]
pub(crate) fn listen() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    // With any handler the write fails with EFBIG; the flag itself is of no use.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let Ok(mut signals) = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            if let Ok(mut slot) = PARTIAL.lock()
                && let Some(partial) = slot.take()
            {
                let _ = std::fs::remove_file(partial);
            }
            // As a shell reports a process that a signal ended.
            std::process::exit(128 + signal);
        }
    });
}

/// Signals are a matter of Unix.
#[cfg(not(unix))]
pub(crate) fn listen() {}
