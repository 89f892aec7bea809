//! Attention over texts of different lengths, without padding and without a score matrix.
//!
//! Each text is cut into tiles of a few query tokens; the query heads that share a key/value head are stacked, so a tile
//! is about 60 rows that meet the same keys. A tile walks over blocks of 64 keys with an online softmax: a running
//! maximum, a running sum in 16 lanes, and unnormalised outputs that are rescaled when the maximum grows.
//!
//! What makes a text's result independent of everything around it: tiles and key blocks start at multiples of their size
//! in the text's own positions; a score is one fused chain over the head dimension; an output is one fused chain over
//! the keys of a block; and a masked key adds exactly zero.

use rayon::prelude::*;

use crate::isa::Isa;
use crate::kernel::float_grid::{RectMut, split_grid};
use crate::kernel::float_transpose::{Rows, transpose};
use crate::lanes::LANES;
use crate::softmax_tile::{BLOCK, Tile, Visible, fill_query, run_tile};
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
/// window of 0 nothing is visible, and the output is 0. Scratch memory is about that of `k` and `v` again.
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
    let &AttentionShape { num_heads, num_kv_heads, head_dim, .. } = shape;
    assert!(head_dim > 0 && num_kv_heads > 0 && num_heads > 0, "an attention without heads");
    assert!(num_heads.is_multiple_of(num_kv_heads), "{num_heads} query heads for {num_kv_heads} key/value heads");
    let (q_width, kv_width) = (num_heads * head_dim, num_kv_heads * head_dim);
    let tokens = q.len() / q_width;
    assert!(q.len() == tokens * q_width && out.len() == q.len(), "queries or output are not whole tokens");
    assert!(k.len() == tokens * kv_width && v.len() == k.len(), "keys or values of another number of tokens");
    assert!(offsets.is_sorted(), "offsets must ascend");
    assert_eq!((offsets.first().unwrap_or(&0), offsets.last().unwrap_or(&0)), (&0, &tokens), "offsets' ends");
    if tokens == 0 {
        return;
    }

    // Keys and values of each (text, head), repacked into whole blocks.
    let padded_dim = head_dim.next_multiple_of(LANES);
    let block_len = BLOCK * (head_dim + padded_dim);
    let texts: Vec<(usize, usize)> = offsets.windows(2).map(|text| (text[0], text[1])).collect();
    let blocks: Vec<(usize, usize, usize)> = texts
        .iter()
        .flat_map(|&(start, end)| {
            (0..num_kv_heads)
                .flat_map(move |head| (start..end).step_by(BLOCK).map(move |at| (at, end.min(at + BLOCK), head)))
        })
        .collect();
    // First block of each text; its heads follow each other.
    let mut first_block = Vec::with_capacity(texts.len());
    let mut count = 0;
    for (start, end) in &texts {
        first_block.push(count);
        count += num_kv_heads * (end - start).div_ceil(BLOCK);
    }

    with_scratch(blocks.len() * block_len, |packed| {
        let pack = |(packed, &(start, end, head)): (&mut [f32], &(usize, usize, usize))| {
            let (keys, values) = packed.split_at_mut(BLOCK * head_dim);
            pack_block(isa, k, v, kv_width, head * head_dim..(head + 1) * head_dim, start..end, keys, values);
        };
        let job = units_per_job(blocks.len(), block_len);
        if job >= blocks.len() {
            packed.chunks_exact_mut(block_len).zip(&blocks).for_each(pack);
        } else {
            packed.par_chunks_exact_mut(block_len).zip(&blocks).with_min_len(job).for_each(pack);
        }
        let packed = &*packed;

        // Tiles: a grid of (tokens of a text) x (key/value head).
        let tile_tokens = (TILE_ROWS / shape.group()).max(1);
        let mut cuts = vec![0];
        let mut owners = Vec::new();
        for (text, &(start, end)) in texts.iter().enumerate() {
            for at in (start..end).step_by(tile_tokens) {
                cuts.push(end.min(at + tile_tokens));
                owners.push((text, at - start));
            }
        }
        let head_cuts: Vec<usize> = (0..=num_kv_heads).map(|head| head * shape.group() * head_dim).collect();
        let tiles = split_grid(out, q_width, &cuts, &head_cuts);
        let mut cost = 0;
        let jobs: Vec<Job<'_>> = tiles
            .into_iter()
            .enumerate()
            .map(|(i, out)| {
                let (text, position) = owners[i / num_kv_heads];
                let (start, end) = texts[text];
                let head = i % num_kv_heads;
                let text_blocks = (end - start).div_ceil(BLOCK);
                let first = (first_block[text] + head * text_blocks) * block_len;
                let packed = &packed[first..first + text_blocks * block_len];
                let job = Job { start, length: end - start, position, head, packed, out };
                cost += job.cost(shape);
                job
            })
            .collect();
        let job = units_per_job(jobs.len(), cost / jobs.len());
        let run = |job: Job<'_>| job.run(isa, q, q_width, shape);
        if job >= jobs.len() {
            jobs.into_iter().for_each(run);
        } else {
            jobs.into_par_iter().with_min_len(job).for_each(run);
        }
    });
}

/// Copies one head of the tokens `tokens`: keys transposed into `[head_dim, 64]`, values into `[64, padded]`.
#[expect(clippy::too_many_arguments, reason = "two inputs, two outputs and where in them")]
fn pack_block(
    isa: Isa,
    k: &[f32],
    v: &[f32],
    width: usize,
    head: std::ops::Range<usize>,
    tokens: std::ops::Range<usize>,
    keys: &mut [f32],
    values: &mut [f32],
) {
    // A last block's missing keys keep what the scratch held: their scores are computed and then masked.
    let source =
        Rows { values: &k[tokens.start * width + head.start..], rows: tokens.len(), cols: head.len(), stride: width };
    transpose(isa, source, keys, BLOCK);
    let padded = values.len() / BLOCK;
    for (token, value) in tokens.zip(values.chunks_exact_mut(padded)) {
        let (used, padding) = value.split_at_mut(head.len());
        used.copy_from_slice(&v[token * width..][head.clone()]);
        padding.fill(0.0);
    }
}

/// One tile: some query tokens of one text, the heads of one key/value head.
struct Job<'a> {
    /// First token and length of the text.
    start: usize,
    length: usize,
    /// Position of the first query in the text.
    position: usize,
    /// The key/value head.
    head: usize,
    /// That head's blocks of the text.
    packed: &'a [f32],
    out: RectMut<'a>,
}

impl Job<'_> {
    /// The blocks that hold a key some query of the tile sees.
    fn blocks(&self, shape: &AttentionShape) -> std::ops::Range<usize> {
        let start = shape.visible(self.position, self.length).start;
        let end = shape.visible(self.position + self.out.rows() - 1, self.length).end;
        start / BLOCK..end.div_ceil(BLOCK)
    }

    /// Work in streaming elements; about 8 products are one.
    fn cost(&self, shape: &AttentionShape) -> usize {
        self.out.rows() * shape.group() * self.blocks(shape).len() * BLOCK * shape.head_dim / 4
    }

    fn run(mut self, isa: Isa, q: &[f32], q_width: usize, shape: &AttentionShape) {
        let (dim, group, tokens) = (shape.head_dim, shape.group(), self.out.rows());
        let padded_dim = dim.next_multiple_of(LANES);
        let rows = (tokens * group).next_multiple_of(ROW_STEP);
        let blocks = self.blocks(shape);
        // The padding rows see what the last row sees, and their result is dropped.
        let visible: Vec<Visible> =
            (0..rows).map(|row| shape.visible(self.position + (row / group).min(tokens - 1), self.length)).collect();
        with_scratch(Tile::scratch_len(rows, dim), |scratch| {
            let mut tile = Tile::new(scratch, &visible, dim);
            for row in 0..rows {
                let (token, head) = ((row / group).min(tokens - 1), self.head * group + row % group);
                let query = &q[(self.start + self.position + token) * q_width + head * dim..][..dim];
                fill_query(isa, &mut tile, row, query, shape.scale);
            }
            run_tile(isa, &mut tile, self.packed, blocks);
            for row in 0..tokens * group {
                let result = &tile.outputs[row * padded_dim..][..dim];
                self.out.row_mut(row / group)[row % group * dim..][..dim].copy_from_slice(result);
            }
        });
    }
}
