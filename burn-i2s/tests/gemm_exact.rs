//! Every instruction-set level forms exactly the sums of a plain triple loop, whatever the shape, the values, the codes
//! and the number of threads.

use burn_i2s::gemm::{Activations, Product, ternary_accumulate, ternary_gemm, ternary_gemm_many, ternary_gemm_tiled};
use burn_i2s::isa::Isa;
use burn_i2s::layout::{self, BLOCK};
use burn_i2s::matrix::TernaryMatrix;
use burn_i2s::tiling::{Split, Tiling};

/// A small generator, so that a failure can be run again.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let x = self.0 ^ (self.0 >> 29);
        x.wrapping_mul(0xbf58476d1ce4e5b9) >> 16
    }
}

/// Owned activations of `cols` codes a row, padded to blocks.
struct Input {
    codes: Vec<i8>,
    sums: Vec<i32>,
    scales: Vec<f32>,
    cols: usize,
}

impl Input {
    fn new(rows: usize, cols: usize, mut code: impl FnMut(usize) -> i8) -> Self {
        let stride = cols.div_ceil(BLOCK) * BLOCK;
        let codes: Vec<i8> = (0..rows * stride).map(|i| if i % stride < cols { code(i % stride) } else { 0 }).collect();
        let sums = codes.chunks(stride).map(|row| row.iter().map(|&x| i32::from(x)).sum()).collect();
        let scales = (0..rows).map(|row| 127.0 / (0.3 + row as f32)).collect();
        Self { codes, sums, scales, cols }
    }

    fn view(&self) -> Activations<'_> {
        Activations::new(&self.codes, &self.sums, &self.scales, self.cols).unwrap()
    }
}

/// The bytes of a matrix whose packed bytes are `byte(i)`.
fn matrix(rows: usize, cols: usize, byte: impl FnMut(usize) -> u8) -> Vec<u8> {
    let len = layout::padded_byte_len(rows, cols).unwrap() - layout::TAIL_BYTES;
    (0..len).map(byte).chain(layout::tail(0.0371)).collect()
}

/// The definition again, from the layout's own statement and in i64: what no level may differ from.
fn reference(x: &Input, bytes: &[u8], rows: usize) -> Vec<i32> {
    let blocks = x.cols.div_ceil(BLOCK);
    let weights: Vec<i8> = (0..rows * blocks * BLOCK)
        .map(|i| {
            let (byte, shift) = layout::position(i % BLOCK);
            layout::weight_of(bytes[i / BLOCK * layout::BLOCK_BYTES + byte] >> shift)
        })
        .collect();
    let mut out = Vec::new();
    for x in x.codes.chunks(blocks * BLOCK) {
        for w in weights.chunks(blocks * BLOCK) {
            let sum: i64 = x.iter().zip(w).map(|(&x, &w)| i64::from(x) * i64::from(w)).sum();
            out.push(i32::try_from(sum).unwrap());
        }
    }
    out
}

/// Checks sums on every level and outputs on every level, against the loop above.
fn check(x: &Input, bytes: &[u8], out_features: usize, what: &str) {
    let w = TernaryMatrix::new(bytes, out_features, x.cols).unwrap();
    let expected = reference(x, bytes, out_features);
    let scaled: Vec<u32> = (expected.chunks(out_features).zip(&x.scales))
        .flat_map(|(sums, scale)| sums.iter().map(move |&sum| (sum as f32 * w.weight_scale() / scale).to_bits()))
        .collect();
    for &isa in Isa::available() {
        let mut sums = vec![i32::MIN; expected.len()];
        ternary_accumulate(isa, &x.view(), &w, &mut sums).unwrap();
        let first = sums.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(first, None, "{isa}, {what}: [{}, {}] x {out_features}", x.sums.len(), x.cols);
        let mut out = vec![f32::NAN; expected.len()];
        ternary_gemm(isa, &x.view(), &w, &mut out).unwrap();
        assert!(out.iter().map(|v| v.to_bits()).eq(scaled.iter().copied()), "{isa}, {what}: scaled outputs");
    }
}

/// Bytes with no code 3.
fn valid_byte(rng: &mut Rng) -> u8 {
    let codes = rng.next();
    (0..4).fold(0, |byte, i| (byte << 2) | ((codes >> (16 * i) & 0xffff) % 3) as u8)
}

#[test]
fn the_simplest_case() {
    let x = Input::new(1, 128, |k| if k == 33 { 5 } else { 0 });
    // Weight 33 is in plane 1 of byte 1: code 2, where all others have code 1.
    let bytes = matrix(1, 128, |i| if i == 1 { 0x55 + (1 << 4) } else { 0x55 });
    let w = TernaryMatrix::new(&bytes, 1, 128).unwrap();
    for &isa in Isa::available() {
        let mut sum = [0];
        ternary_accumulate(isa, &x.view(), &w, &mut sum).unwrap();
        assert_eq!(sum, [5], "{isa}");
    }
}

#[test]
fn sums_are_exact_at_every_shape() {
    // Rows and columns around the tiles' edges; blocks odd and even, below and above what one vector holds.
    let mut rng = Rng(1);
    for rows in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 23, 24, 33] {
        for out_features in [1, 15, 16, 17, 63, 64, 65, 130] {
            for blocks in [1, 2, 3, 5, 7, 17] {
                let x = Input::new(rows, 128 * blocks, |_| rng.next() as i8);
                let bytes = matrix(out_features, 128 * blocks, |_| valid_byte(&mut rng));
                check(&x, &bytes, out_features, "random");
            }
        }
    }
}

#[test]
fn rows_that_are_not_whole_blocks_are_padded() {
    let mut rng = Rng(2);
    for cols in [1, 64, 127, 129, 200, 641] {
        for rows in [1, 3, 8, 17] {
            let x = Input::new(rows, cols, |_| rng.next() as i8);
            let bytes = matrix(66, cols, |_| valid_byte(&mut rng));
            check(&x, &bytes, 66, "padded");
        }
    }
}

#[test]
fn extreme_sums_do_not_saturate_or_wrap() {
    // All of one sign drives every 16-bit lane to its limit; 16384 columns drive the totals.
    for cols in [128, 384, 16384] {
        for (name, code) in [("127", [127i8, 127]), ("-128", [-128, -128]), ("alternating", [127, -128])] {
            for rows in [1, 2, 8, 17, 30] {
                let x = Input::new(rows, cols, |k| code[k % 2]);
                for byte in [0x00, 0x55, 0xaa, 0xff, 0x88, 0x22] {
                    check(&x, &matrix(17, cols, |_| byte), 17, &format!("{name} with bytes {byte:#04x}"));
                }
            }
        }
    }
}

#[test]
fn many_rows_of_the_longest_columns_do_not_wrap() {
    // More rows than any level forms dot products for.
    let x = Input::new(170, 16384, |_| -128);
    for byte in [0x00, 0xff] {
        check(&x, &matrix(3, 16384, |_| byte), 3, "-128 at many rows");
    }
}

#[test]
fn a_code_3_acts_as_plus_two_everywhere() {
    let mut rng = Rng(3);
    for rows in [1, 4, 8, 20, 30] {
        for blocks in [1, 2, 5] {
            let x = Input::new(rows, 128 * blocks, |_| rng.next() as i8);
            let bytes = matrix(70, 128 * blocks, |_| rng.next() as u8);
            check(&x, &bytes, 70, "any byte");
        }
    }
}

#[test]
fn threads_do_not_change_a_bit() {
    let mut rng = Rng(4);
    for (rows, out_features, cols) in [(1, 3000, 2048), (40, 1030, 640), (700, 64, 256), (600, 130, 384)] {
        let x = Input::new(rows, cols, |_| rng.next() as i8);
        let bytes = matrix(out_features, cols, |_| valid_byte(&mut rng));
        let w = TernaryMatrix::new(&bytes, out_features, cols).unwrap();
        let expected = reference(&x, &bytes, out_features);
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            for &isa in Isa::available() {
                let mut sums = vec![i32::MIN; expected.len()];
                pool.install(|| ternary_accumulate(isa, &x.view(), &w, &mut sums)).unwrap();
                assert!(sums == expected, "{isa}, {threads} threads, [{rows}, {cols}] x {out_features}");
            }
        }
    }
}

#[test]
fn no_size_of_tiles_and_jobs_changes_a_bit_on_threads() {
    let mut rng = Rng(8);
    // Enough products for several threads, and a last panel of one column.
    let (rows, cols, out_features) = (37, 640, 577);
    let x = Input::new(rows, cols, |_| rng.next() as i8);
    let bytes = matrix(out_features, cols, |_| valid_byte(&mut rng));
    let w = TernaryMatrix::new(&bytes, out_features, cols).unwrap();
    let mut expected = vec![0.0; rows * out_features];
    ternary_gemm(Isa::Scalar, &x.view(), &w, &mut expected).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    for &isa in Isa::available() {
        let own = Tiling::of(isa, cols);
        let sizes = [0, 1, 2, 3, 7, 64, usize::MAX];
        let tilings = sizes.iter().flat_map(|&size| {
            [Split::WeightRows, Split::ActivationRows].into_iter().flat_map(move |split| {
                [
                    Tiling { tile_rows: size, panel_from: 0, split, ..own },
                    Tiling { panel_from: size, split, ..own },
                    Tiling { jobs_per_thread: size, split, ..own },
                    Tiling { rows_per_job: size, jobs_per_thread: 9, split, ..own },
                ]
            })
        });
        for tiling in tilings {
            let mut found = vec![f32::NAN; expected.len()];
            pool.install(|| ternary_gemm_tiled(isa, &tiling, &x.view(), &w, &mut found)).unwrap();
            let same = expected.iter().zip(&found).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{tiling:?} on {isa}");
        }
    }
}

#[test]
fn several_products_at_once_are_the_products_one_by_one() {
    let mut rng = Rng(5);
    for rows in [0, 1, 9, 200] {
        let shapes = [(2048, 256), (1024, 256), (65, 384)];
        let inputs = shapes.map(|(_, cols)| Input::new(rows, cols, |_| rng.next() as i8));
        let bytes = shapes.map(|(out_features, cols)| matrix(out_features, cols, |_| valid_byte(&mut rng)));
        let matrices: Vec<_> = shapes
            .iter()
            .zip(&bytes)
            .map(|(&(out_features, cols), bytes)| TernaryMatrix::new(bytes, out_features, cols).unwrap())
            .collect();
        for &isa in Isa::available() {
            let mut together: Vec<Vec<f32>> = shapes.iter().map(|&(n, _)| vec![f32::NAN; rows * n]).collect();
            let mut products: Vec<_> = (inputs.iter().zip(&matrices).zip(&mut together))
                .map(|((x, &w), out)| Product { x: x.view(), w, out })
                .collect();
            ternary_gemm_many(isa, &mut products).unwrap();
            for ((x, w), together) in inputs.iter().zip(&matrices).zip(&together) {
                let mut alone = vec![0.0; together.len()];
                ternary_gemm(isa, &x.view(), w, &mut alone).unwrap();
                assert_eq!(&alone, together, "{isa}, {rows} rows");
            }
        }
    }
    ternary_gemm_many(Isa::best(), &mut []).unwrap();
}
