//! How the ternary product is cut into tiles and jobs: one table, a row for each level.
//!
//! The figures are measured ones. A CPU that is unlike those they were measured on may do better with others;
//! `cargo run --release --bin benches -- tune` compares them there. They change speed alone, never a bit of a result.

use crate::isa::Isa;
use crate::layout;

/// The sizes that a product is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// The fewest activation rows for which weight rows are transposed into panels first. With fewer, each output is a
    /// dot product, which costs a sum across lanes for each output; a panel costs something for each weight.
    pub panel_from: usize,
    /// The most activation rows of a tile over a panel. A level has registers for so many and takes no more.
    pub tile_rows: usize,
    /// Jobs for each thread, so that a thread that is held up leaves some to others.
    pub jobs_per_thread: usize,
    /// What is divided first.
    pub split: Split,
    /// Where activation rows are divided, each job has more than half as many as this, so that staging panels is a small
    /// part of it.
    pub rows_per_job: usize,
}

/// What threads share out first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Weight rows: each weight is read by one thread. Activation rows only where there are too few weight rows.
    WeightRows,
    /// Activation rows: each is read by one thread. Weight rows only where there are too few activation rows.
    ActivationRows,
}

impl Tiling {
    /// The table's row for `isa` and weights of `in_features` columns.
    pub fn of(isa: Isa, in_features: usize) -> Self {
        // Not every architecture has a level whose sizes depend on it.
        #[allow(unused_variables, reason = "see above")]
        let blocks = layout::blocks_per_row(in_features);
        let (panel_from, tile_rows) = match isa {
            Isa::Scalar => (usize::MAX, 1),
            // What `benches tune` found at 640, 1024, 2048 and 3072 columns: 3 everywhere.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2(_) => (3, 4),
            // 9 at all of them.
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni(_) => (9, 6),
            // 4 at 640, 7 to 9 at the others.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Bw(_) => (if blocks < 8 { 4 } else { 8 }, 5),
            // 3, 4, 5 and 6.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni(_) => (blocks / 8 + 3, 6),
            // There are no panels: SDOT multiplies with one activation vector for each weight row anyway.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon(_) | Isa::NeonDotprod(_) => (usize::MAX, 1),
        };
        Self { panel_from, tile_rows, jobs_per_thread: 2, split: Split::WeightRows, rows_per_job: 64 }
    }
}
