"""Reference outputs beside a checkpoint, golden.json and golden.safetensors, and how far logits are from them."""

import array
import functools
import json
import math
import struct


def read_safetensors(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])

    def floats(name):
        begin, end = header[name]["data_offsets"]
        return header[name]["shape"], array.array("f", raw[8 + length + begin:8 + length + end])

    floats.names = set(header)
    return floats


def log_softmax(logits):
    top = max(logits)
    normaliser = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - normaliser for x in logits]


class Fixture:
    def __init__(self, path):
        self.path = path
        beside = path.with_suffix("") if path.suffix == ".gguf" else path / ""
        separator = "." if path.suffix == ".gguf" else "/"
        self.golden = json.loads(open(f"{beside}{separator}golden.json").read())
        self.prompts = self.golden["prompts"]
        self.floats = read_safetensors(type(path)(f"{beside}{separator}golden.safetensors"))
        self.names = self.floats.names

    @functools.lru_cache
    def reference(self, kind):
        """Of each prompt: the vocabulary, the logits of its last rows, those rows' log-probabilities."""
        prompts = []
        for i in range(len(self.prompts)):
            (_, vocabulary), want = self.floats(f"prompt{i}.logits.{kind}")
            prompts.append((vocabulary, want, [log_softmax(want[at:at + vocabulary])
                                               for at in range(0, len(want), vocabulary)]))
        return prompts

    def inputs(self, tmp_path):
        lines = [json.dumps({"input_ids": prompt["input_ids"]}) for prompt in self.prompts]
        path = tmp_path / "in.jsonl"
        path.write_text("\n".join(lines) + "\n")
        return path

    def errors(self, logits, kind):
        """Of the rows that the reference kept, the last ones of each prompt: RMS, and the mean KL
        divergence from the reference in nats."""
        squares = count = 0
        divergences = []
        for i, (vocabulary, want, rows) in enumerate(self.reference(kind)):
            _, got = logits(f"prompt{i}.logits")
            got = got[len(got) - len(want):]
            squares += sum((a - b) ** 2 for a, b in zip(got, want))
            count += len(want)
            for row, p in enumerate(rows):
                q = log_softmax(got[row * vocabulary:(row + 1) * vocabulary])
                divergences.append(sum(math.exp(a) * (a - b) for a, b in zip(p, q)))
        return math.sqrt(squares / count), sum(divergences) / len(divergences)

    def errors_by_prompt(self, logits, kind):
        """The RMS error of each prompt, of the same rows."""
        errors = []
        for i, (_, want, _) in enumerate(self.reference(kind)):
            _, got = logits(f"prompt{i}.logits")
            got = got[len(got) - len(want):]
            errors.append(math.sqrt(sum((a - b) ** 2 for a, b in zip(got, want)) / len(want)))
        return errors

    def bf16_error(self):
        errors = [prompt["bf16_rms_logit_error"] for prompt in self.prompts]
        return math.sqrt(sum(error**2 for error in errors) / len(errors))
