//! Which of some texts is closest to a query:
//! `cargo run --release --example similarity -- MODEL.gguf QUERY TEXT...`

use bitnet_embed::Embedder;
use bitnet_embed::output::cosine_similarity;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, query, texts @ ..] = arguments.as_slice() else {
        return Err("usage: similarity MODEL.gguf QUERY TEXT...".into());
    };
    let embedder = Embedder::open(model)?;
    let query = embedder.embed(&[query])?.remove(0);
    let mut scored: Vec<(f64, &String)> =
        embedder.embed(texts)?.iter().map(|vector| cosine_similarity(&query, vector)).zip(texts).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (similarity, text) in scored {
        println!("{similarity:.4}  {text}");
    }
    Ok(())
}
