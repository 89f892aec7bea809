//! How the x86 levels walk a product; the loops inside are theirs ([`Level`]).
//!
//! With few activation rows they form dot products ([`dots`]). With more, a *panel* of weight rows is staged in scratch
//! first, still packed but transposed, so that a lane is a weight row: four activations are broadcast to all lanes, no
//! lane is ever summed across, and all activation rows pass over the panel while it is in cache.

use super::dots::{self, Dots, Packed, prefetch};
use super::output::Rect;
use super::{Job, Output, Rows};
use crate::layout::{BLOCK, BLOCK_BYTES};
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
    /// nothing, at most 4.
    pub(super) lines: usize,
}

/// The loops of one instruction set and the shapes they are best at.
pub(super) trait Level: Dots {
    /// Weight rows of a panel: a multiple of 16, at most [`MAX_COLS`].
    const PANEL_COLS: usize;
    /// The most activation rows of a tile over a panel that the level has registers for.
    const PANEL_ROWS: usize;

    /// Steps of scratch for a panel of `blocks` blocks when `rows` activation rows will pass over it.
    fn panel_steps(rows: usize, blocks: usize) -> usize;

    /// Stages a panel in `panel`, [`Level::panel_steps`] of scratch, and writes the outputs of all activation rows over
    /// it, in tiles of [`Pass::tile_rows`]. A panel is always full: from the columns of the output on, rows repeat the
    /// last one, and nobody reads their sums. The passes of a job come one after the other with the same scratch, so that
    /// one may begin with the panel of the next.
    fn pass<T: Output>(self, pass: Pass<'_, T>, panel: &mut [Step]);
}

/// All activation rows and one panel of weight rows.
pub(super) struct Pass<'a, T> {
    pub(super) x: Rows<'a>,
    /// Blocks per row.
    pub(super) blocks: usize,
    pub(super) weight_scale: f32,
    /// The packed weight rows, and perhaps others after them.
    pub(super) weights: Packed<'a>,
    pub(super) next: Next<'a>,
    /// Whether a pass with this one's panel as its next came before.
    pub(super) follows: bool,
    /// The most activation rows of a tile, at most [`Level::PANEL_ROWS`].
    pub(super) tile_rows: usize,
    /// As many columns as the panel has weight rows of the matrix.
    pub(super) out: Rect<'a, T>,
}

impl<'a> Rows<'a> {
    /// The first `rows` rows of `blocks` blocks, and the others.
    fn split(self, rows: usize, blocks: usize) -> (Self, Self) {
        let (codes, other_codes) = self.codes.split_at(rows * blocks);
        let (sums, other_sums) = self.sums.split_at(rows);
        let (scales, other_scales) = self.scales.split_at(rows);
        (Self { codes, sums, scales }, Self { codes: other_codes, sums: other_sums, scales: other_scales })
    }

    /// `N` rows of `blocks` blocks from row `first` on.
    #[inline(always)]
    pub(super) fn tile<const N: usize>(&self, first: usize, blocks: usize) -> [&'a [[i8; BLOCK]]; N] {
        let mut tile: [&[[i8; BLOCK]]; N] = [&[]; N];
        for (i, row) in tile.iter_mut().enumerate() {
            *row = &self.codes[(first + i) * blocks..][..blocks];
        }
        tile
    }
}

impl<'a, T: Output> Pass<'a, T> {
    /// The first tile, those between, and the last; a single tile is the first.
    pub(super) fn split_tiles(self) -> [Self; 3] {
        // As `tiles` divides them: the larger ones come first.
        let (rows, count) = (self.out.rows(), self.out.rows().div_ceil(self.tile_rows).max(1));
        let (first, last) = (rows.div_ceil(count), if count > 1 { rows / count } else { 0 });
        let between = rows - first - last;
        let (first, others) = self.split(first, 1);
        let (between, last) = others.split(between, count.saturating_sub(2));
        [first, between, last]
    }

    /// The first `rows` rows, which are `tiles` tiles, and the others.
    fn split(self, rows: usize, tiles: usize) -> (Self, Self) {
        let (out, others) = self.out.split_rows(rows);
        let ((x, other_x), next) = (self.x.split(rows, self.blocks), self.next.after(tiles));
        (Self { x, out, ..self }, Self { x: other_x, out: others, next, ..self })
    }
}

/// The panel after the one a pass is over. The first tiles of the pass fetch it, each a part, or memory would have to
/// deliver it all at once when it is staged: its rows are too many streams for the hardware to follow.
#[derive(Clone, Copy)]
pub(super) struct Next<'a> {
    /// From its first row on, and how many rows it has: none where the job ends.
    pub(super) packed: Packed<'a>,
    pub(super) rows: usize,
    /// What is left to fetch of it, or of what lies behind the job; may end before a panel does.
    unfetched: Packed<'a>,
    /// Bytes of it that a tile asks for, and those of all.
    share: usize,
    bytes: usize,
    /// Cache lines that a tile asks for in each of its steps, one after the other.
    lines: usize,
}

impl<'a> Next<'a> {
    /// What is left to ask for after the first `tiles` tiles.
    fn after(self, tiles: usize) -> Self {
        let done = tiles * self.share;
        let unfetched = self.unfetched.get(done / BLOCK_BYTES..).unwrap_or(&[]);
        Self { unfetched, bytes: self.bytes.saturating_sub(done), ..self }
    }

    /// What tile number `tile` asks for.
    #[inline(always)]
    pub(super) fn ahead(self, tile: usize) -> Ahead<'a> {
        let at = tile * self.share;
        let packed = self.unfetched.get(at / BLOCK_BYTES..).unwrap_or(&[]);
        Ahead { packed, lines: if at < self.bytes && !packed.is_empty() { self.lines } else { 0 } }
    }
}

impl Ahead<'_> {
    /// Asks for the lines of step `step`.
    #[inline(always)]
    pub(super) fn fetch(self, step: usize) {
        // Not a loop, whose counter would cost more than the branches, which always go the same way.
        let at = step * self.lines * 64;
        if self.lines > 0 {
            prefetch(self.packed, at);
        }
        if self.lines > 1 {
            prefetch(self.packed, at + 64);
        }
        if self.lines > 2 {
            prefetch(self.packed, at + 128);
            prefetch(self.packed, at + 192);
        }
    }
}

/// Runs the body for each tile of a pass, with its number of activation rows as a constant.
macro_rules! each_tile {
    ($pass:ident, $rows:tt, |$($names:ident),+| $body:expr) => {
        for (tile, (first, count)) in tiles($pass.out.rows(), $pass.tile_rows).enumerate() {
            $crate::kernel::panel::one_tile!($pass, tile, first, count, $rows, |$($names),+| $body)
        }
    };
}
pub(super) use each_tile;

/// Runs the body for one tile of a pass, which begins at row `$first` and has `$count`.
macro_rules! one_tile {
    (
        $pass:ident, $tile:expr, $first:expr, $count:expr,
        [$($rows:literal),+], |$ROWS:ident, $x:ident, $row_sums:ident, $ahead:ident, $scaled:ident| $body:expr
    ) => {{
        let (first, count) = ($first, $count);
        let $ahead = $pass.next.ahead($tile);
        match count {
            $($rows => {
                const $ROWS: usize = $rows;
                let $x = &$pass.x.tile::<$ROWS>(first, $pass.blocks);
                let $row_sums = $pass.x.sums[first..].first_chunk::<$ROWS>().expect("the rows of a tile");
                let scales = $pass.x.scales[first..].first_chunk::<$ROWS>().expect("the rows of a tile");
                let cols = $pass.out.cols();
                let out = $pass.out.part(first..first + count, 0..cols);
                let $scaled = Scaled { weight_scale: $pass.weight_scale, scales, out };
                $body
            })+
            _ => unreachable!("a tile of {count} rows"),
        }
    }};
}
pub(super) use one_tile;

/// Writes the outputs of a tile of `ROWS` rows from its sums, by `write_row` of the level. By constant indices, not in a
/// loop or a call: the compiler would not unroll the one nor always inline the other, and keep the sums in memory.
macro_rules! write_tile {
    ($write_row:path, $sums:ident, $scaled:ident) => {
        const { assert!(ROWS <= 6) };
        let Scaled { weight_scale, scales, mut out } = $scaled;
        if ROWS > 0 {
            $write_row($sums[0], weight_scale, scales[0], out.row(0));
        }
        if ROWS > 1 {
            $write_row($sums[1], weight_scale, scales[1], out.row(1));
        }
        if ROWS > 2 {
            $write_row($sums[2], weight_scale, scales[2], out.row(2));
        }
        if ROWS > 3 {
            $write_row($sums[3], weight_scale, scales[3], out.row(3));
        }
        if ROWS > 4 {
            $write_row($sums[4], weight_scale, scales[4], out.row(4));
        }
        if ROWS > 5 {
            $write_row($sums[5], weight_scale, scales[5], out.row(5));
        }
    };
}
pub(super) use write_tile;

/// Where the outputs of a tile go, and the scales of its sums.
pub(super) struct Scaled<'a, T> {
    pub(super) weight_scale: f32,
    /// Of the tile's activation rows.
    pub(super) scales: &'a [f32],
    /// The tile's rows; as many columns as there are weight rows, at most [`Level::PANEL_COLS`].
    pub(super) out: Rect<'a, T>,
}

/// Four activations, to be broadcast: codes `at ..` of a block.
#[inline(always)]
pub(super) fn dword(block: &[i8; BLOCK], at: usize) -> i32 {
    let codes: [i8; 4] = block.as_chunks::<4>().0[at / 4];
    i32::from_ne_bytes(codes.map(i8::cast_unsigned))
}

/// Does the job with the loops of `level`.
pub(super) fn run<L: Level, T: Output>(level: L, job: Job<'_, T>) {
    if job.out.rows() < job.tiling.panel_from { dots::run(level, job) } else { panels(level, job) }
}

fn panels<L: Level, T: Output>(level: L, mut job: Job<'_, T>) {
    let (rows, cols) = (job.out.rows(), job.out.cols());
    let tile_rows = job.tiling.tile_rows.clamp(1, L::PANEL_ROWS);
    fetch_first(&job.weights[..L::PANEL_COLS.min(cols) * job.blocks], job.blocks);
    with_scratch(L::panel_steps(rows, job.blocks), |panel| {
        for start in (0..cols).step_by(L::PANEL_COLS) {
            let width = L::PANEL_COLS.min(cols - start);
            let weights = &job.weights[start * job.blocks..];
            let packed = weights.get(width * job.blocks..).unwrap_or(&[]);
            let next_rows = L::PANEL_COLS.min(cols - start - width);
            let vectors = L::PANEL_COLS / 16;
            let lines = vectors.div_ceil(rows.div_ceil(tile_rows)).max(1);
            let share = lines * 16 * job.blocks * BLOCK_BYTES;
            let bytes = L::PANEL_COLS * job.blocks * BLOCK_BYTES;
            let next = Next { packed, rows: next_rows, unfetched: packed, share, bytes, lines };
            let (x, blocks, weight_scale) = (job.x, job.blocks, job.weight_scale);
            let out = job.out.part(0..rows, start..start + width);
            level.pass(Pass { x, blocks, weight_scale, weights, next, follows: start > 0, tile_rows, out }, panel);
        }
    });
}

/// Asks for the packed rows of a job's first panel, which no pass before it did: in the order in which they are staged, a
/// line of each row and then the next of each, as memory is busy with all of them at once.
fn fetch_first(rows: Packed<'_>, blocks: usize) {
    for line in 0..(blocks * BLOCK_BYTES).div_ceil(64) {
        for row in rows.chunks_exact(blocks) {
            prefetch(row, line * 64);
        }
    }
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

    #[test]
    fn the_table_has_the_largest_tiles_that_there_are() {
        use crate::isa::Isa;
        use crate::tiling::Tiling;
        for &isa in Isa::available() {
            let most = match isa {
                Isa::Scalar => 1,
                Isa::Avx2(level) => most_rows(level),
                Isa::AvxVnni(level) => most_rows(level),
                Isa::Avx512Bw(level) => most_rows(level),
                Isa::Avx512Vnni(level) => most_rows(level),
            };
            for in_features in [1, 640, 16384] {
                assert_eq!(Tiling::of(isa, in_features).tile_rows, most, "{isa}");
            }
        }
    }

    fn most_rows<L: Level>(_: L) -> usize {
        L::PANEL_ROWS
    }
}
