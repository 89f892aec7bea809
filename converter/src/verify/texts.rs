//! Texts that take a tokenizer apart.

/// Scripts, digits, contractions, whitespace of every kind, marks that combine, characters without a token, what looks
/// like a special token, and nothing at all.
pub(super) const TEXTS: [&str; 48] = [
    "",
    " ",
    "  ",
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "How do plants make sugar?",
    " leading and trailing ",
    "two  spaces,   three    four",
    "tab\tand\t\ttabs",
    "line\nbreaks\n\n\nand\r\nmore\r\n",
    "\n",
    "\u{a0}no-break\u{2003}em\u{3000}ideographic",
    "don't can't I'll we've they're it's I'm he'd",
    "DON'T I'LL WE'VE",
    "0 1 12 123 1234567890 3.14159 1,000,000",
    "a1b2c3 x86_64 v2.0.1-rc3",
    "snake_case camelCase PascalCase kebab-case SCREAMING",
    "https://example.org/path?query=1&other=%20#fragment",
    "user@example.org",
    "fn main() { println!(\"{}\", 1 << 4); }",
    "def f(x):\n    return x ** 2  # square\n",
    "{\"key\": [1, 2.5, null, true]}",
    "<html><body class='x'>&amp;</body></html>",
    "\\frac{1}{2} \\alpha $x_i^2$",
    "!!!??? ... --- *** ###",
    "(((nested [brackets] {and} <angles>)))",
    "Stra\u{df}e, \u{dc}bung, \u{c4}rger",
    "caf\u{e9} na\u{ef}ve r\u{e9}sum\u{e9}",
    "cafe\u{301} combining e\u{301}\u{323}",
    "\u{212b}ngstr\u{f6}m \u{fb01}ligature \u{2126}",
    "\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442}, \u{43c}\u{438}\u{440}!",
    "\u{39a}\u{3b1}\u{3bb}\u{3b7}\u{3bc}\u{3ad}\u{3c1}\u{3b1} \u{3ba}\u{3cc}\u{3c3}\u{3bc}\u{3b5}",
    "\u{4f60}\u{597d}\u{ff0c}\u{4e16}\u{754c}\u{3002}",
    "\u{3053}\u{3093}\u{306b}\u{3061}\u{306f}\u{3001}\u{4e16}\u{754c}",
    "\u{c548}\u{b155}\u{d558}\u{c138}\u{c694} \u{110b}\u{1161}\u{11ab}",
    "\u{645}\u{631}\u{62d}\u{628}\u{627} \u{628}\u{627}\u{644}\u{639}\u{627}\u{644}\u{645}",
    "\u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{5e2}\u{5d5}\u{5dc}\u{5dd}",
    "\u{928}\u{92e}\u{938}\u{94d}\u{924}\u{947} \u{926}\u{941}\u{928}\u{93f}\u{92f}\u{93e}",
    "\u{e2a}\u{e27}\u{e31}\u{e2a}\u{e14}\u{e35}",
    "\u{1f600} \u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} \u{1f1e9}\u{1f1ea} \u{1f44d}\u{1f3fd}",
    "\u{200b}zero\u{200b}width\u{feff}",
    "\u{1}\u{7f}\u{85}control",
    "\u{10ffff}\u{e000}\u{fffd}",
    "\u{2581}already\u{2581}\u{2581}replaced",
    "<bos> <eos> <pad> <unk> <mask>",
    "<|endoftext|> <|im_start|>user<|im_end|>",
    "<0x41> <0xFF> [PAD5]",
    "pneumonoultramicroscopicsilicovolcanoconiosis antidisestablishmentarianism",
];

/// Those whose vectors are compared.
#[cfg(feature = "embeddings")]
pub(super) const EMBEDDED: [&str; 8] =
    [TEXTS[4], TEXTS[5], TEXTS[14], TEXTS[19], TEXTS[26], TEXTS[32], TEXTS[39], TEXTS[47]];
