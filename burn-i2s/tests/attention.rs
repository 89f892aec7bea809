//! Attention against a naive f64 softmax, and its independence of everything around a text.

mod common;

use burn_i2s::attention::{AttentionShape, attention, attention_of};
use burn_i2s::isa::Isa;
use common::{bits, in_pool, values};

struct Case {
    shape: AttentionShape,
    offsets: Vec<usize>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

impl Case {
    fn new(heads: (usize, usize), head_dim: usize, mask: (bool, Option<usize>), lengths: &[usize]) -> Self {
        let (num_heads, num_kv_heads) = heads;
        let offsets: Vec<usize> = std::iter::once(0)
            .chain(lengths.iter().scan(0, |end, length| {
                *end += length;
                Some(*end)
            }))
            .collect();
        let tokens: usize = lengths.iter().sum();
        let scale = 1.0 / (head_dim as f32).sqrt();
        let shape = AttentionShape { num_heads, num_kv_heads, head_dim, scale, causal: mask.0, window: mask.1 };
        // Large queries: the softmax is sharp, so the running maximum moves.
        let q = values(tokens * num_heads * head_dim, 1).iter().map(|x| x * 8.0).collect();
        let (k, v) = (values(tokens * num_kv_heads * head_dim, 2), values(tokens * num_kv_heads * head_dim, 3));
        Self { shape, offsets, q, k, v }
    }

    fn run(&self, isa: Isa) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.q.len()];
        attention(isa, &self.q, &self.k, &self.v, &self.shape, &self.offsets, &mut out);
        out
    }

    /// Text `i` as a batch of its own.
    fn alone(&self, i: usize) -> Self {
        let (start, end) = (self.offsets[i], self.offsets[i + 1]);
        let q_width = self.shape.num_heads * self.shape.head_dim;
        let kv_width = self.shape.num_kv_heads * self.shape.head_dim;
        Self {
            shape: self.shape,
            offsets: vec![0, end - start],
            q: self.q[start * q_width..end * q_width].to_vec(),
            k: self.k[start * kv_width..end * kv_width].to_vec(),
            v: self.v[start * kv_width..end * kv_width].to_vec(),
        }
    }

    fn naive(&self) -> Vec<f64> {
        let AttentionShape { num_heads, num_kv_heads, head_dim, scale, causal, window } = self.shape;
        let mut out = vec![0.0; self.q.len()];
        for text in self.offsets.windows(2) {
            for token in text[0]..text[1] {
                for head in 0..num_heads {
                    let kv_head = head / (num_heads / num_kv_heads);
                    let at = |t: usize| (t * num_kv_heads + kv_head) * head_dim;
                    let q_at = (token * num_heads + head) * head_dim;
                    let seen: Vec<usize> = (text[0]..text[1])
                        .filter(|&key| !causal || key <= token)
                        .filter(|&key| window.is_none_or(|window| key.abs_diff(token) < window))
                        .collect();
                    let scores: Vec<f64> = seen
                        .iter()
                        .map(|&key| {
                            let dot: f64 = (0..head_dim)
                                .map(|d| f64::from(self.q[q_at + d]) * f64::from(self.k[at(key) + d]))
                                .sum();
                            dot * f64::from(scale)
                        })
                        .collect();
                    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                    for (score, key) in scores.iter().zip(seen) {
                        for d in 0..head_dim {
                            out[q_at + d] += (score - max).exp() / sum * f64::from(self.v[at(key) + d]);
                        }
                    }
                }
            }
        }
        out
    }
}

fn cases() -> Vec<Case> {
    let masks = [
        (true, None),
        (true, Some(1)),
        // Rows whose first visible block is partly masked, and then rows whose earlier blocks are fully masked.
        (true, Some(40)),
        (true, Some(64)),
        (true, Some(100)),
        (false, None),
        (false, Some(1)),
        (false, Some(70)),
    ];
    let mut cases = Vec::new();
    for mask in masks {
        cases.push(Case::new((4, 2), 32, mask, &[1, 63, 64, 65, 0, 200, 7]));
        cases.push(Case::new((3, 1), 20, mask, &[130, 61]));
    }
    for (heads, head_dim) in [((2, 2), 6), ((8, 1), 80), ((7, 1), 1), ((70, 1), 16), ((4, 1), 256)] {
        cases.push(Case::new(heads, head_dim, (true, Some(33)), &[70, 3]));
    }
    cases
}

#[test]
fn every_mask_and_shape_is_close_to_a_naive_f64_softmax() {
    for case in cases() {
        let out = case.run(Isa::best());
        for (i, (out, exact)) in out.iter().zip(case.naive()).enumerate() {
            let error = (f64::from(*out) - exact).abs();
            assert!(error <= 1e-5, "{:?} {:?} at {i}: {out} is not {exact}", case.shape, case.offsets);
        }
    }
}

#[test]
fn every_level_gives_the_same_bits() {
    for case in cases() {
        let scalar = bits(&case.run(Isa::Scalar));
        for &isa in Isa::available() {
            assert!(bits(&case.run(isa)) == scalar, "{isa} {:?} {:?}", case.shape, case.offsets);
        }
    }
}

#[test]
fn a_text_alone_has_the_bits_it_has_among_neighbours_with_any_number_of_threads() {
    for case in cases() {
        let batch = in_pool(1, || case.run(Isa::best()));
        for threads in [2, 5] {
            let again = in_pool(threads, || case.run(Isa::best()));
            assert!(bits(&again) == bits(&batch), "{threads} threads, {:?} {:?}", case.shape, case.offsets);
        }
        let width = case.shape.num_heads * case.shape.head_dim;
        for i in 0..case.offsets.len() - 1 {
            let alone = case.alone(i).run(Isa::best());
            let among = &batch[case.offsets[i] * width..case.offsets[i + 1] * width];
            assert!(bits(&alone) == bits(among), "text {i}, {:?} {:?}", case.shape, case.offsets);
        }
    }
}

#[test]
fn some_tokens_alone_have_the_bits_they_have_among_all() {
    for case in cases() {
        let all = case.run(Isa::best());
        let width = case.shape.num_heads * case.shape.head_dim;
        let lengths: Vec<usize> = case.offsets.windows(2).map(|text| text[1] - text[0]).collect();
        // The last, the first, some in the middle, none.
        let choices: [fn(usize) -> std::ops::Range<usize>; 4] = [
            |length| length.saturating_sub(1)..length,
            |length| 0..length.min(1),
            |length| length / 3..length,
            |_| 0..0,
        ];
        for queries in choices.map(|choice| lengths.iter().map(|&length| choice(length)).collect::<Vec<_>>()) {
            let rows = |values: &[f32]| -> Vec<f32> {
                let texts = case.offsets.iter().zip(&queries);
                texts
                    .flat_map(|(start, range)| &values[(start + range.start) * width..(start + range.end) * width])
                    .copied()
                    .collect()
            };
            let q = rows(&case.q);
            for &isa in Isa::available() {
                let mut out = vec![f32::NAN; q.len()];
                attention_of(isa, &q, &case.k, &case.v, &case.shape, &case.offsets, &queries, &mut out);
                assert!(bits(&out) == bits(&rows(&all)), "{isa} {:?} {:?} {queries:?}", case.shape, case.offsets);
            }
        }
    }
}

#[test]
#[should_panic(expected = "queries beyond their text")]
fn a_query_beyond_its_text_is_refused() {
    let case = Case::new((2, 1), 16, (true, None), &[3, 2]);
    let mut out = vec![0.0; 2 * 32];
    let queries = [0..0, 1..3];
    attention_of(Isa::best(), &case.q[..64], &case.k, &case.v, &case.shape, &case.offsets, &queries, &mut out);
}

#[test]
fn large_work_is_split_and_still_the_same() {
    let case = Case::new((4, 1), 64, (true, None), &[700, 20, 300]);
    let one = in_pool(1, || case.run(Isa::best()));
    let many = in_pool(5, || case.run(Isa::best()));
    assert!(bits(&one) == bits(&many));
}

#[test]
fn later_tokens_do_not_change_earlier_ones() {
    // A causal prefix: the longer text's first tokens have the shorter text's bits, whatever follows.
    for window in [None, Some(50)] {
        let long = Case::new((2, 1), 24, (true, window), &[150]);
        for length in [1, 63, 64, 65, 149] {
            let mut short = long.alone(0);
            short.offsets = vec![0, length];
            short.q.truncate(length * 48);
            short.k.truncate(length * 24);
            short.v.truncate(length * 24);
            assert!(
                bits(&short.run(Isa::best())) == bits(&long.run(Isa::best())[..length * 48]),
                "{length} {window:?}"
            );
        }
    }
}

#[test]
fn huge_scores_and_zero_values_stay_finite() {
    let mut case = Case::new((2, 1), 16, (true, Some(90)), &[200]);
    case.q.iter_mut().for_each(|x| *x *= 1e18);
    case.k.iter_mut().for_each(|x| *x *= 1e18);
    let out = case.run(Isa::best());
    assert!(out.iter().all(|x| x.is_finite()));
    assert!(bits(&out) == bits(&case.run(Isa::Scalar)));
    case.v.iter_mut().for_each(|x| *x = -0.0);
    assert!(case.run(Isa::best()).iter().all(|x| x.to_bits() == 0), "a zero has no sign");
}

#[test]
fn blocks_outside_every_window_are_not_touched() {
    // What is skipped costs nothing and cannot spread: not even a NaN.
    for (causal, bad, finite) in [(true, 0..64, 160..400), (false, 0..64, 160..400), (false, 336..400, 0..240)] {
        let mut case = Case::new((2, 1), 16, (causal, Some(64)), &[400]);
        let expected = case.run(Isa::best());
        case.k[bad.start * 16..bad.end * 16].fill(f32::NAN);
        case.v[bad.start * 16..bad.end * 16].fill(f32::NAN);
        let out = case.run(Isa::best());
        let range = finite.start * 32..finite.end * 32;
        assert!(bits(&out[range.clone()]) == bits(&expected[range]), "causal {causal}, NaN at {bad:?}");
    }
}

#[test]
fn a_window_of_nothing_gives_zeros() {
    let case = Case::new((2, 1), 16, (true, Some(0)), &[70]);
    assert!(case.run(Isa::best()).iter().all(|&x| x == 0.0));
}

#[test]
fn nothing_of_an_earlier_call_is_left_in_the_scratch_of_threads() {
    let mut bad = Case::new((4, 2), 20, (true, None), &[200, 90]);
    for x in [&mut bad.q, &mut bad.k, &mut bad.v] {
        x.fill(f32::NAN);
    }
    // Lengths that leave columns of a group, rows of a tile and the last dimensions without a value.
    let cases = [(true, None), (false, None), (true, Some(7)), (false, Some(70)), (true, Some(0))]
        .map(|mask| Case::new((4, 2), 20, mask, &[1, 33, 70, 130]));
    for &isa in Isa::available() {
        for case in &cases {
            // A thread of its own has scratch of its own.
            let run = |first: Option<&Case>| {
                in_pool(1, || {
                    first.map(|first| first.run(isa));
                    bits(&case.run(isa))
                })
            };
            assert!(run(None) == run(Some(&bad)), "{isa} {:?}", case.shape);
        }
    }
}
