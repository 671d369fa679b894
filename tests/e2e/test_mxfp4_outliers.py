"""Activations that stand out survive the default products with MXFP4 weights."""

import json

from trained_mxfp4 import write_gptoss

MODEL = "models/tiny-trained"
SURVIVAL = 1.02  # of the perplexity with unrounded activations: what the default may cost


def test_default_activations_survive_outliers_behind_mxfp4_experts(pinion, data, tmp_path):
    folder = write_gptoss(data / MODEL, 100, tmp_path / "gptoss")
    logits = tmp_path / "original.safetensors"  # of which no perplexity of the copy depends: computed once

    def score(model, *flags):
        done = pinion("score", model, "--input", data / MODEL / "heldout.txt", "--window", 256, "--kv-cache-space", "64MiB",
                      *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout

    score(data / MODEL, "--logits", logits, "--output", tmp_path / "original.jsonl")

    def perplexity(*flags):
        return json.loads(score(folder, "--compare", logits, "--json", *flags))["perplexity"]

    floats = perplexity("--activations", "float")
    for isa in ("auto", "scalar"):
        assert perplexity("--isa", isa) <= SURVIVAL * floats, isa
