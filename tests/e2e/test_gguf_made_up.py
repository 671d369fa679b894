"""scripts/peers/gguf_made_up.py: files of made-up mixtures are whole, and values have the deviations asked for."""

import json
import math
import sys

import numpy as np
import pytest

from conftest import TOP

sys.path.insert(0, str(TOP / "scripts"))
from peers import gguf_made_up  # noqa: E402

COMMON = {"intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
          "head_dim": 64, "vocab_size": 512, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "bos_token_id": 1,
          "eos_token_id": 2, "torch_dtype": "bfloat16", "tie_word_embeddings": False, "hidden_act": "silu",
          "num_experts_per_tok": 4}
MIXTURES = {
    "qwen3moe": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "moe_intermediate_size": 64,
                 "num_experts": 16, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
                 "rope_theta": 1e6},
    "gpt-oss": {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": 16,
                "attention_bias": True, "sliding_window": 128, "swiglu_limit": 7.0, "rope_theta": 150000,
                "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                 "truncate": False, "original_max_position_embeddings": 4096}},
}


@pytest.fixture
def few_blocks(monkeypatch):
    monkeypatch.setattr(gguf_made_up, "BLOCKS", 10_007)
    for pool in (gguf_made_up.block_pool, gguf_made_up.float_pool):
        pool.cache_clear()
    yield
    for pool in (gguf_made_up.block_pool, gguf_made_up.float_pool):
        pool.cache_clear()


# Hidden sizes with and without a head of Q6_K in a file of Q4_0.
@pytest.mark.parametrize("hidden", [256, 192])
@pytest.mark.parametrize("kind", gguf_made_up.FORMATS)
@pytest.mark.parametrize("name", MIXTURES)
def test_a_made_up_file_loads_and_its_logits_vary_as_made_up_weights_do(name, kind, hidden, few_blocks, pinion,
                                                                        tmp_path):
    config, folder, made = tmp_path / "config.json", tmp_path / "folder", tmp_path / "made.gguf"
    config.write_text(json.dumps(COMMON | MIXTURES[name] | {"hidden_size": hidden}))
    assert pinion("model", "make", "--config", config, folder).returncode == 0
    gguf_made_up.write_made_up(folder, 3, kind, made)
    text = tmp_path / "text.txt"
    text.write_text("The quick brown fox jumps over the lazy dog, and then it does so again. " * 20)
    done = pinion("score", made, "--input", text, "--window", "256", "--kv-cache-space", "64MiB")
    assert done.returncode == 0, done.stderr
    # Independent logits of variance 1 give a loss of ln(vocabulary) + 1/2; twice the deviation gives 3/2 more. The
    # sentence has some 30 different tokens, each with an error of 1 nat or so: 0.2 in their mean.
    loss = math.log(json.loads(done.stdout.splitlines()[-1])["perplexity"])
    assert loss == pytest.approx(math.log(COMMON["vocab_size"]) + 0.5, abs=0.6)


# ---- Values, by the published definitions of the blocks ------------------------------------------


def scale(blocks, first):
    return blocks[:, first:first + 2].copy().view(np.float16).astype(np.float64)


def halves(packed):
    """4-bit codes: the lower halves of all bytes come first."""
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.int64)


def q4_0(blocks):
    return scale(blocks, 0) * (halves(blocks[:, 2:]) - 8)


def q8_0(blocks):
    return scale(blocks, 0) * blocks[:, 2:].copy().view(np.int8)


def mxfp4(blocks):
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    return 2.0 ** (blocks[:, :1].astype(np.float64) - 127) * np.concatenate([levels, -levels])[halves(blocks[:, 1:])]


def q6_k(blocks):
    columns = []
    for half in range(2):
        low, high = blocks[:, 64 * half:64 * half + 64], blocks[:, 128 + 32 * half:160 + 32 * half]
        nibbles = [low[:, :32] & 15, low[:, 32:] & 15, low[:, :32] >> 4, low[:, 32:] >> 4]
        columns += [nibble | (high >> 2 * part & 3) << 4 for part, nibble in enumerate(nibbles)]
    scales = np.repeat(blocks[:, 192:208].copy().view(np.int8).astype(np.float64), 16, axis=1)
    return scale(blocks, 208) * scales * (np.concatenate(columns, axis=1).astype(np.int64) - 32)


@pytest.mark.parametrize("kind, values", [("Q4_0", q4_0), ("Q8_0", q8_0), ("Q6_K", q6_k), ("MXFP4", mxfp4)])
@pytest.mark.parametrize("inputs", [768, 2048, 2880])
def test_values_have_the_deviation_asked_for_and_no_mean(kind, values, inputs, few_blocks):
    deviation = 1 / math.sqrt(inputs)
    pool = gguf_made_up.block_pool(getattr(gguf_made_up, kind), deviation)
    made = values(np.frombuffer(pool, np.uint8).reshape(gguf_made_up.BLOCKS, -1))
    assert made.shape[1] == getattr(gguf_made_up, kind).values
    # float16 rounds the scale by 2^-11 at most, the chance of a power of two is a multiple of 1/256.
    assert made.std() == pytest.approx(deviation, rel=0.01)
    assert abs(made.mean()) < 0.01 * deviation
