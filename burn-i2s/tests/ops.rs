//! The Burn operations on each backend: equal bits, no copies, and the modules above them.
#![cfg(feature = "burn")]

use burn::module::{Param, ParamId};
use burn::tensor::{AllocationProperty, Bytes, DType, Device, Int, Tensor, TensorData};
use burn_i2s::elementwise::Activation;
use burn_i2s::ggml::GgmlType;
use burn_i2s::isa::Isa;
use burn_i2s::linear::{
    BitLinear, ComputeBackend, DenseLinear, F16Backend, I2sBackend, LinearConfig, LinearError, LinearLayer,
    LinearWeight,
};
use burn_i2s::ops::{self, with_bytes, with_floats};
use burn_i2s::pack;
use burn_i2s::pieces::Pieces;
use burn_i2s::table::RowTable;

fn devices() -> Vec<Device> {
    vec![
        #[cfg(feature = "flex")]
        Device::flex(),
        #[cfg(feature = "ndarray")]
        burn_i2s::backend::ndarray_device(),
    ]
}

/// Reproducible values in (-1, 1).
fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

fn matrix(values: &[f32], cols: usize, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len() / cols, cols]), device)
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

fn shared(bytes: Vec<u8>) -> Bytes {
    Bytes::from_shared(bytes.into(), AllocationProperty::Other)
}

fn byte_tensor(bytes: Bytes, device: &Device) -> Tensor<1, Int> {
    let len = bytes.len();
    Tensor::from_data(TensorData::from_bytes(bytes, [len], DType::U8), (device, DType::U8))
}

const IN: usize = 384;
const OUT: usize = 70;
const TOKENS: usize = 9;

fn ternary_layer<L: LinearLayer>(seed: u64, device: &Device, load: impl Fn(&mut L, Tensor<1, Int>)) -> L {
    let config = LinearConfig {
        in_features: IN,
        out_features: OUT,
        weight: LinearWeight::Ternary,
        norm: true,
        rms_norm_eps: 1e-6,
    };
    let mut layer = L::init(&config, device).unwrap();
    let packed = pack::ternarize_and_pack_rows(&noise(seed, OUT * IN), OUT, IN).unwrap();
    assert_eq!(Some(packed.len()), config.weight_bytes());
    load(&mut layer, byte_tensor(shared(packed), device));
    layer
}

#[test]
fn integer_and_float_products_of_a_ternary_layer_have_equal_bits_on_every_backend_and_isa() {
    let x = noise(1, TOKENS * IN);
    let mut seen: Option<Vec<Vec<u32>>> = None;
    for device in devices() {
        let load = |param: &mut Param<Tensor<1, Int>>, bytes: Tensor<1, Int>| {
            *param = Param::initialized(ParamId::new(), bytes);
        };
        let integer: Vec<BitLinear> = (2..5)
            .map(|seed| ternary_layer(seed, &device, |layer: &mut BitLinear, b| load(&mut layer.weight, b)))
            .collect();
        let float: Vec<DenseLinear> = (2..5)
            .map(|seed| ternary_layer(seed, &device, |layer: &mut DenseLinear, b| load(&mut layer.weight, b)))
            .collect();
        for &isa in Isa::available() {
            let results = isa.scope(|| {
                let input = || matrix(&x, IN, &device);
                let all = BitLinear::project([&integer[0], &integer[1], &integer[2]], input());
                let all: Vec<Vec<u32>> = all.into_iter().map(|y| bits(&floats(y))).collect();
                let one_by_one: Vec<Vec<u32>> =
                    integer.iter().map(|layer| bits(&floats(layer.forward(input())))).collect();
                assert_eq!(all, one_by_one, "{isa}: projecting together changes nothing");
                let dense = DenseLinear::project([&float[0], &float[1], &float[2]], input());
                let dense: Vec<Vec<u32>> = dense.into_iter().map(|y| bits(&floats(y))).collect();
                assert_eq!(all, dense, "{isa}: integer against float product");
                all
            });
            assert!(results.iter().flatten().any(|&bits| bits != 0));
            assert_eq!(*seen.get_or_insert_with(|| results.clone()), results, "{isa}");
        }
    }
}

#[test]
fn a_layer_behind_a_gate_has_the_bits_of_the_gate_and_then_the_layer() {
    let (gate, up) = (noise(21, TOKENS * IN), noise(22, TOKENS * IN));
    for device in devices() {
        let load = |param: &mut Param<Tensor<1, Int>>, bytes: Tensor<1, Int>| {
            *param = Param::initialized(ParamId::new(), bytes);
        };
        let integer = ternary_layer(2, &device, |layer: &mut BitLinear, b| load(&mut layer.weight, b));
        let float = ternary_layer(2, &device, |layer: &mut DenseLinear, b| load(&mut layer.weight, b));
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let [gate, up] = [&gate, &up].map(|values| matrix(values, IN, &device));
            let gated = ops::gated_activation(gate.clone(), up.clone(), activation);
            let expected = bits(&floats(integer.forward(gated)));
            for output in [
                integer.forward_gated(gate.clone(), up.clone(), activation),
                float.forward_gated(gate.clone(), up.clone(), activation),
            ] {
                assert_eq!(output.dims(), [TOKENS, OUT]);
                assert_eq!(bits(&floats(output)), expected, "{activation:?} on {device:?}");
            }
        }
    }
}

#[test]
fn a_dense_layer_is_a_chain_of_fused_multiply_adds() {
    let (x, w) = (noise(7, TOKENS * IN), noise(8, OUT * IN));
    let config = LinearConfig {
        in_features: IN,
        out_features: OUT,
        weight: LinearWeight::Dense(GgmlType::F32),
        norm: false,
        rms_norm_eps: 1e-6,
    };
    for device in devices() {
        let mut layer = DenseLinear::init(&config, &device).unwrap();
        let bytes = w.iter().flat_map(|value| value.to_le_bytes()).collect();
        layer.weight = Param::initialized(ParamId::new(), byte_tensor(shared(bytes), &device));
        let y = floats(layer.forward(matrix(&x, IN, &device)));
        let expected: Vec<f32> = x
            .chunks(IN)
            .flat_map(|x| w.chunks(IN).map(|w| x.iter().zip(w).fold(0.0f32, |sum, (x, w)| x.mul_add(*w, sum))))
            .collect();
        assert_eq!(bits(&y), bits(&expected));
    }
}

#[test]
fn the_integer_backend_refuses_a_plain_layer_and_says_what_to_use() {
    let config = LinearConfig {
        in_features: IN,
        out_features: OUT,
        weight: LinearWeight::Dense(GgmlType::F16),
        norm: false,
        rms_norm_eps: 1e-6,
    };
    for device in devices() {
        let error = <I2sBackend as ComputeBackend>::Linear::init(&config, &device).unwrap_err();
        assert_eq!(error, LinearError::NotTernary { backend: "I2_S", found: GgmlType::F16 });
        assert!(error.to_string().contains("F16Backend"), "{error}");
        assert!(<F16Backend as ComputeBackend>::Linear::init(&config, &device).is_ok());
    }
}

#[test]
fn lent_weights_are_the_memory_that_was_loaded() {
    for device in devices() {
        let bytes = bytes_owner();
        let pointer = bytes.as_ptr();
        let tensor = byte_tensor(Bytes::from_shared(bytes, AllocationProperty::Other), &device);
        with_bytes(&[tensor.clone(), tensor], |lent| {
            assert_eq!(lent[0].as_ptr(), pointer);
            assert_eq!(lent[1].as_ptr(), pointer);
        });
    }
}

fn bytes_owner() -> bytes::Bytes {
    bytes::Bytes::from((0..4096u32).map(|value| value as u8).collect::<Vec<u8>>())
}

#[test]
fn an_operation_works_in_place_on_a_tensor_that_nothing_else_holds_and_leaves_a_shared_one_alone() {
    for device in devices() {
        let hidden = matrix(&[1.0, 2.0, 3.0, 4.0], 2, &device);
        let kept = hidden.clone();
        let sum = ops::residual_add(hidden, matrix(&[10.0; 4], 2, &device), None, 0.0);
        assert_eq!(floats(sum.clone()), [11.0, 12.0, 13.0, 14.0]);
        assert_eq!(floats(kept), [1.0, 2.0, 3.0, 4.0]);

        let values = vec![1.0f32; 512];
        let pointer = values.as_ptr();
        let unique: Tensor<1> = Tensor::from_data(TensorData::new(values, [512]), &device);
        let before = with_floats(std::slice::from_ref(&unique), |lent| lent[0].as_ptr());
        let unique = unique.reshape([1, 512]);
        let other = matrix(&vec![1.0; 512], 512, &device);
        let sum = ops::residual_add(unique, other, None, 0.0);
        let after = with_floats(&[sum.reshape([512])], |lent| lent[0].as_ptr());
        assert_eq!(before, pointer, "a Vec becomes a tensor without a copy");
        assert_eq!(after, pointer, "and is written in place");
    }
}

#[test]
fn strided_tensors_are_read_in_row_major_order() {
    for device in devices() {
        let transposed = matrix(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3, &device).transpose();
        let sum = ops::residual_add(transposed.clone(), transposed, None, 0.0);
        assert_eq!(floats(sum), [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]);
    }
}

#[test]
fn a_table_decodes_only_the_rows_it_is_asked_for_with_indices_of_any_width() {
    for device in devices() {
        let mut table = RowTable::init(4, 3, GgmlType::F16, &device).unwrap();
        let bytes: Vec<u8> = (0..12).flat_map(|value| half::f16::from_f32(value as f32).to_le_bytes()).collect();
        let data = TensorData::from_bytes(shared(bytes), [4, 6], DType::U8);
        table.weight = Param::initialized(ParamId::new(), Tensor::from_data(data, (&device, DType::U8)));
        let ids = TensorData::new(vec![3i32, 0, 3], [3]);
        for dtype in [DType::I32, DType::I64] {
            let ids: Tensor<1, Int> = Tensor::from_data(ids.clone(), (&device, dtype));
            assert_eq!(floats(table.forward(ids, 2.0)), [18.0, 20.0, 22.0, 0.0, 2.0, 4.0, 18.0, 20.0, 22.0]);
        }
    }
}

#[test]
fn pieces_are_put_together_in_order_and_keep_level_and_thread() {
    let (rows, cols) = (75, 3);
    let values = noise(4, rows * cols);
    for device in devices() {
        for threads in [1, 2, 3, 7] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let calls = std::sync::Mutex::new(Vec::new());
            let run = |fewest: usize| {
                calls.lock().unwrap().clear();
                let (doubled, negated) = pool.install(|| {
                    Isa::Scalar.scope(|| {
                        let mut pieces = Pieces::of(matrix(&values, cols, &device), fewest);
                        let [negated, _] = pieces.step([matrix(&values, cols, &device)], [cols, 1], |a, [b], rows| {
                            assert_eq!(Isa::current(), Isa::Scalar);
                            assert_eq!(floats(a.clone()), &values[rows.start * cols..rows.end * cols]);
                            calls.lock().unwrap().push(rows.clone());
                            (a * 2.0, [-b.clone(), b.slice([0..rows.len(), 0..1])])
                        });
                        (pieces.join(), negated)
                    })
                });
                assert_eq!(floats(doubled), values.iter().map(|value| value * 2.0).collect::<Vec<_>>());
                assert_eq!(floats(negated), values.iter().map(|value| -value).collect::<Vec<_>>());
                let mut calls = calls.lock().unwrap().clone();
                calls.sort_by_key(|rows| rows.start);
                assert_eq!((calls[0].start, calls[calls.len() - 1].end), (0, rows));
                assert!(calls.windows(2).all(|pair| pair[0].end == pair[1].start));
                calls.len()
            };
            assert_eq!(run(10), threads);
            assert_eq!(run(rows / threads), threads);
            assert_eq!(run(rows / threads + 1), 1, "too few rows a thread");
        }
    }
}

#[test]
fn pieces_of_another_shape_are_refused_with_any_number_of_threads() {
    let device = devices().into_iter().next().unwrap();
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let refused = |width: usize, f: fn(Tensor<2>) -> (Tensor<2>, Tensor<2>)| {
            let run = || {
                let mut pieces = Pieces::of(matrix(&[0.0; 16], 2, &device), 1);
                let _ = pieces.step([], [width], |piece, [], _| {
                    let (piece, output) = f(piece);
                    (piece, [output])
                });
            };
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.install(run))).is_err()
        };
        assert!(!refused(2, |piece| (piece.clone(), piece)));
        assert!(refused(1, |piece| (piece.clone(), piece)), "a wider output");
        assert!(refused(2, |piece| (piece.clone(), piece.transpose())), "as many values in another order");
        assert!(refused(2, |piece| (piece.clone(), piece.slice([0..1, 0..2]))), "an output without some rows");
        assert!(refused(2, |piece| (piece.clone().slice([0..1, 0..2]), piece)), "a piece without some rows");
    }
}

#[test]
fn many_rows_are_taken_a_piece_at_a_time_by_one_thread_too() {
    let (rows, cols) = (1000, 2);
    let values = noise(5, rows * cols);
    for device in devices() {
        let calls = std::sync::Mutex::new(Vec::new());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let (joined, outputs) = pool.install(|| {
            let mut pieces = Pieces::of(matrix(&values, cols, &device), 1);
            // Pieces stay apart from step to step.
            let outputs = [1, 2].map(|_| {
                let [output] = pieces.step([], [cols], |piece, [], rows| {
                    calls.lock().unwrap().push(rows);
                    (piece.clone() * 2.0, [piece])
                });
                output
            });
            (pieces.join(), outputs)
        });
        let times = |factor: f32| values.iter().map(|value| value * factor).collect::<Vec<_>>();
        assert_eq!(floats(joined), times(4.0));
        assert_eq!(outputs.map(floats), [times(1.0), times(2.0)]);
        let calls = calls.into_inner().unwrap();
        assert_eq!(calls.len(), 14, "pieces of about 128");
        assert!(calls.iter().all(|rows| (128..=143).contains(&rows.len())), "{calls:?}");
    }
}
