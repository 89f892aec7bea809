//! The output formats of llama.cpp's `llama-embedding`.
//!
//! `array`, `json` and `json+` print the shortest decimals that restore each f32 exactly; the listing and `raw` print
//! llama-embedding's fixed number of digits.

use bitnet_embed::output::cosine_similarity;
use std::io::{self, Write};

/// Values of each vector that the listing shows when there are several.
const SHOWN_VALUES: usize = 16;

/// A listing: the vectors (their first values if there are several), then the matrix of cosine similarities.
pub(crate) fn text(out: &mut impl Write, texts: &[String], vectors: &[Vec<f32>], integers: bool) -> io::Result<()> {
    let shown = if vectors.len() > 1 { SHOWN_VALUES } else { usize::MAX };
    for (index, vector) in vectors.iter().enumerate() {
        write!(out, "embedding {index}: ")?;
        for value in vector.iter().take(shown) {
            if integers {
                write!(out, "{value:6.0} ")?;
            } else {
                write!(out, "{value:9.6} ")?;
            }
        }
        writeln!(out)?;
    }
    if vectors.len() > 1 {
        writeln!(out, "\ncosine similarity matrix:\n")?;
        for text in texts {
            write!(out, "{:>6} ", start_of(text, 6))?;
        }
        writeln!(out)?;
        for (row, text) in vectors.iter().zip(texts) {
            for column in vectors {
                write!(out, "{:6.2} ", cosine_similarity(row, column))?;
            }
            writeln!(out, "{}", start_of(text, 10))?;
        }
    }
    Ok(())
}

/// The first characters of a text, control characters (line breaks among them) shown as spaces.
fn start_of(text: &str, characters: usize) -> String {
    text.chars().take(characters).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// `[[..],[..]]`.
pub(crate) fn array(out: &mut impl Write, vectors: &[Vec<f32>], integers: bool) -> io::Result<()> {
    write!(out, "[")?;
    for (index, vector) in vectors.iter().enumerate() {
        if index > 0 {
            write!(out, ",")?;
        }
        json_array(out, vector, integers)?;
    }
    writeln!(out, "]")
}

/// OpenAI's list object, with a matrix of similarities where asked for and there are several vectors.
pub(crate) fn json(out: &mut impl Write, vectors: &[Vec<f32>], integers: bool, similarity: bool) -> io::Result<()> {
    write!(out, "{{\n  \"object\": \"list\",\n  \"data\": [\n")?;
    for (index, vector) in vectors.iter().enumerate() {
        if index > 0 {
            writeln!(out, ",")?;
        }
        write!(out, "    {{\n      \"object\": \"embedding\",\n      \"index\": {index},\n      \"embedding\": ")?;
        json_array(out, vector, integers)?;
        write!(out, "\n    }}")?;
    }
    write!(out, "\n  ]")?;
    if similarity && vectors.len() > 1 {
        write!(out, ",\n  \"cosineSimilarity\": [\n")?;
        for (index, row) in vectors.iter().enumerate() {
            if index > 0 {
                writeln!(out, ",")?;
            }
            let row: Vec<String> =
                vectors.iter().map(|column| format!("{:6.2}", cosine_similarity(row, column))).collect();
            write!(out, "    [{} ]", row.join(", "))?;
        }
        write!(out, "\n  ]")?;
    }
    writeln!(out, "\n}}")
}

/// A line a vector, values with spaces between.
pub(crate) fn raw(out: &mut impl Write, vectors: &[Vec<f32>], integers: bool) -> io::Result<()> {
    for vector in vectors {
        for (index, value) in vector.iter().enumerate() {
            let space = if index > 0 { " " } else { "" };
            if integers {
                write!(out, "{space}{value:.0}")?;
            } else {
                write!(out, "{space}{value:.7}")?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A JSON array of the vector; `{}` prints the shortest decimals that read back as the same f32.
fn json_array(out: &mut impl Write, vector: &[f32], integers: bool) -> io::Result<()> {
    write!(out, "[")?;
    for (index, value) in vector.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        if integers {
            write!(out, "{comma}{value:.0}")?;
        } else {
            write!(out, "{comma}{value}")?;
        }
    }
    write!(out, "]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_restores_every_bit() {
        let vectors = vec![vec![0.1, -1.0 / 3.0, f32::MIN_POSITIVE, 1e-45, 0.0, -0.0, 16777216.0]];
        for (text, pointer) in [
            (print(|out| json(out, &vectors, false, false)), "/data/0/embedding"),
            (print(|out| array(out, &vectors, false)), "/0"),
        ] {
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let read: Vec<u32> = value
                .pointer(pointer)
                .unwrap()
                .as_array()
                .unwrap()
                .iter()
                .map(|value| (value.as_f64().unwrap() as f32).to_bits())
                .collect();
            let bits: Vec<u32> = vectors[0].iter().map(|value| value.to_bits()).collect();
            assert_eq!(read, bits, "{text}");
        }
    }

    #[test]
    fn a_listing_of_one_text_is_whole_and_of_several_is_compared() {
        let one = print(|out| text(out, &["a".into()], &[vec![0.5; 20]], false));
        assert_eq!(one.matches("0.500000").count(), 20);
        let two = print(|out| text(out, &["first text".into(), "b\nc".into()], &vec![vec![0.5; 20]; 2], false));
        assert_eq!(two.matches("0.500000").count(), 32);
        assert!(
            two.ends_with("cosine similarity matrix:\n\nfirst     b c \n  1.00   1.00 first text\n  1.00   1.00 b c\n"),
            "{two:?}"
        );
    }

    #[test]
    fn raw_and_integers() {
        assert_eq!(print(|out| raw(out, &[vec![1.0, -0.25]], false)), "1.0000000 -0.2500000\n");
        assert_eq!(print(|out| raw(out, &[vec![32760.0, -12.4]], true)), "32760 -12\n");
        assert_eq!(print(|out| array(out, &[vec![32760.0], vec![2.0]], true)), "[[32760],[2]]\n");
    }

    #[test]
    fn json_plus_adds_similarities_only_for_several() {
        assert!(!print(|out| json(out, &[vec![1.0]], false, true)).contains("cosineSimilarity"));
        let two = print(|out| json(out, &[vec![1.0], vec![-1.0]], false, true));
        let value: serde_json::Value = serde_json::from_str(&two).unwrap();
        assert_eq!(value["cosineSimilarity"], serde_json::json!([[1.0, -1.0], [-1.0, 1.0]]));
    }
}
