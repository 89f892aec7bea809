//! Row operations: every level against the scalar one, and the scalar one against plain definitions.

mod common;

use burn_i2s::elementwise::{Activation, gated_activation, residual_add, residual_add_norm, rms_norm};
use burn_i2s::isa::Isa;
use burn_i2s::math::{gelu_tanh, silu};
use burn_i2s::pooling::{Pooling, l2_normalize, pool};
use burn_i2s::quantize::{QuantizedRows, Source, quantize_rows};
use burn_i2s::rope::{RopeTable, head_norm_rope};
use common::{bits, in_pool, values};

/// Around the number of lanes, the width of a byte vector and the real hidden sizes.
const COLS: [usize; 11] = [1, 2, 15, 16, 17, 31, 64, 100, 127, 640, 1025];
const EPS: f32 = 1e-6;

/// The sum of squares in the order that the crate promises, written plainly.
fn sum_of_squares(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    for (i, x) in x.iter().enumerate() {
        lanes[i % 16] = x.mul_add(*x, lanes[i % 16]);
    }
    let mut width = 8;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

fn inverse_rms(x: &[f32]) -> f32 {
    1.0 / (sum_of_squares(x) / x.len() as f32 + EPS).sqrt()
}

#[test]
fn rms_norm_and_its_residual_follow_the_definition_on_every_level() {
    for cols in COLS {
        let (x, weight, hidden) = (values(3 * cols, 1), values(cols, 2), values(3 * cols, 3));
        let expected: Vec<f32> = x
            .chunks(cols)
            .flat_map(|x| {
                let factor = inverse_rms(x);
                x.iter().zip(&weight).map(move |(x, w)| x * factor * w)
            })
            .collect();
        let added: Vec<f32> = hidden.iter().zip(&expected).map(|(h, d)| h + d).collect();
        for &isa in Isa::available() {
            let mut out = vec![0.0; x.len()];
            rms_norm(isa, &x, &weight, EPS, &mut out);
            assert_eq!(bits(&out), bits(&expected), "{isa} {cols}");
            let mut out = hidden.clone();
            residual_add_norm(isa, &mut out, &x, &weight, EPS);
            assert_eq!(bits(&out), bits(&added), "{isa} {cols}");
        }
    }
}

#[test]
fn residual_and_activations_follow_the_definition_on_every_level() {
    for len in [0, 1, 7, 16, 33, 1000] {
        let (a, b) = (values(len, 4), values(len, 5));
        // Beyond the limits of the activations too.
        let wide: Vec<f32> = a.iter().map(|x| x * 150.0).collect();
        for &isa in Isa::available() {
            let mut out = a.clone();
            residual_add(isa, &mut out, &b);
            let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            assert_eq!(bits(&out), bits(&expected), "{isa} {len}");
            for gate in [&a, &wide] {
                for (activation, f) in [(Activation::Silu, silu as fn(f32) -> f32), (Activation::GeluTanh, gelu_tanh)] {
                    let mut out = vec![0.0; len];
                    gated_activation(isa, activation, gate, &b, &mut out);
                    let expected: Vec<f32> = gate.iter().zip(&b).map(|(&g, up)| f(g) * up).collect();
                    assert_eq!(bits(&out), bits(&expected), "{isa} {activation:?} {len}");
                }
            }
        }
    }
}

#[test]
fn rope_is_close_to_f64_and_equal_on_every_level() {
    const BASE: f64 = 1e6;
    let positions = [0u32, 1, 2, 31, 1000, 32767];
    for head_dim in [2, 6, 16, 30, 64, 128, 256] {
        let heads = 3;
        let table = RopeTable::new(head_dim, BASE, 32768);
        let (x, weight) = (values(positions.len() * heads * head_dim, 6), values(head_dim, 7));
        let mut scalar = x.clone();
        head_norm_rope(Isa::Scalar, &mut scalar, head_dim, &weight, EPS, &table, &positions);
        for &isa in Isa::available() {
            let mut out = x.clone();
            head_norm_rope(isa, &mut out, head_dim, &weight, EPS, &table, &positions);
            assert_eq!(bits(&out), bits(&scalar), "{isa} {head_dim}");
        }
        for (i, (input, output)) in x.chunks(head_dim).zip(scalar.chunks(head_dim)).enumerate() {
            let position = f64::from(positions[i / heads]);
            let mean = input.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / head_dim as f64;
            let factor = 1.0 / (mean + f64::from(EPS)).sqrt();
            let normed: Vec<f64> =
                input.iter().zip(&weight).map(|(&x, &w)| f64::from(x) * factor * f64::from(w)).collect();
            let half = head_dim / 2;
            for j in 0..half {
                let (sin, cos) = (position * BASE.powf(-2.0 * j as f64 / head_dim as f64)).sin_cos();
                let (a, b) = (normed[j], normed[j + half]);
                assert!((f64::from(output[j]) - (a * cos - b * sin)).abs() < 1e-6, "{head_dim} {i} {j}");
                assert!((f64::from(output[j + half]) - (b * cos + a * sin)).abs() < 1e-6, "{head_dim} {i} {j}");
            }
        }
    }
}

#[test]
fn a_rope_table_grown_in_steps_is_the_same_table() {
    let whole = RopeTable::new(10, 1e4, 50);
    let mut grown = RopeTable::new(10, 1e4, 0);
    for positions in [7, 3, 50] {
        grown.extend_to(positions);
    }
    assert_eq!((grown.positions(), grown.head_dim()), (50, 10));
    let positions: Vec<u32> = (0..50).collect();
    let mut both = [values(500, 8), values(500, 8)];
    for (x, table) in both.iter_mut().zip([&whole, &grown]) {
        head_norm_rope(Isa::best(), x, 10, &values(10, 9), EPS, table, &positions);
    }
    assert_eq!(bits(&both[0]), bits(&both[1]));
}

#[test]
fn quantization_follows_the_definition_on_every_level() {
    for cols in COLS {
        let rows = 4;
        let mut x = values(rows * cols, 10);
        // A tiny row: its scale is that of 1e-5.
        x[..cols].iter_mut().for_each(|x| *x *= 1e-9);
        let (w1, w2) = (values(cols, 11), values(cols, 12));
        let norms = [Some(&w1[..]), None, Some(&w2[..])];
        for &isa in Isa::available() {
            // Larger and dirty buffers: reuse must not leak.
            let mut outs = vec![QuantizedRows::default(); 3];
            quantize_rows(isa, Source::Rows(&values(8 * 1025, 13)), 1025, &norms.map(|_| None), EPS, &mut outs);
            quantize_rows(isa, Source::Rows(&x), cols, &norms, EPS, &mut outs);
            for (norm, out) in norms.iter().zip(&outs) {
                assert_eq!((out.rows, out.cols, out.stride), (rows, cols, cols.next_multiple_of(128)));
                assert_eq!((out.codes.len(), out.scales.len(), out.sums.len()), (rows * out.stride, rows, rows));
                for (row, x) in x.chunks(cols).enumerate() {
                    let factor = inverse_rms(x);
                    let normed: Vec<f32> = match norm {
                        Some(w) => x.iter().zip(*w).map(|(x, w)| x * factor * w).collect(),
                        None => x.to_vec(),
                    };
                    let max = normed.iter().fold(0.0f32, |max, x| max.max(x.abs()));
                    let scale = 127.0 / max.max(1e-5);
                    let mut codes: Vec<i8> =
                        normed.iter().map(|x| (x * scale).round_ties_even().clamp(-128.0, 127.0) as i8).collect();
                    let sum: i32 = codes.iter().map(|&c| i32::from(c)).sum();
                    codes.resize(out.stride, 0);
                    assert_eq!(out.scales[row].to_bits(), scale.to_bits(), "{isa} {cols} row {row}");
                    assert_eq!(out.codes[row * out.stride..][..out.stride], codes, "{isa} {cols} row {row}");
                    assert_eq!(out.sums[row], sum, "{isa} {cols} row {row}");
                }
            }
        }
    }
}

#[test]
fn gated_rows_are_quantized_as_if_they_were_stored() {
    for (rows, cols) in [(1, 5), (3, 130), (4, 64), (9, 257), (70, 640)] {
        let (mut gate, up, weight) = (values(rows * cols, 17), values(rows * cols, 18), values(cols, 19));
        if rows == 9 {
            gate[3 * cols] = f32::NAN;
        }
        for activation in [Activation::Silu, Activation::GeluTanh] {
            for &isa in Isa::available() {
                for norm in [None, Some(&weight[..])] {
                    let quantized = |source| {
                        let mut out = [QuantizedRows::default()];
                        quantize_rows(isa, source, cols, &[norm], EPS, &mut out);
                        let [out] = out;
                        (out.codes, bits(&out.scales), out.sums)
                    };
                    let mut stored = vec![0.0; gate.len()];
                    gated_activation(isa, activation, &gate, &up, &mut stored);
                    let expected = quantized(Source::Rows(&stored));
                    let found = quantized(Source::Gated { gate: &gate, up: &up, activation });
                    assert!(found == expected, "{isa} {rows}x{cols} {activation:?}");
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "a gate for each value")]
fn a_gate_of_another_length_is_refused() {
    let source = Source::Gated { gate: &[0.0; 8], up: &[0.0; 4], activation: Activation::Silu };
    quantize_rows(Isa::best(), source, 4, &[None], EPS, &mut [QuantizedRows::default()]);
}

#[test]
fn halves_are_rounded_to_even() {
    let mut x = vec![127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5];
    x.resize(40, 0.5);
    for &isa in Isa::available() {
        let mut out = [QuantizedRows::default()];
        quantize_rows(isa, Source::Rows(&x), 40, &[None], EPS, &mut out);
        assert_eq!(out[0].codes[..8], [127, 0, 2, 2, 0, -2, -2, 126], "{isa}");
    }
}

#[test]
fn a_row_that_is_not_finite_is_marked_and_its_neighbours_are_not_touched() {
    for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        for at in [0, 17, 19] {
            let mut x = values(60, 14);
            x[20 + at] = bad;
            for &isa in Isa::available() {
                for norm in [None, Some(&[1.0f32; 20][..])] {
                    let mut out = [QuantizedRows::default()];
                    quantize_rows(isa, Source::Rows(&x), 20, &[norm], EPS, &mut out);
                    let out = &out[0];
                    assert!(out.scales[1].is_nan() && out.sums[1] == 0, "{isa} {bad} at {at}");
                    assert!(out.codes[128..256].iter().all(|&c| c == 0), "{isa} {bad} at {at}");
                    assert!(out.scales[0] > 0.0 && out.scales[2] > 0.0);
                }
            }
        }
    }
}

#[test]
fn large_inputs_give_the_same_bits_with_any_number_of_threads() {
    let (rows, cols) = (300, 640);
    let (x, weight) = (values(rows * cols, 15), values(cols, 16));
    let run = |threads| {
        in_pool(threads, || {
            let isa = Isa::best();
            let mut normed = vec![0.0; x.len()];
            rms_norm(isa, &x, &weight, EPS, &mut normed);
            residual_add(isa, &mut normed, &x);
            residual_add_norm(isa, &mut normed, &x, &weight, EPS);
            let gate = normed.clone();
            gated_activation(isa, Activation::GeluTanh, &gate, &x, &mut normed);
            let table = RopeTable::new(64, 1e4, rows);
            let positions: Vec<u32> = (0..rows as u32).collect();
            head_norm_rope(isa, &mut normed, 64, &weight[..64], EPS, &table, &positions);
            let mut outs = vec![QuantizedRows::default(); 2];
            quantize_rows(isa, Source::Rows(&normed), cols, &[Some(&weight), None], EPS, &mut outs);
            let codes: Vec<Vec<i8>> = outs.iter().map(|o| o.codes.clone()).collect();
            let scales: Vec<Vec<u32>> = outs.iter().map(|o| bits(&o.scales)).collect();
            (bits(&normed), codes, scales, outs.iter().map(|o| o.sums.clone()).collect::<Vec<_>>())
        })
    };
    let one = run(1);
    for threads in [2, 5] {
        assert!(run(threads) == one, "{threads} threads");
    }
}

#[test]
fn pooling_follows_the_definition_on_every_level() {
    let size = 37;
    let hidden = values(9 * size, 17);
    let offsets = [0, 4, 4, 5, 9];
    let row = |i: usize| &hidden[i * size..][..size];
    for &isa in Isa::available() {
        let run = |pooling| {
            let mut out = vec![9.0; 4 * size];
            pool(isa, &hidden, &offsets, pooling, &mut out);
            out
        };
        assert_eq!(run(Pooling::Last), [row(3), &[0.0; 37], row(4), row(8)].concat());
        assert_eq!(run(Pooling::Cls), [row(0), &[0.0; 37], row(4), row(5)].concat());
        let mean: Vec<f32> = (0..size).map(|i| (row(0)[i] + row(1)[i] + row(2)[i] + row(3)[i]) / 4.0).collect();
        assert_eq!(bits(&run(Pooling::Mean)[..size]), bits(&mean), "{isa}");
        assert_eq!(run(Pooling::Mean)[size..2 * size], [0.0; 37]);
    }
}

#[test]
fn l2_normalization_follows_the_definition_on_every_level() {
    for cols in COLS {
        let x = values(cols, 18);
        let length = sum_of_squares(&x).sqrt();
        let expected: Vec<f32> = x.iter().map(|x| x / length).collect();
        for &isa in Isa::available() {
            let mut row = x.clone();
            l2_normalize(isa, &mut row);
            assert_eq!(bits(&row), bits(&expected), "{isa} {cols}");
            let mut zero = vec![0.0; cols];
            l2_normalize(isa, &mut zero);
            assert_eq!(bits(&zero), bits(&vec![0.0; cols]));
        }
    }
}

#[test]
fn sums_that_overflow_or_vanish_do_not_make_plausible_rows() {
    for &isa in Isa::available() {
        // A norm whose sum of squares overflows is not a row of zeros.
        let mut out = vec![0.0; 64];
        rms_norm(isa, &[1e30; 64], &[1.0; 64], 1e-6, &mut out);
        assert!(out.iter().all(|value| value.is_nan()), "{isa}: {out:?}");
        // Unit length is unit length at either end of the range.
        for size in [1e38, 3e-39, 1e-20, 1.0] {
            let mut row = vec![size; 100];
            l2_normalize(isa, &mut row);
            assert!(row.iter().all(|value| (value - 0.1).abs() < 1e-6), "{isa}: {size:e} becomes {}", row[0]);
        }
    }
}
