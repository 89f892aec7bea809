//! Which time is measured: what passes, or what the process computes.

use std::time::{Duration, Instant};

/// A clock for samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The time that passes.
    #[default]
    Wall,
    /// The CPU time of the process, divided among so many threads: what an otherwise idle machine would need if all of
    /// them had always work. For machines that others use, too.
    Cpu {
        /// Threads.
        threads: u32,
    },
}

/// A running measurement.
#[derive(Clone, Copy, Debug)]
pub struct Timer {
    clock: Clock,
    start: Instant,
    cpu_start: Duration,
}

impl Clock {
    /// Starts to measure.
    pub fn start(self) -> Timer {
        let cpu_start = if self == Self::Wall { Duration::ZERO } else { process_cpu_time().unwrap_or_default() };
        Timer { clock: self, start: Instant::now(), cpu_start }
    }

    /// `wall` or `cpu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Cpu { .. } => "cpu",
        }
    }

    /// Whether this system tells a process its CPU time.
    pub fn has_cpu_time() -> bool {
        process_cpu_time().is_some()
    }
}

impl Timer {
    /// The time since the start; at least a nanosecond.
    pub fn elapsed(&self) -> Duration {
        let elapsed = match self.clock {
            Clock::Wall => self.start.elapsed(),
            Clock::Cpu { threads } => {
                process_cpu_time().unwrap_or_default().saturating_sub(self.cpu_start) / threads.max(1)
            }
        };
        elapsed.max(Duration::from_nanos(1))
    }
}

#[cfg(unix)]
fn process_cpu_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

#[cfg(not(unix))]
fn process_cpu_time() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computing_takes_cpu_time_and_threads_share_it() {
        if !Clock::has_cpu_time() {
            return;
        }
        let timers = [Clock::Cpu { threads: 1 }, Clock::Cpu { threads: 4 }].map(Clock::start);
        let work = std::hint::black_box((0..20_000_000u64).fold(1, |a: u64, b| std::hint::black_box(a ^ b)));
        let [alone, shared] = timers.map(|timer| timer.elapsed());
        assert!(alone > Duration::from_millis(1), "{alone:?} for {work}");
        assert!(shared < alone, "{shared:?} of {alone:?}");
    }
}
