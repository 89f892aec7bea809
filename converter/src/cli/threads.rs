//! The thread pool that conversions run on.

use crate::ConvertError;

/// The most threads started, whatever is asked for: tensors are split into fewer pieces than that.
const MOST: usize = 256;

/// Starts the pool, with as many threads as `RAYON_NUM_THREADS` asks for within reason, else one for each processor.
///
/// Left to itself the pool would start whatever number the variable has.
pub(super) fn start() -> Result<(), ConvertError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let requested = std::env::var("RAYON_NUM_THREADS").ok();
    let count = count(requested.as_deref(), processors);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(count);
    pool.build_global().map_err(|source| ConvertError::Threads { count, source })
}

fn count(requested: Option<&str>, processors: usize) -> usize {
    // Zero and what is no number mean the default, as for the pool itself; a number too large to count is one.
    let requested = requested.filter(|text| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit()));
    let requested = requested.map(|text| text.parse().unwrap_or(usize::MAX)).filter(|count| *count > 0);
    requested.map_or(processors, |count| count.min(processors.saturating_mul(4))).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn the_number_of_threads_is_bounded() {
        for (requested, processors, expected) in [
            (None, 2, 2),
            (None, 1000, 256),
            (Some("0"), 2, 2),
            (Some(""), 2, 2),
            (Some("many"), 2, 2),
            (Some("5"), 2, 5),
            (Some("100000"), 2, 8),
            (Some("100000"), 128, 256),
            (Some("99999999999999999999999999"), 2, 8),
        ] {
            assert_eq!(count(requested, processors), expected, "{requested:?} of {processors}");
        }
    }
}
