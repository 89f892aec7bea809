//! What happens to a file being written when the process is told to end.
//!
//! A signal to end removes the partial files first. Reaching the limit on file sizes is made an error of the write instead
//! of the end of the process, so that it is reported and cleaned up like a full disk.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bitnet_embed::gguf::{FileWriter, GgufWriter};

use crate::{ConvertError, outfile};

static PARTIAL: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Names a partial file of this process for as long as it lives.
pub(crate) struct Registered(PathBuf);

impl Registered {
    fn new(partial: &Path) -> Self {
        if let Ok(mut partials) = PARTIAL.lock() {
            partials.push(partial.to_owned());
        }
        Self(partial.to_owned())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Ok(mut partials) = PARTIAL.lock() {
            partials.retain(|partial| *partial != self.0);
        }
    }
}

/// Starts a file, where `path` links to if it is a link, that is removed when the process is told to end.
pub(crate) fn create(writer: GgufWriter, path: &Path) -> Result<(FileWriter, Option<Registered>), ConvertError> {
    let path = outfile::resolve(path)?;
    let mut registered = None;
    // Before the header is written: that of a large vocabulary takes a moment.
    let file = writer.create_with(path, |partial| registered = Some(Registered::new(partial)))?;
    Ok((file, registered))
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
            // Held until the process ends: nothing is put in its place meanwhile.
            let partials = PARTIAL.lock();
            for partial in partials.iter().flat_map(|partials| partials.iter()) {
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
