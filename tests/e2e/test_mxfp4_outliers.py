"""Activations that stand out survive the default products with MXFP4 weights."""

import json

from trained_mxfp4 import write_gptoss

MODEL = "models/tiny-trained"
SURVIVAL = 1.02  # of the perplexity with unrounded activations: what the default may cost


def test_default_activations_survive_outliers_behind_mxfp4_experts(pinion, data, tmp_path):
    folder = write_gptoss(data / MODEL, 100, tmp_path / "gptoss")

    def perplexity(*flags):
        done = pinion("score", folder, "--input", data / MODEL / "heldout.txt", "--window", 256, "--kv-cache-space", "64MiB",
                      "--compare", data / MODEL, "--json", *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["perplexity"]

    floats = perplexity("--activations", "float")
    for isa in ("auto", "scalar"):
        assert perplexity("--isa", isa) <= SURVIVAL * floats, isa
