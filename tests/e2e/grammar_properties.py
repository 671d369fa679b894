"""Samples from grammars without a model, at near uniform chances: `grammar_properties.py TOKENIZER [-v]`.

For every schema of JSON Schema's own test suite that is taken, whatever is sampled must parse and validate.
Prints counts, and what did not hold; exits with 1 if anything did not.
"""

import collections
import ctypes
import importlib.util
import json
import pathlib
import random
import re
import sys

import json_schema_suite
import jsonschema
import referencing.exceptions

SAMPLES, MAX_TOKENS = 5, 300

ENVIRONMENT = pathlib.Path(__file__).parents[2] / "build/grammar-env"


def load_helper():
    path = pathlib.Path(__file__).parents[2] / "engine/text/grammar_helper.py"
    sys.path[:0] = [str(ENVIRONMENT), str(path.parent)]
    spec = importlib.util.spec_from_file_location("grammar_helper", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def allowed(row, row_bytes):
    bits = int.from_bytes(row.raw[:row_bytes], "little")
    return [i for i in range(row_bytes * 8) if bits >> i & 1]


def sample(grammars, kind, text, eos, rng):
    """The text, or None if it did not end; ends soon where it may."""
    grammars.begin(0, kind, text)
    row = ctypes.create_string_buffer(grammars.row_bytes)
    out = []
    for _ in range(MAX_TOKENS):
        grammars.write_mask(0, ctypes.addressof(row))
        ids = allowed(row, grammars.row_bytes)
        if not ids:
            raise AssertionError("no token is allowed")
        token = eos if eos in ids and rng.random() < 0.3 else rng.choice(ids)
        if token == eos:
            return grammars.tokenizer.decode_bytes(out).decode("utf-8")
        grammars.take(0, token)
        out.append(token)
    return None


def judge(helper, grammars, validator, schema, eos, rng):
    """One word, and what did not hold."""
    text = json.dumps(schema)
    try:
        grammars.compile("json", text)
    except helper.Refused as refused:
        return "refused", str(refused)
    ended = 0
    for _ in range(SAMPLES):
        try:
            said = sample(grammars, "json", text, eos, rng)
        except helper.Refused as refused:
            return "too costly", str(refused)
        if said is None:
            continue
        ended += 1
        try:
            validator(schema).validate(json.loads(said))
        except (ValueError, jsonschema.ValidationError) as error:
            return "wrong", f"{said!r}: {str(error).splitlines()[0]}"
        except (referencing.exceptions.Unresolvable, re.error):
            return "not judged", "the validator cannot resolve a reference or read a pattern"
    return ("held", "") if ended else ("never ended", "")


def main():
    helper = load_helper()
    eos = 0
    tokenizer = pathlib.Path(sys.argv[1]).read_text()
    vocabulary = len(json.loads(tokenizer)["model"]["vocab"])
    rng = random.Random(20261124)
    grammars = helper.Grammars(tokenizer, vocabulary, [eos])
    counts, wrong, schemas = collections.Counter(), [], set()
    for name, validator, schema in json_schema_suite.groups(json_schema_suite.fetch()):
        verdict, why = judge(helper, grammars, validator, schema, eos, rng)
        counts[verdict] += 1
        if verdict == "held":
            schemas.add(json.dumps(schema))
        if verdict in ("wrong", "too costly", "never ended"):
            wrong.append(f"{verdict}: {name}: {json.dumps(schema)[:200]}: {why}")
        if "-v" in sys.argv and verdict == "refused":
            print(name, why)
    print(*wrong, sep="\n")
    print(dict(counts), "distinct schemas that held:", len(schemas))
    return counts["wrong"] > 0


if __name__ == "__main__":
    sys.exit(main())
