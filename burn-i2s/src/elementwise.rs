//! RMSNorm, residual additions and gated activations over rows of f32.

use rayon::prelude::*;

use crate::isa::Isa;
use crate::kernel::float::multiversion;
use crate::math::{gelu_tanh, silu};
use crate::rms::{TOGETHER, inverse_rms_together};
use crate::threads::units_per_job;

/// The activation of a gated MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// [`silu`]; Qwen3.
    Silu,
    /// [`gelu_tanh`]; Gemma3.
    GeluTanh,
}

/// RMSNorm of each row: `out = (x * (1 / sqrt(mean(x^2) + eps))) * weight`.
///
/// `x` and `out` are `[rows, weight.len()]`.
///
/// # Panics
/// When `weight` is empty, or `x` is not whole rows, or `out` has another length than `x`.
pub fn rms_norm(isa: Isa, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let rows = whole_rows(x, weight.len());
    assert_eq!(x.len(), out.len(), "rms_norm writes as many values as it reads");
    let job = units_per_job(rows, weight.len()) * weight.len();
    for_jobs(out, x, job, |out, x| rms_norm_rows(isa, x, weight, eps, out));
}

/// `hidden += delta`.
///
/// # Panics
/// When the lengths differ.
pub fn residual_add(isa: Isa, hidden: &mut [f32], delta: &[f32]) {
    assert_eq!(hidden.len(), delta.len(), "residual_add adds equal lengths");
    let job = units_per_job(hidden.len(), 1);
    for_jobs(hidden, delta, job, |hidden, delta| add(isa, hidden, delta));
}

/// `hidden += rms_norm(delta)`, row by row; both are `[rows, weight.len()]`.
///
/// # Panics
/// When `weight` is empty, or `delta` is not whole rows, or `hidden` has another length than `delta`.
pub fn residual_add_norm(isa: Isa, hidden: &mut [f32], delta: &[f32], weight: &[f32], eps: f32) {
    let rows = whole_rows(delta, weight.len());
    assert_eq!(hidden.len(), delta.len(), "residual_add_norm adds equal lengths");
    let job = units_per_job(rows, weight.len()) * weight.len();
    for_jobs(hidden, delta, job, |hidden, delta| add_norm_rows(isa, hidden, delta, weight, eps));
}

/// `out = activation(gate) * up`.
///
/// # Panics
/// When the lengths differ.
pub fn gated_activation(isa: Isa, activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    assert!(gate.len() == up.len() && up.len() == out.len(), "gated_activation multiplies equal lengths");
    let job = units_per_job(gate.len(), 4);
    if job >= gate.len() {
        return gate_values(isa, activation, gate, up, out);
    }
    let jobs = out.par_chunks_mut(job).zip(gate.par_chunks(job)).zip(up.par_chunks(job));
    jobs.for_each(|((out, gate), up)| gate_values(isa, activation, gate, up, out));
}

/// [`gated_activation`] on this thread.
pub(crate) fn gate_values(isa: Isa, activation: Activation, gate: &[f32], up: &[f32], out: &mut [f32]) {
    match activation {
        Activation::Silu => gated_silu(isa, gate, up, out),
        Activation::GeluTanh => gated_gelu(isa, gate, up, out),
    }
}

fn whole_rows(x: &[f32], cols: usize) -> usize {
    assert!(cols > 0 && x.len().is_multiple_of(cols), "{} values are not rows of {cols}", x.len());
    x.len() / cols
}

/// Runs `f` over equal pieces of `job` values, in parallel when there is more than one.
fn for_jobs(out: &mut [f32], x: &[f32], job: usize, f: impl Fn(&mut [f32], &[f32]) + Sync) {
    if job >= x.len() {
        return f(out, x);
    }
    out.par_chunks_mut(job).zip(x.par_chunks(job)).for_each(|(out, x)| f(out, x));
}

fn rms_norm_rows(isa: Isa, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let cols = weight.len();
    for (x, out) in x.chunks(TOGETHER * cols).zip(out.chunks_mut(TOGETHER * cols)) {
        scale(isa, x, &inverse_rms_together(isa, x, cols, eps), weight, out);
    }
}

fn add_norm_rows(isa: Isa, hidden: &mut [f32], delta: &[f32], weight: &[f32], eps: f32) {
    let cols = weight.len();
    for (delta, hidden) in delta.chunks(TOGETHER * cols).zip(hidden.chunks_mut(TOGETHER * cols)) {
        add_scaled(isa, hidden, delta, &inverse_rms_together(isa, delta, cols, eps), weight);
    }
}

#[inline(always)]
fn scale_body(x: &[f32], factors: &[f32; TOGETHER], weight: &[f32], out: &mut [f32]) {
    let cols = weight.len();
    for ((x, out), &factor) in x.chunks_exact(cols).zip(out.chunks_exact_mut(cols)).zip(factors) {
        for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
            *out = x * factor * w;
        }
    }
}

#[inline(always)]
fn add_scaled_body(hidden: &mut [f32], delta: &[f32], factors: &[f32; TOGETHER], weight: &[f32]) {
    let cols = weight.len();
    for ((delta, hidden), &factor) in delta.chunks_exact(cols).zip(hidden.chunks_exact_mut(cols)).zip(factors) {
        for ((hidden, &x), &w) in hidden.iter_mut().zip(delta).zip(weight) {
            // Norm and addition round separately: the same bits as a norm followed by `residual_add`.
            *hidden += x * factor * w;
        }
    }
}

#[inline(always)]
fn add_body(hidden: &mut [f32], delta: &[f32]) {
    for (hidden, &delta) in hidden.iter_mut().zip(delta) {
        *hidden += delta;
    }
}

#[inline(always)]
fn gated_body(gate: &[f32], up: &[f32], out: &mut [f32], activation: impl Fn(f32) -> f32) {
    for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
        *out = activation(gate) * up;
    }
}

#[inline(always)]
fn gated_silu_body(gate: &[f32], up: &[f32], out: &mut [f32]) {
    gated_body(gate, up, out, silu);
}

#[inline(always)]
fn gated_gelu_body(gate: &[f32], up: &[f32], out: &mut [f32]) {
    gated_body(gate, up, out, gelu_tanh);
}

multiversion!(fn scale(x: &[f32], factors: &[f32; TOGETHER], weight: &[f32], out: &mut [f32]) = scale_body);
multiversion!(
    fn add_scaled(hidden: &mut [f32], delta: &[f32], factors: &[f32; TOGETHER], weight: &[f32]) = add_scaled_body
);
multiversion!(fn add(hidden: &mut [f32], delta: &[f32]) = add_body);
multiversion!(fn gated_silu(gate: &[f32], up: &[f32], out: &mut [f32]) = gated_silu_body);
multiversion!(fn gated_gelu(gate: &[f32], up: &[f32], out: &mut [f32]) = gated_gelu_body);
