"""Compares the token ids of a GGUF file with the `tokenizers` package.

    python token_ids.py PROGRAM FILE.gguf TOKENIZER.json

PROGRAM is the built bitnet-embed. The texts are those of testdata/tokens. Needs tokenizers.
"""

import json
import pathlib
import subprocess
import sys

from tokenizers import Tokenizer

program, file, tokenizer_json = sys.argv[1:]
tokenizer = Tokenizer.from_file(tokenizer_json)
tokenizer.no_padding()
tokenizer.no_truncation()
texts = set()
for path in sorted((pathlib.Path(__file__).parent.parent / "tokens").glob("*.json")):
    texts.update(case["text"] for case in json.loads(path.read_text("utf-8")))
# A command's argument cannot hold NUL.
texts = sorted(text for text in texts if "\0" not in text)
for text in texts:
    call = [program, "tokenize", "-m", file, "--json", "-p", text]
    found = json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE).stdout)
    expected = tokenizer.encode(text).ids
    if found != expected:
        sys.exit(f"{text!r}\nexpected {expected}\nfound    {found}")
print(f"{len(texts)} texts have the same ids")
