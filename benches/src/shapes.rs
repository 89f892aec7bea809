//! The layer shapes of the real models, and made-up data of any shape from a fixed seed.

use burn_i2s::isa::Isa;
use burn_i2s::layout;
use burn_i2s::quantize::{QuantizedRows, Source, quantize_rows};

/// A linear layer's size, and how many of it one token passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    /// The model's short name.
    pub model: &'static str,
    /// The projections of that size.
    pub layers: &'static str,
    /// Width of the input.
    pub in_features: usize,
    /// Width of the output.
    pub out_features: usize,
}

/// Every distinct shape of the two models' projections.
pub const LAYER_SHAPES: [LayerShape; 9] = [
    LayerShape { model: "0.6B", layers: "q", in_features: 1024, out_features: 2048 },
    LayerShape { model: "0.6B", layers: "k, v", in_features: 1024, out_features: 1024 },
    LayerShape { model: "0.6B", layers: "o", in_features: 2048, out_features: 1024 },
    LayerShape { model: "0.6B", layers: "gate, up", in_features: 1024, out_features: 3072 },
    LayerShape { model: "0.6B", layers: "down", in_features: 3072, out_features: 1024 },
    LayerShape { model: "270M", layers: "q, o", in_features: 640, out_features: 1024 },
    LayerShape { model: "270M", layers: "k, v", in_features: 640, out_features: 256 },
    LayerShape { model: "270M", layers: "gate, up", in_features: 640, out_features: 2048 },
    LayerShape { model: "270M", layers: "down", in_features: 2048, out_features: 640 },
];

/// A small generator with a fixed sequence (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.bits() % limit as u64) as usize
    }

    /// `len` values from -1 to 1.
    pub fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0).collect()
    }

    /// A packed ternary matrix of whole blocks, each weight equally likely.
    ///
    /// # Panics
    /// When the size overflows.
    pub fn ternary(&mut self, out_features: usize, in_features: usize) -> Vec<u8> {
        let len = layout::padded_byte_len(out_features, in_features).expect("a size that fits");
        let codes = (0..len - layout::TAIL_BYTES).map(|_| {
            let four = self.below(81);
            ((four % 3) | ((four / 3 % 3) << 2) | ((four / 9 % 3) << 4) | ((four / 27) << 6)) as u8
        });
        codes.chain(layout::tail(0.02)).collect()
    }

    /// Rows of random activations, quantised.
    pub fn quantized(&mut self, rows: usize, cols: usize) -> QuantizedRows {
        let mut out = [QuantizedRows::default()];
        quantize_rows(Isa::best(), Source::Rows(&self.floats(rows * cols)), cols, &[None], 1e-6, &mut out);
        let [out] = out;
        out
    }
}
