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

/// Activation rows at which dot products and panels are compared, and for how many numbers of rows each stands. What is
/// faster may change several times between them, with the tiles that rows fill.
const DOT_ROWS: [(usize, f64); 20] = [
    (1, 1.0),
    (2, 1.0),
    (3, 1.0),
    (4, 1.0),
    (5, 1.0),
    (6, 1.0),
    (7, 1.0),
    (8, 1.0),
    (9, 1.0),
    (10, 1.0),
    (12, 2.0),
    (14, 2.0),
    (16, 2.0),
    (18, 2.0),
    (20, 2.0),
    (24, 4.0),
    (28, 4.0),
    (32, 4.0),
    (36, 4.0),
    (40, 4.0),
];

/// The part by which the table may be worse than the best without a mark.
const NOISE: f64 = 0.01;

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
    writeln!(out, "Sizes of the ternary product on {isa}; a * where the table's costs 1 % or more.")?;
    if isa == Isa::Scalar {
        return writeln!(out, "\nThe scalar level has no sizes to compare.");
    }
    writeln!(
        out,
        "\nOne thread: from how many rows on panels rather than dot products take the least time over 1 to 40"
    )?;
    writeln!(out, "rows, and rows of a tile at 128; in brackets the table's, and what it costs beside the best:\n")?;
    writeln!(
        out,
        "  {:<5} {:<10} {:>5} x {:<5} panels from (table)           tile (table)",
        "model", "layers", "out", "in"
    )?;
    for shape in LAYER_SHAPES {
        let case = Case::new(shape);
        let own = Tiling::of(isa, shape.in_features);
        let (from, loss) = case.panels_from(isa, own, time);
        // The table's is the most that the level has registers for.
        let tiles: Vec<Tiling> =
            (1..=own.tile_rows).map(|tile_rows| Tiling { tile_rows, panel_from: 1, ..own }).collect();
        let (tile, times) = case.fastest(isa, 128, &tiles, time);
        let tile_loss = loss_of(&times, tile, own.tile_rows - 1);
        let name = |from: usize| if from == usize::MAX { "never".into() } else { from.to_string() };
        writeln!(
            out,
            "  {} {:>10} {:<17} {:>6} {}",
            shape_columns(shape),
            format!("{}{}", name(from), mark(loss)),
            beside(&name(own.panel_from), loss),
            format!("{}{}", tiles[tile].tile_rows, mark(tile_loss)),
            beside(&own.tile_rows.to_string(), tile_loss)
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
            let (best, times) = case.fastest(isa, rows, &splits, time);
            let table = splits.iter().position(|&split| split == own).expect("the table's is one of them");
            let text = format!("{}{}", split_name(splits[best]), mark(loss_of(&times, best, table)));
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

/// Which part more time the alternative `other` takes than the best.
fn loss_of(times: &[Duration], best: usize, other: usize) -> f64 {
    times[other].as_secs_f64() / times[best].as_secs_f64() - 1.0
}

/// Marks what is better than the table's by more than noise.
fn mark(loss: f64) -> &'static str {
    if loss < NOISE { " " } else { "*" }
}

/// The table's size and what it costs.
fn beside(table: &str, loss: f64) -> String {
    format!("({table}, +{:.1} %)", 100.0 * loss)
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

    /// From how many rows on panels take the least time over all numbers of rows (`usize::MAX` for never), and which part
    /// more the table's number takes.
    fn panels_from(&self, isa: Isa, tiling: Tiling, time: Duration) -> (usize, f64) {
        let kinds = [Tiling { panel_from: usize::MAX, ..tiling }, Tiling { panel_from: 1, ..tiling }];
        // A row takes about the same time whatever their number: so no number of rows counts more than another.
        let times = DOT_ROWS.map(|(rows, weight)| {
            let [dots, panels] = [0, 1].map({
                let times = self.fastest(isa, rows, &kinds, time).1;
                move |kind| weight * times[kind].as_secs_f64() / rows as f64
            });
            (rows, dots, panels)
        });
        let cost = |from: usize| -> f64 {
            times.iter().map(|&(rows, dots, panels)| if rows < from { dots } else { panels }).sum()
        };
        let candidates = DOT_ROWS.iter().map(|&(rows, _)| rows).chain([usize::MAX]);
        let best = candidates.min_by(|&a, &b| cost(a).total_cmp(&cost(b))).expect("some numbers of rows");
        (best, cost(tiling.panel_from) / cost(best) - 1.0)
    }

    /// The index of the fastest alternative at `rows` activation rows, and the best time of each.
    fn fastest(&self, isa: Isa, rows: usize, tilings: &[Tiling], time: Duration) -> (usize, Vec<Duration>) {
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
        let fastest = (0..best.len()).min_by_key(|&index| best[index]).expect("some alternatives");
        (fastest, best)
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
