//! Numbers of the command line, refused with the range that they may have.

use std::ops::RangeInclusive;

/// A whole number in a range.
fn whole(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
}

/// Any seed.
pub(super) fn parse_seed(text: &str) -> Result<u64, String> {
    whole(text, 0..=u64::MAX)
}

/// A size of a model; which ones make one is decided where all of them are known.
pub(super) fn parse_dimension(text: &str) -> Result<usize, String> {
    let number = whole(text, 1..=crate::dummy::MAX_SIZE as u64)?;
    usize::try_from(number).map_err(|error| error.to_string())
}

/// A cosine.
pub(super) fn parse_cosine(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number| (-1.0..=1.0).contains(number));
    number.ok_or_else(|| "expected a number from -1 to 1".to_owned())
}

/// `500M` or `2G`, in millions and billions of bytes as `gguf-split` counts them.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let factor = match text.chars().last() {
        Some('M') => Some(1_000_000),
        Some('G') => Some(1_000_000_000),
        _ => None,
    };
    let number = text.strip_suffix(['M', 'G']).and_then(|number| number.parse::<u64>().ok());
    let size = number.zip(factor).and_then(|(number, factor): (u64, u64)| number.checked_mul(factor));
    let size = size.filter(|size| *size > 0);
    size.ok_or_else(|| "expected a positive whole number and M or G, such as 500M or 2G".to_owned())
}
