//! Other tile sizes and splits than a level's own, on this CPU.
//!
//! Alternatives take turns and the best time of each counts. Before an alternative is timed, its result is compared with
//! the scalar level's at few rows, and with that of the level's own sizes at any.

use crate::shapes::{LAYER_SHAPES, LayerShape, Random};
use crate::verify::same_bits;
use burn_i2s::gemm::{Activations, ternary_gemm, ternary_gemm_tiled};
use burn_i2s::isa::Isa;
use burn_i2s::matrix::TernaryMatrix;
use burn_i2s::tiling::{Split, Tiling};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// The most activation rows that the scalar level is asked for: it takes its time.
const SCALAR_ROWS: usize = 8;

/// Activation rows up to which dot products and panels are compared.
const MOST_DOT_ROWS: usize = 40;

/// Sizes of a tile that are tried; a level takes no more than it has registers for.
const TILE_ROWS: [usize; 5] = [1, 2, 3, 4, 5];

/// Activation rows at which splits are compared.
const SPLIT_ROWS: [usize; 3] = [16, 128, 512];

/// Jobs for each thread that are tried.
const JOBS_PER_THREAD: [usize; 4] = [1, 2, 4, 8];

/// Prints, for each layer shape of the real models, from how many rows panels beat dot products and which tile is best,
/// beside the table's sizes. To be called in a pool of one thread; `time` is what each comparison takes.
///
/// # Errors
/// When `out` cannot be written.
///
/// # Panics
/// When an alternative gives another result.
pub fn sizes(isa: Isa, time: Duration, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Sizes of the ternary product on {isa}; a * where the table has another than the best found.")?;
    if isa == Isa::Scalar {
        return writeln!(out, "\nThe scalar level has no sizes to compare.");
    }
    writeln!(out, "\nOne thread: rows from which panels beat dot products, and rows of a tile at 128:\n")?;
    writeln!(out, "  {:<5} {:<10} {:>5} x {:<5} panels from (table)  tile (table)", "model", "layers", "out", "in")?;
    for shape in LAYER_SHAPES {
        let case = Case::new(shape);
        let own = Tiling::of(isa, shape.in_features);
        let from = case.panels_from(isa, own, time);
        let tiles = TILE_ROWS.map(|tile_rows| Tiling { tile_rows, panel_from: 1, ..own });
        let tile = TILE_ROWS[case.fastest(isa, 128, &tiles, time)];
        let found = from.map_or_else(|| "never".into(), |rows| rows.to_string());
        let table = if own.panel_from == usize::MAX { "never".into() } else { own.panel_from.to_string() };
        let (from_mark, tile_mark) = (mark(found == table), mark(tile == own.tile_rows));
        writeln!(
            out,
            "  {} {found:>10}{from_mark} ({table:>5}) {tile:>8}{tile_mark} ({})",
            shape_columns(shape),
            own.tile_rows
        )?;
    }
    Ok(())
}

/// Prints, for each layer shape of the real models, how the threads of the current pool best share out a product.
///
/// # Errors
/// When `out` cannot be written.
///
/// # Panics
/// When an alternative gives another result.
pub fn splits(isa: Isa, time: Duration, out: &mut dyn Write) -> io::Result<()> {
    let threads = rayon::current_num_threads();
    writeln!(out, "\n{threads} threads: what is divided first, and jobs for each thread, by activation rows:\n")?;
    let columns: String = SPLIT_ROWS.iter().map(|rows| format!(" {rows:>19}")).collect();
    writeln!(out, "  {:<5} {:<10} {:>5} x {:<5}{columns}", "model", "layers", "out", "in")?;
    for shape in LAYER_SHAPES {
        let case = Case::new(shape);
        let own = Tiling::of(isa, shape.in_features);
        let splits: Vec<Tiling> = [Split::WeightRows, Split::ActivationRows]
            .into_iter()
            .flat_map(|split| JOBS_PER_THREAD.map(|jobs_per_thread| Tiling { split, jobs_per_thread, ..own }))
            .collect();
        write!(out, "  {}", shape_columns(shape))?;
        for rows in SPLIT_ROWS {
            let best = splits[case.fastest(isa, rows, &splits, time)];
            let text = format!("{}{}", split_name(best), mark(best == own));
            write!(out, " {text:>19}")?;
        }
        writeln!(out)?;
    }
    writeln!(out, "\nThe table has {}.", split_name(Tiling::of(isa, 1024)))
}

fn split_name(tiling: Tiling) -> String {
    let what = match tiling.split {
        Split::WeightRows => "weights",
        Split::ActivationRows => "activations",
    };
    format!("{what}, {}", tiling.jobs_per_thread)
}

fn mark(same: bool) -> &'static str {
    if same { " " } else { "*" }
}

fn shape_columns(shape: LayerShape) -> String {
    let LayerShape { model, layers, in_features, out_features } = shape;
    format!("{model:<5} {layers:<10} {out_features:>5} x {in_features:<5}")
}

/// One layer's weights.
struct Case {
    shape: LayerShape,
    packed: Vec<u8>,
}

impl Case {
    fn new(shape: LayerShape) -> Self {
        Self { shape, packed: Random(1).ternary(shape.out_features, shape.in_features) }
    }

    fn matrix(&self) -> TernaryMatrix<'_> {
        TernaryMatrix::new(&self.packed, self.shape.out_features, self.shape.in_features).expect("whole blocks")
    }

    /// The fewest rows from which panels are always faster, by halving; `None` if they never are.
    fn panels_from(&self, isa: Isa, tiling: Tiling, time: Duration) -> Option<usize> {
        let kinds = [Tiling { panel_from: usize::MAX, ..tiling }, Tiling { panel_from: 1, ..tiling }];
        let panels_win = |rows| self.fastest(isa, rows, &kinds, time) == 1;
        if !panels_win(MOST_DOT_ROWS) {
            return None;
        }
        let (mut dots, mut panels) = (0, MOST_DOT_ROWS);
        while panels - dots > 1 {
            let rows = (dots + panels) / 2;
            if panels_win(rows) { panels = rows } else { dots = rows }
        }
        Some(panels)
    }

    /// The index of the fastest alternative at `rows` activation rows.
    fn fastest(&self, isa: Isa, rows: usize, tilings: &[Tiling], time: Duration) -> usize {
        let matrix = self.matrix();
        let x = Random(rows as u64).quantized(rows, self.shape.in_features);
        let x = x.activations();
        let mut y = vec![0.0; rows * self.shape.out_features];
        self.check(isa, &x, tilings, &mut y);
        let mut best = vec![Duration::MAX; tilings.len()];
        let timer = Instant::now();
        // Once at least.
        while best[0] == Duration::MAX || timer.elapsed() < time {
            for (best, tiling) in best.iter_mut().zip(tilings) {
                let timer = Instant::now();
                ternary_gemm_tiled(isa, tiling, &x, &matrix, &mut y).expect("shapes that fit");
                *best = timer.elapsed().min(*best);
            }
        }
        (0..best.len()).min_by_key(|&index| best[index]).expect("some alternatives")
    }

    fn check(&self, isa: Isa, x: &Activations<'_>, tilings: &[Tiling], y: &mut [f32]) {
        let matrix = self.matrix();
        let definition = if x.rows() <= SCALAR_ROWS { Isa::Scalar } else { isa };
        ternary_gemm(definition, x, &matrix, y).expect("shapes that fit");
        let expected = y.to_vec();
        for tiling in tilings {
            y.fill(f32::NAN);
            ternary_gemm_tiled(isa, tiling, x, &matrix, y).expect("shapes that fit");
            assert!(same_bits(&expected, y), "{tiling:?} gives another result on {isa}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_is_compared_and_says_so() {
        for &isa in Isa::available() {
            let mut out = Vec::new();
            sizes(isa, Duration::ZERO, &mut out).unwrap();
            splits(isa, Duration::ZERO, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains(isa.name()), "{text}");
            assert!(text.contains("gate, up") && text.contains("jobs for each thread"), "{text}");
        }
    }
}
