//! Benchmarks: the `benches` program, and what the criterion benches share with it.
//!
//! Nothing is timed before its result was compared with the scalar level's. In reading order: [`cli`] says what can be
//! asked for, [`model`] opens a file, [`verify`] compares its layers, [`run`] times forwards and [`table`] prints them;
//! [`limits`] sets kernels against what the CPU could do, [`tune`] tries other tile sizes, [`texts`] times whole texts, and [`shapes`] has the layer
//! shapes and the made-up data.

pub mod cli;
pub mod clock;
pub mod error;
pub mod limits;
pub mod model;
pub mod run;
pub mod shapes;
pub mod table;
pub mod texts;
pub mod tune;
pub mod verify;
