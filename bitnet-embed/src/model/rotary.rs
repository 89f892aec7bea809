//! Rotary position tables, shared by the layers of one base and grown on demand.

use burn_i2s::rope::RopeTable;
use std::sync::{Arc, RwLock};

/// The rotation of one RoPE base. Its table is a pure function of the base and the head dimension, so keeping it beside
/// the parameters can never go stale.
#[derive(Clone, Debug)]
pub struct Rotary {
    head_dim: usize,
    theta: f64,
    table: Arc<RwLock<Arc<RopeTable>>>,
}

/// Tables start at this many positions and double, so that a stream of growing texts rebuilds them a few times only.
const FIRST_POSITIONS: usize = 512;

impl Rotary {
    /// The rotation of heads of `head_dim` values with base `theta`.
    pub fn new(head_dim: usize, theta: f64) -> Self {
        let table = Arc::new(RopeTable::new(head_dim, theta, 0));
        Self { head_dim, theta, table: Arc::new(RwLock::new(table)) }
    }

    /// The RoPE base.
    pub fn theta(&self) -> f64 {
        self.theta
    }

    /// A table that covers at least `positions` positions.
    pub fn table(&self, positions: usize) -> Arc<RopeTable> {
        let current = Arc::clone(&self.table.read().unwrap_or_else(|poisoned| poisoned.into_inner()));
        if current.positions() >= positions {
            return current;
        }
        let mut slot = self.table.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if slot.positions() < positions {
            let grown = positions.next_power_of_two().max(FIRST_POSITIONS);
            *slot = Arc::new(RopeTable::new(self.head_dim, self.theta, grown));
        }
        Arc::clone(&slot)
    }
}
