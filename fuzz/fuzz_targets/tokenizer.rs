//! A vocabulary from the metadata of any GGUF file, or from any `tokenizer.json`, and texts through it.
#![no_main]

use bitnet_embed::gguf::GgufFile;
use bitnet_embed::tokenizer::Tokenizer;
use converter::vocab::Vocab;
use libfuzzer_sys::fuzz_target;

const TEXTS: [&str; 6] =
    ["", " a  b\n\nc", "the lazy dog's \u{e9}\u{301}", "\u{2581}<eos>\u{1F415}<0x41>", "123abc", "\u{0}\u{ad}"];

fuzz_target!(|bytes: &[u8]| {
    let tokenizer = match GgufFile::from_owner(bytes) {
        Ok(file) => Tokenizer::from_gguf(file.metadata()),
        Err(_) => {
            let _ = Vocab::from_json(bytes, None, 768);
            let _ = Vocab::id_count(bytes);
            return;
        }
    };
    let Ok(tokenizer) = tokenizer else { return };
    for text in TEXTS {
        let Ok(ids) = tokenizer.encode(text) else { continue };
        assert!(ids.iter().all(|id| (*id as usize) < tokenizer.id_count()));
        let cut = tokenizer.encode_truncated(text, tokenizer.special_count() + 2).expect("room for two tokens");
        assert!(cut.ids.len() <= tokenizer.special_count() + 2);
        assert_eq!(cut.truncated, ids.len() > tokenizer.special_count() + 2);
    }
});
