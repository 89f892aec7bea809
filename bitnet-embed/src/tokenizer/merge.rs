//! The merge loop of byte-pair encoding: the pair with the lowest key first, of equal keys the leftmost.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// One symbol of a word: a stretch of the text that is a token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// First byte in the text.
    pub(super) start: u32,
    /// Length in bytes, never 0.
    pub(super) len: u32,
    /// Length in characters; 0 marks a symbol that takes part in no merge.
    pub(super) chars: u32,
    /// Token id.
    pub(super) id: u32,
}

/// What decides which neighbours may merge, and in which order.
pub(super) trait MergeRule {
    /// The key of this merge (lowest first, never `u64::MAX`) and the id of its result.
    fn merge(&self, left: &Symbol, right: &Symbol) -> Option<(u64, u32)>;
}

/// Words up to this many symbols are merged by scanning for the lowest key, which is faster than a heap there.
const SHORT: usize = 24;
const NO_KEY: u64 = u64::MAX;
const NONE: u32 = u32::MAX;

/// Scratch memory of the merge loop. Push the symbols of a word, then [`Self::run`].
#[derive(Default)]
pub(super) struct Merger {
    pub(super) symbols: Vec<Symbol>,
    candidates: Vec<(u64, u32)>,
    heap: BinaryHeap<Candidate>,
    links: Vec<Link>,
}

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

/// A possible merge of the symbol at `at` with its right neighbour, as they were when it was found.
#[derive(Clone, Copy)]
struct Candidate {
    key: u64,
    at: u32,
    /// Length of both together, in bytes.
    len: u32,
    id: u32,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed: `BinaryHeap` gives the greatest first.
        (other.key, other.at).cmp(&(self.key, self.at))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

impl Merger {
    /// Merges the symbols until no rule applies. Afterwards `symbols` holds the result, in order.
    pub(super) fn run(&mut self, rule: &impl MergeRule) {
        if self.symbols.len() <= SHORT { self.run_short(rule) } else { self.run_long(rule) }
    }

    fn run_short(&mut self, rule: &impl MergeRule) {
        let Self { symbols, candidates, .. } = self;
        let lookup = |pair: &[Symbol]| rule.merge(&pair[0], &pair[1]).unwrap_or((NO_KEY, 0));
        candidates.clear();
        candidates.extend(symbols.windows(2).map(lookup));
        // `min_by_key` gives the first of equal keys.
        while let Some((at, &(key, id))) = candidates.iter().enumerate().min_by_key(|(_, candidate)| candidate.0) {
            if key == NO_KEY {
                break;
            }
            symbols[at] = joined(&symbols[at], &symbols[at + 1], id);
            symbols.remove(at + 1);
            candidates.remove(at);
            if at < candidates.len() {
                candidates[at] = lookup(&symbols[at..at + 2]);
            }
            if at > 0 {
                candidates[at - 1] = lookup(&symbols[at - 1..=at]);
            }
        }
    }

    fn run_long(&mut self, rule: &impl MergeRule) {
        let Self { symbols, heap, links, .. } = self;
        let count = symbols.len() as u32;
        let candidate = |symbols: &[Symbol], at: u32, next: u32| {
            let (left, right) = (&symbols[at as usize], &symbols[next as usize]);
            let (key, id) = rule.merge(left, right)?;
            Some(Candidate { key, at, len: left.len + right.len, id })
        };
        // Made at once, not pair by pair: that is linear. The memory of the last word's heap is used again.
        let mut first = std::mem::take(heap).into_vec();
        first.clear();
        first.extend((1..count).filter_map(|at| candidate(symbols, at - 1, at)));
        *heap = first.into();
        links.clear();
        links.extend((0..count).map(|at| Link {
            previous: at.checked_sub(1).unwrap_or(NONE),
            next: if at + 1 < count { at + 1 } else { NONE },
        }));
        while let Some(found) = heap.pop() {
            let (at, next) = (found.at as usize, links[found.at as usize].next);
            // A symbol grows only by what follows it, and a swallowed one has length 0. So where a pair starts at the
            // same place and is as long as before, it is the same pair.
            if symbols[at].len == 0 || next == NONE || symbols[at].len + symbols[next as usize].len != found.len {
                continue;
            }
            symbols[at] = joined(&symbols[at], &symbols[next as usize], found.id);
            symbols[next as usize].len = 0;
            let after = links[next as usize].next;
            links[at].next = after;
            if after != NONE {
                links[after as usize].previous = found.at;
                heap.extend(candidate(symbols, found.at, after));
            }
            if links[at].previous != NONE {
                heap.extend(candidate(symbols, links[at].previous, found.at));
            }
        }
        symbols.retain(|symbol| symbol.len != 0);
    }
}

fn joined(left: &Symbol, right: &Symbol, id: u32) -> Symbol {
    Symbol { start: left.start, len: left.len + right.len, chars: left.chars + right.chars, id }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges neighbours whose joined length is at most `limit`; the key is a hash of both spans, with many ties.
    struct Toy {
        limit: u32,
    }

    impl MergeRule for Toy {
        fn merge(&self, left: &Symbol, right: &Symbol) -> Option<(u64, u32)> {
            let len = left.len + right.len;
            let key = (left.id.wrapping_mul(31) ^ right.id.wrapping_mul(17)) % 7;
            (len <= self.limit && key != 3).then_some((u64::from(key), left.id.wrapping_mul(5).wrapping_add(right.id)))
        }
    }

    #[test]
    fn the_scan_and_the_heap_agree() {
        let mut state = 1u32;
        for round in 0..2000 {
            let mut random = || {
                state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                state >> 16
            };
            let count = random() % 60;
            let symbols: Vec<_> =
                (0..count).map(|start| Symbol { start, len: 1, chars: 1, id: random() % 5 }).collect();
            let rule = Toy { limit: 2 + round % 9 };
            let run = |step: fn(&mut Merger, &Toy)| {
                let mut merger = Merger { symbols: symbols.clone(), ..Merger::default() };
                step(&mut merger, &rule);
                merger.symbols.iter().map(|symbol| (symbol.start, symbol.len, symbol.id)).collect::<Vec<_>>()
            };
            assert_eq!(run(Merger::run_short), run(Merger::run_long), "round {round}");
        }
    }

    #[test]
    fn equal_keys_merge_from_the_left() {
        let mut merger = Merger::default();
        merger.symbols.extend((0..3).map(|start| Symbol { start, len: 1, chars: 1, id: 0 }));
        merger.run(&Toy { limit: 2 });
        assert_eq!(merger.symbols.iter().map(|symbol| symbol.len).collect::<Vec<_>>(), [2, 1]);
    }
}
