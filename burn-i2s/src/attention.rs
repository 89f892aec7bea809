//! Attention over texts of different lengths, without padding and without a score matrix.
//!
//! Each text is cut into tiles of a few query tokens; the query heads that share a key/value head are stacked, so a tile
//! is about 60 rows that meet the same keys. A tile walks over blocks of 64 keys with an online softmax: a running
//! maximum, a running sum in 16 lanes, and unnormalised outputs that are rescaled when the maximum grows.
//!
//! What makes a text's result independent of everything around it: tiles and key blocks start at multiples of their size
//! in the text's own positions; a score is one fused chain over the head dimension; an output is one fused chain over
//! the keys of a block; and a masked key adds exactly zero.

use std::ops::Range;

use rayon::prelude::*;

use crate::isa::Isa;
use crate::kernel::float_grid::{RectMut, split_grid};
use crate::kernel::float_transpose::{Rows, transpose};
use crate::lanes::LANES;
use crate::softmax_tile::{BLOCK, Tile, Visible, fill_queries, finish_row, packed_len, run_tile};
use crate::threads::{units_per_job, with_scratch};

/// Query rows (tokens times stacked heads) that a tile aims for.
const TILE_ROWS: usize = 60;

/// Tiles are padded to a multiple of this, which every level's register tile divides.
const ROW_STEP: usize = 6;

/// The shape and the mask of an attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionShape {
    /// Query heads.
    pub num_heads: usize,
    /// Key/value heads; a divisor of `num_heads`.
    pub num_kv_heads: usize,
    /// Values per head.
    pub head_dim: usize,
    /// Factor of the queries.
    pub scale: f32,
    /// Whether a query sees only its own and earlier positions.
    pub causal: bool,
    /// When set, a query at position `q` sees only keys `k` with `|q - k| < window`.
    pub window: Option<usize>,
}

impl AttentionShape {
    /// The keys that the query at `position` of a text of `length` tokens sees.
    fn visible(&self, position: usize, length: usize) -> Visible {
        let window = self.window.unwrap_or(length);
        let end = if self.causal { position + 1 } else { length };
        Visible { start: (position + 1).saturating_sub(window), end: end.min(position.saturating_add(window)) }
    }

    fn group(&self) -> usize {
        self.num_heads / self.num_kv_heads
    }
}

/// Attention of every token over the keys of its own text.
///
/// `q` and `out` are `[tokens, num_heads * head_dim]`, `k` and `v` `[tokens, num_kv_heads * head_dim]`; text `i` is the
/// tokens `offsets[i]..offsets[i + 1]`. Query head `h` uses key/value head `h / (num_heads / num_kv_heads)`. With a
/// window of 0 nothing is visible, and the output is 0. Scratch memory is that of `k` and `v` again, the keys of each text
/// rounded up to 16. A NaN or infinity stays within its text, but there it may reach tokens that do not see its own.
///
/// # Panics
/// When the shapes do not fit together, or `offsets` is not ascending from 0 to the number of tokens.
pub fn attention(
    isa: Isa,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    shape: &AttentionShape,
    offsets: &[usize],
    out: &mut [f32],
) {
    let queries: Vec<Range<usize>> = offsets.windows(2).map(|text| 0..text[1].saturating_sub(text[0])).collect();
    attention_of(isa, q, k, v, shape, offsets, &queries, out);
}

/// [`attention()`] of some tokens alone: in text `i` those at the positions `queries[i]`, with the same bits.
///
/// `q` and `out` hold the rows of those tokens alone, text after text.
///
/// # Panics
/// As [`attention()`]; and when there is not one range a text, or one leaves its text.
#[expect(clippy::too_many_arguments, reason = "three matrices, how they are cut, and the result")]
pub fn attention_of(
    isa: Isa,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    shape: &AttentionShape,
    offsets: &[usize],
    queries: &[Range<usize>],
    out: &mut [f32],
) {
    let &AttentionShape { num_heads, num_kv_heads, head_dim, .. } = shape;
    assert!(head_dim > 0 && num_kv_heads > 0 && num_heads > 0, "an attention without heads");
    assert!(num_heads.is_multiple_of(num_kv_heads), "{num_heads} query heads for {num_kv_heads} key/value heads");
    let (q_width, kv_width) = (num_heads * head_dim, num_kv_heads * head_dim);
    let tokens = k.len() / kv_width;
    assert!(k.len() == tokens * kv_width && v.len() == k.len(), "keys or values are not whole tokens");
    assert!(offsets.is_sorted(), "offsets must ascend");
    assert_eq!((offsets.first().unwrap_or(&0), offsets.last().unwrap_or(&0)), (&0, &tokens), "offsets' ends");
    let texts: Vec<(usize, usize)> = offsets.windows(2).map(|text| (text[0], text[1])).collect();
    assert_eq!(texts.len(), queries.len(), "one range of queries per text");
    let inside = |(&(start, end), queries): (&(usize, usize), &Range<usize>)| queries.end <= end - start;
    assert!(texts.iter().zip(queries).all(inside), "queries beyond their text");
    let asking: usize = queries.iter().map(ExactSizeIterator::len).sum();
    assert!(q.len() == asking * q_width && out.len() == q.len(), "queries or output of another number of tokens");
    if asking == 0 {
        return;
    }

    let (blocks, scratch_len) = blocks_of(&texts, num_kv_heads, head_dim);
    with_scratch(scratch_len, |scratch| {
        let width = kv_width;
        let pack = |(packed, block): (&mut [f32], &Block)| pack_block(isa, (k, v), width, head_dim, block, packed);
        let mut rest = &mut *scratch;
        let pieces = blocks.iter().map(|block| {
            let len = packed_len(block.tokens.len(), head_dim);
            (rest.split_off_mut(..len).expect("the scratch holds all blocks"), block)
        });
        let job = units_per_job(blocks.len(), scratch_len / blocks.len());
        if job >= blocks.len() {
            pieces.for_each(pack);
        } else {
            let mut pieces: Vec<_> = pieces.collect();
            // All heads of a token on one thread, most likely the one that computed them and will ask for them.
            pieces.sort_by_key(|(_, block)| block.tokens.start);
            pieces.into_par_iter().with_min_len(job).for_each(pack);
        }
        run_tiles(isa, q, scratch, shape, &texts, queries, out);
    });
}

/// Some tokens of a text, at most 64, and a key/value head.
struct Block {
    tokens: Range<usize>,
    head: usize,
}

/// All blocks in the order they are packed in (by text, then head, then token), and the floats they take.
fn blocks_of(texts: &[(usize, usize)], num_kv_heads: usize, head_dim: usize) -> (Vec<Block>, usize) {
    let mut blocks = Vec::new();
    for &(start, end) in texts {
        for head in 0..num_kv_heads {
            let starts = (start..end).step_by(BLOCK);
            blocks.extend(starts.map(|at| Block { tokens: at..end.min(at + BLOCK), head }));
        }
    }
    let len = blocks.iter().map(|block| packed_len(block.tokens.len(), head_dim)).sum();
    (blocks, len)
}

/// Floats that one head of a text of `length` tokens takes.
fn packed_text_len(length: usize, head_dim: usize) -> usize {
    length / BLOCK * packed_len(BLOCK, head_dim) + packed_len(length % BLOCK, head_dim)
}

/// Packs a block's keys and values (see [`packed_len`]), which are `[tokens, width]`.
fn pack_block(
    isa: Isa,
    (k, v): (&[f32], &[f32]),
    width: usize,
    head_dim: usize,
    Block { tokens, head }: &Block,
    packed: &mut [f32],
) {
    let (count, first) = (tokens.len(), head * head_dim);
    let stride = count.next_multiple_of(LANES);
    let (keys, values) = packed.split_at_mut(head_dim * stride);
    // Columns beyond the last key keep what the scratch held: their scores are computed and then masked.
    let source = Rows { values: &k[tokens.start * width + first..], rows: count, cols: head_dim, stride: width };
    transpose(isa, source, keys, stride);
    for (token, value) in tokens.clone().zip(values.chunks_exact_mut(head_dim.next_multiple_of(LANES))) {
        let (used, padding) = value.split_at_mut(head_dim);
        used.copy_from_slice(&v[token * width + first..][..head_dim]);
        padding.fill(0.0);
    }
}

/// Cuts the output into tiles, a grid of (some tokens of a text) x (key/value head), and computes them.
fn run_tiles(
    isa: Isa,
    q: &[f32],
    packed: &[f32],
    shape: &AttentionShape,
    texts: &[(usize, usize)],
    queries: &[Range<usize>],
    out: &mut [f32],
) {
    let q_width = shape.num_heads * shape.head_dim;
    let tile_tokens = (TILE_ROWS / shape.group()).max(1);
    let mut cuts = vec![0];
    // For each row of tiles: its first row of `q`, its text's length, its first position, and where the text's first
    // head is packed.
    let mut owners = Vec::new();
    let (mut text_packed, mut row) = (0, 0);
    for (&(start, end), queries) in texts.iter().zip(queries) {
        for at in queries.clone().step_by(tile_tokens) {
            owners.push((row, end - start, at, text_packed));
            row += tile_tokens.min(queries.end - at);
            cuts.push(row);
        }
        text_packed += shape.num_kv_heads * packed_text_len(end - start, shape.head_dim);
    }
    let head_cuts: Vec<usize> = (0..=shape.num_kv_heads).map(|head| head * shape.group() * shape.head_dim).collect();
    let tiles = split_grid(out, q_width, &cuts, &head_cuts);
    let jobs: Vec<Job<'_>> = tiles
        .into_iter()
        .enumerate()
        .map(|(i, out)| {
            let (first_row, length, position, text_packed) = owners[i / shape.num_kv_heads];
            let head = i % shape.num_kv_heads;
            let len = packed_text_len(length, shape.head_dim);
            let packed = &packed[text_packed + head * len..][..len];
            Job { first_row, length, position, head, packed, out }
        })
        .collect();
    let cost = jobs.iter().fold(0usize, |cost, job| cost.saturating_add(job.cost(shape)));
    let job = units_per_job(jobs.len(), cost / jobs.len());
    let run = |job: Job<'_>| job.run(isa, q, q_width, shape);
    if job >= jobs.len() {
        jobs.into_iter().for_each(run);
    } else {
        jobs.into_par_iter().with_min_len(job).for_each(run);
    }
}

/// One tile: some query tokens of one text, the heads of one key/value head.
struct Job<'a> {
    /// The tile's first row of `q`.
    first_row: usize,
    /// Length of the text.
    length: usize,
    /// Position of the first query in the text.
    position: usize,
    /// The key/value head.
    head: usize,
    /// That head's blocks of the text, packed.
    packed: &'a [f32],
    out: RectMut<'a>,
}

impl Job<'_> {
    /// The blocks that hold a key some query of the tile sees.
    fn blocks(&self, shape: &AttentionShape) -> Range<usize> {
        let start = shape.visible(self.position, self.length).start;
        let end = shape.visible(self.position + self.out.rows() - 1, self.length).end;
        start / BLOCK..end.div_ceil(BLOCK)
    }

    /// Work in streaming elements; about 8 products are one.
    fn cost(&self, shape: &AttentionShape) -> usize {
        let rows = self.out.rows() * shape.group();
        rows.saturating_mul(self.blocks(shape).len() * BLOCK).saturating_mul(shape.head_dim) / 4
    }

    fn run(mut self, isa: Isa, q: &[f32], q_width: usize, shape: &AttentionShape) {
        let (dim, group, tokens) = (shape.head_dim, shape.group(), self.out.rows());
        let rows = (tokens * group).next_multiple_of(ROW_STEP);
        let blocks = self.blocks(shape);
        // The padding rows are those of the last token again, and their result is dropped.
        let tokens_of_rows = || (0..rows.div_ceil(group)).map(|token| token.min(tokens - 1));
        let sees = |token| std::iter::repeat_n(shape.visible(self.position + token, self.length), group);
        let visible: Vec<Visible> = tokens_of_rows().flat_map(sees).take(rows).collect();
        with_scratch(Tile::scratch_len(rows, dim), |scratch| {
            let mut tile = Tile::new(scratch, &visible, dim);
            // A token's heads follow each other, in `q`, in the tile and in the output.
            for (row, token) in (0..rows).step_by(group).zip(tokens_of_rows()) {
                let queries = &q[(self.first_row + token) * q_width + self.head * group * dim..];
                fill_queries(isa, &mut tile, row, &queries[..group.min(rows - row) * dim], shape.scale);
            }
            run_tile(isa, &mut tile, self.packed, self.length, blocks);
            let mut rows = 0..rows;
            for token in 0..tokens {
                for (out, row) in self.out.row_mut(token).chunks_exact_mut(dim).zip(&mut rows) {
                    finish_row(isa, &tile, row, out);
                }
            }
        });
    }
}
