//! How the x86 levels walk a product; the loops inside are theirs ([`Level`]).
//!
//! With few activation rows they form dot products ([`dots`]). With more, a *panel* of weight rows is staged in scratch
//! first, still packed but transposed, so that a lane is a weight row: four activations are broadcast to all lanes, no
//! lane is ever summed across, and all activation rows pass over the panel while it is in cache.

use super::dots::{self, Dots, MAX_COLS, MAX_ROWS, Packed, Sums, activations, tiles};
use super::{Job, Output};
use crate::layout::BLOCK;
use std::cell::Cell;

/// The same four bytes of 16 weight rows: 16 weights a row in four planes, one dword a row.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Step(pub(super) [u8; 64]);

/// Steps in a block: `32 bytes / 4`.
pub(super) const STEPS: usize = 8;

/// What a pass over a panel prefetches of the panels after it.
#[derive(Clone, Copy)]
pub(super) struct Ahead<'a> {
    /// Where it begins; may end before what is asked for.
    pub(super) packed: Packed<'a>,
    /// Cache lines to ask for in each step, one after the other: that many times 16 rows in a pass. Zero to ask for
    /// nothing, at most 2.
    pub(super) lines: usize,
}

/// The loops of one instruction set and the shapes they are best at.
pub(super) trait Level: Dots {
    /// Weight rows of a panel: a multiple of 16, at most [`MAX_COLS`].
    const PANEL_COLS: usize;
    /// Activation rows of a tile over a panel.
    const PANEL_ROWS: usize;

    /// The fewest activation rows that are worth staging a panel of `blocks` blocks for. A dot product has a cost of
    /// its own for each output, the sum across lanes, and a panel one for each weight.
    fn panel_from(blocks: usize) -> usize;

    /// Steps of scratch for a panel of `blocks` blocks when `rows` activation rows will pass over it.
    fn panel_steps(rows: usize, blocks: usize) -> usize;

    /// Stages the first [`Level::PANEL_COLS`] rows of `packed`. A panel is always full: from `cols` on, rows repeat
    /// the last one, and nobody reads their sums.
    fn stage(self, rows: usize, packed: Packed<'_>, cols: usize, blocks: usize, panel: &mut [Step]);

    /// Sums over a staged panel, a row of them for each activation row. `rows` is what [`Level::stage`] was told.
    fn tile(
        self,
        rows: usize,
        x: &[&[[i8; BLOCK]]],
        row_sums: &[i32],
        panel: &[Step],
        ahead: Ahead<'_>,
        sums: &mut Sums,
    );
}

/// Four activations, to be broadcast: codes `at ..` of a block.
#[inline(always)]
pub(super) fn dword(block: &[i8; BLOCK], at: usize) -> i32 {
    let codes: [i8; 4] = block.as_chunks::<4>().0[at / 4];
    i32::from_ne_bytes(codes.map(i8::cast_unsigned))
}

/// Does the job with the loops of `level`.
pub(super) fn run<L: Level, T: Output>(level: L, job: Job<'_, T>) {
    if job.out.rows() < L::panel_from(job.blocks) { dots::run(level, job) } else { panels(level, job) }
}

fn panels<L: Level, T: Output>(level: L, mut job: Job<'_, T>) {
    let (rows, cols) = (job.out.rows(), job.out.cols());
    let mut sums = [[0; MAX_COLS]; MAX_ROWS];
    with_scratch(L::panel_steps(rows, job.blocks), |panel| {
        for start in (0..cols).step_by(L::PANEL_COLS) {
            let width = L::PANEL_COLS.min(cols - start);
            level.stage(rows, &job.weights[start * job.blocks..], width, job.blocks, panel);
            // The passes over a panel fetch the next one, or memory would have to deliver it all at once: the rows of a
            // panel are too many streams for the hardware to follow. The first few share it.
            let vectors = L::PANEL_COLS / 16;
            let lines = if rows.div_ceil(L::PANEL_ROWS) >= vectors { 1 } else { 2 };
            for (pass, (first, count)) in tiles(rows, L::PANEL_ROWS).enumerate() {
                let next = (start + width + pass * lines * 16) * job.blocks;
                let ahead = match job.weights.get(next..) {
                    Some(packed) if pass * lines < vectors => Ahead { packed, lines },
                    _ => Ahead { packed: &[], lines: 0 },
                };
                let x = activations(&job, first, count);
                level.tile(rows, &x[..count], &job.x.sums[first..][..count], panel, ahead, &mut sums);
                let out = job.out.part(first..first + count, start..start + width);
                level.finish(&sums, job.weight_scale, &job.x.scales[first..], out);
            }
        }
    });
}

/// Lends `steps` steps of this thread's scratch, which keeps its size between jobs. The contents are arbitrary.
fn with_scratch<R>(steps: usize, f: impl FnOnce(&mut [Step]) -> R) -> R {
    thread_local! {
        static SCRATCH: Cell<Vec<Step>> = const { Cell::new(Vec::new()) };
    }
    // Taken out while in use, so that a nested call would get scratch of its own.
    let mut scratch = SCRATCH.take();
    if scratch.len() < steps {
        scratch.resize(steps, Step([0; 64]));
    }
    let result = f(&mut scratch[..steps]);
    SCRATCH.set(scratch);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_kept_and_a_nested_user_gets_other_scratch() {
        let outer = with_scratch(4, |outer| {
            let inner = with_scratch(2, |inner| inner.as_ptr());
            assert_ne!(outer.as_ptr(), inner);
            outer.as_ptr()
        });
        assert_eq!(with_scratch(3, |again| again.as_ptr()), outer);
    }
}
