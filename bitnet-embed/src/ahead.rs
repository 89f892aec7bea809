//! A long list of texts in parts: while one part is computed, the next is tokenized.

use std::ops::Range;

/// Bytes of text that are taken for a token when a list is cut into parts, which happens before its tokens are known.
/// A wrong guess makes parts larger or smaller, nothing else.
const BYTES_PER_TOKEN: usize = 4;

/// Forwards a part is worth. Batches do not cross parts, so each part ends with a batch that is not full; with this many
/// they hardly count. More would keep more token ids in memory.
const FORWARDS_PER_PART: usize = 16;

/// Cuts texts of these sizes in bytes into parts of about [`FORWARDS_PER_PART`] forwards of `token_budget` tokens, in
/// order and without gaps. A text is never divided.
pub(crate) fn parts(bytes: impl IntoIterator<Item = usize>, token_budget: usize) -> Vec<Range<usize>> {
    let full = token_budget.saturating_mul(FORWARDS_PER_PART * BYTES_PER_TOKEN);
    let (mut parts, mut start, mut held, mut texts) = (Vec::new(), 0, 0usize, 0);
    for size in bytes {
        // Even an empty text has its special tokens.
        held = held.saturating_add(size.max(BYTES_PER_TOKEN));
        texts += 1;
        if held >= full {
            parts.push(start..texts);
            (start, held) = (texts, 0);
        }
    }
    if start < texts {
        parts.push(start..texts);
    }
    parts
}

/// Calls `compute` for every part in order, each with what `prepare` made of it, and prepares the next part on another
/// thread of rayon's current pool meanwhile. In a pool of one thread the two alternate. A single part involves no pool.
///
/// # Errors
/// The first error in the order of the parts; `compute` is not called for the part that `prepare` refused, nor for any
/// after an error.
pub(crate) fn compute_all<T: Send, E: Send>(
    parts: &[Range<usize>],
    prepare: impl Fn(Range<usize>) -> Result<T, E> + Sync,
    mut compute: impl FnMut(Range<usize>, T) -> Result<(), E> + Send,
) -> Result<(), E> {
    let Some(first) = parts.first() else { return Ok(()) };
    let mut ready = prepare(first.clone())?;
    for pair in parts.windows(2) {
        let (part, next) = (pair[0].clone(), pair[1].clone());
        let (computed, prepared) = rayon::join(|| compute(part, ready), || prepare(next));
        computed?;
        ready = prepared?;
    }
    compute(parts[parts.len() - 1].clone(), ready)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn parts_cover_the_list_once_and_are_full_but_for_the_last() {
        // A budget of 1 makes parts of 64 bytes.
        assert!(parts([0; 0], 1).is_empty());
        assert_eq!(parts([0], 1).first(), Some(&(0..1)));
        assert_eq!(parts([32, 31, 1, 200, 5, 60], 1), [0..3, 3..4, 4..6]);
        assert_eq!(parts([0; 40], 1), [0..16, 16..32, 32..40]);
        assert_eq!(parts([usize::MAX, usize::MAX], usize::MAX), [0..1, 1..2]);
        assert_eq!(parts([100; 3], 0), [0..1, 1..2, 2..3]);
    }

    /// Runs parts `0..n` with a failure of either kind, if any, and returns the parts computed.
    fn run(
        n: usize,
        threads: usize,
        refused: Option<usize>,
        failed: Option<usize>,
    ) -> (Result<(), String>, Vec<usize>) {
        let parts: Vec<Range<usize>> = (0..n).map(|part| part..part + 1).collect();
        let computed = Mutex::new(Vec::new());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let result = pool.install(|| {
            compute_all(
                &parts,
                |part| {
                    if Some(part.start) == refused {
                        Err(format!("refused {}", part.start))
                    } else {
                        Ok(part.start * 10)
                    }
                },
                |part, ready| {
                    assert_eq!(ready, part.start * 10);
                    computed.lock().unwrap().push(part.start);
                    if Some(part.start) == failed { Err(format!("failed {}", part.start)) } else { Ok(()) }
                },
            )
        });
        (result, computed.into_inner().unwrap())
    }

    #[test]
    fn every_part_is_computed_once_in_order_and_the_first_error_ends_it() {
        for threads in [1, 2, 5] {
            for n in [0, 1, 2, 7] {
                assert_eq!(run(n, threads, None, None), (Ok(()), (0..n).collect()));
            }
            assert_eq!(run(7, threads, Some(0), None), (Err("refused 0".into()), vec![]));
            assert_eq!(run(7, threads, Some(3), None), (Err("refused 3".into()), vec![0, 1, 2]));
            assert_eq!(run(7, threads, None, Some(6)), (Err("failed 6".into()), (0..7).collect()));
            // The part before the refused one comes first, though the refusal is known earlier.
            assert_eq!(run(7, threads, Some(3), Some(2)), (Err("failed 2".into()), vec![0, 1, 2]));
        }
    }

    #[test]
    fn the_next_part_is_prepared_while_one_is_computed() {
        // Part 0 is computed until part 1 has been prepared: without overlap it would wait in vain.
        let (send, receive) = std::sync::mpsc::channel();
        let send = Mutex::new(send);
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        let result = pool.install(|| {
            compute_all(
                &[0..1, 1..2],
                |part| send.lock().unwrap().send(part.start).map_err(|_| "closed"),
                move |part, ()| {
                    if part.start > 0 {
                        return Ok(());
                    }
                    let wait = || receive.recv_timeout(std::time::Duration::from_secs(60)).map_err(|_| "no overlap");
                    assert_eq!((wait()?, wait()?), (0, 1));
                    Ok(())
                },
            )
        });
        assert_eq!(result, Ok(()));
    }
}
