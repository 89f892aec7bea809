//! Which weight of a file made a vector of no numbers.
//!
//! Norms and ternary weights are checked when a model is loaded. Dense weights and the token table are not: it would mean
//! decoding every value of the file at each start. They are searched here, once a vector has shown that something is wrong.

use crate::gguf::GgufFile;
use crate::model::{Load, TensorUse};
use crate::store::StoreProblem;
use rayon::prelude::*;

/// The weights of a loaded file that were not checked.
pub(crate) struct Suspects {
    file: GgufFile<bytes::Bytes>,
    /// Their names; `true` is the token table.
    weights: Vec<(String, bool)>,
}

impl Suspects {
    pub(crate) fn new(file: GgufFile<bytes::Bytes>, uses: Vec<TensorUse>) -> Self {
        let weights = uses.into_iter().filter_map(|used| match used.load {
            Load::Table => Some((used.name, true)),
            Load::Dense => Some((used.name, false)),
            Load::Norm | Load::Ternary => None,
        });
        Self { weights: weights.collect(), file }
    }

    /// The first value that is not a finite number, in the rows of `ids` of the token table and in all other weights.
    /// `None`: there is none, so it was the sums that overflowed.
    pub(crate) fn find(&self, ids: &[u32]) -> Option<StoreProblem> {
        self.weights.iter().find_map(|(name, is_table)| {
            let tensor = self.file.tensor(name)?;
            let (ty, data) = (tensor.ggml_type()?, self.file.data(tensor).ok()?);
            let cols = tensor.cols();
            let row_bytes = ty.row_bytes(cols)?;
            let in_row = |row: usize| {
                let mut values = vec![0.0; cols];
                ty.decode_row(data.get(row * row_bytes..)?.get(..row_bytes)?, &mut values);
                let col = values.iter().position(|value| !value.is_finite())?;
                Some((row * cols + col, values[col]))
            };
            let found = if *is_table {
                ids.iter().find_map(|&id| in_row(id as usize))
            } else {
                (0..tensor.rows()).into_par_iter().find_map_first(in_row)
            };
            let (index, value) = found?;
            Some(StoreProblem::NotFinite { tensor: name.clone(), index, value })
        })
    }
}
