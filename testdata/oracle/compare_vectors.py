"""Compares the vectors of two GGUF files of one model, to show what a type of weights costs.

    python compare_vectors.py PROGRAM REFERENCE.gguf FILE.gguf...

PROGRAM is the built bitnet-embed. Per FILE: the least and the mean cosine with the reference, and the largest difference
of two values of unit-length vectors, over 50 texts: strings of ../tokens, from words to mixed scripts. Needs no packages.
"""

import json
import math
import pathlib
import subprocess
import sys

TOKENS = pathlib.Path(__file__).parent.parent / "tokens"
TEXTS = [case["text"] for name in ("qwen", "gemma") for case in json.loads((TOKENS / f"{name}.json").read_text())]
TEXTS = [text for text in dict.fromkeys(TEXTS) if "\0" not in text and len(text.split()) > 1][:50]


def vectors(program, path):
    # The file's own tokenizer decides what surrounds a text; both files have the same one.
    command = [program, "embed", "-m", path, "--embd-output-format", "array"]
    for text in TEXTS:
        command += [f"--prompt={text}"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def main(program, reference, *paths):
    expected = vectors(program, reference)
    print(f"{len(expected)} texts against {pathlib.Path(reference).name}")
    for path in paths:
        found = vectors(program, path)
        cosines = [sum(a * b for a, b in zip(x, y)) / math.hypot(*x) / math.hypot(*y) for x, y in zip(expected, found)]
        largest = max(abs(a - b) for x, y in zip(expected, found) for a, b in zip(x, y))
        print(
            f"{pathlib.Path(path).name}: 1 - cosine at most {1 - min(cosines):.1e}, "
            f"{1 - sum(cosines) / len(cosines):.1e} in the mean, max|d| {largest:.1e}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
