"""Encoders, embedders and rerankers with quantised linears: `pinion model quantize` writes them, and what `embed` and
`rank` make of them is what their dequantised weights give. No bound is a figure that Pinion once gave."""

import json
import math
import shutil

import numpy as np
import pytest

from checkpoint import Tensor, read_checkpoint, read_quantised, write_file
from test_embed import embeddings_of, golden_of, read_lines, write_lines

FLAGS = ("--dtype", "float32", "--kv-cache-space", "64MiB", "--threads-bind", "nobind")
TARGETS = {"w8a8": (), "awq-int4": ("--group-size", "32"), "gptq-int4": ("--group-size", "32")}
EMBEDDERS = ["bert-mean", "bert-cls", "xlmr", "modernbert", "nomicbert", "embeddinggemma", "qwen3-embedding"]
RERANKERS = ["bert-reranker", "modernbert-reranker", "xlmr-reranker"]
# Of float32 arithmetic on dequantised weights, of the reference's RMS (the fixtures' README).
BOUND = 1e-3


@pytest.fixture
def quantize(pinion, data, tmp_path):
    """quantize(name, target) -> the folder"""

    def run(name, target):
        folder = tmp_path / f"{name}-{target}"
        done = pinion("model", "quantize", data / "embedders" / name, folder, "--to", target, *TARGETS[target])
        assert done.returncode == 0, done.stderr
        return folder

    return run


@pytest.fixture
def outputs(pinion, data, tmp_path):
    """outputs(name, folder, flags...) -> what `embed` or `rank` gives for the golden texts, [texts][elements]"""

    def run(name, folder, *flags):
        _, golden = golden_of(data, name)
        ranks = name in RERANKERS
        texts = [{"query": p["text"][0], "documents": [p["text"][1]]} if ranks else {"input_ids": p["input_ids"]}
                 for p in golden["prompts"]]
        lines = write_lines(tmp_path / "in.jsonl", texts)
        done = pinion("rank" if ranks else "embed", folder, *FLAGS, *flags, "--input", lines)
        assert done.returncode == 0, done.stderr
        if not ranks:
            return np.array([line["embedding"] for line in read_lines(done)])
        return np.array([line["scores"] for line in read_lines(done)])

    return run


def dequantised(original, folder, plain):
    """A copy of the original with the weights that the integers stand for, in float32."""
    shutil.copytree(original, plain, ignore=shutil.ignore_patterns("golden*", "*.bin"))
    linears, rest = read_quantised(folder)
    tensors = dict(rest)
    for module, linear in linears.items():
        tensors[module + ".weight"] = Tensor("F32", linear.weights().astype(np.float32))
    write_file(plain / "model.safetensors", tensors)
    config = json.loads((plain / "config.json").read_text())
    config["torch_dtype"] = config["dtype"] = "float32"
    (plain / "config.json").write_text(json.dumps(config))
    return plain


def relative(got, wanted):
    return np.sqrt(((got - wanted)**2).mean() / (wanted**2).mean())


# ---- BERT, from its paper (arXiv:1810.04805) and the checkpoint's names, in float64.


def layer_norm(x, tensors, name, epsilon):
    x = x - x.mean(1, keepdims=True)
    x /= np.sqrt((x**2).mean(1, keepdims=True) + epsilon)
    return x * tensors[name + ".weight"].values + tensors[name + ".bias"].values


def gelu(x):
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


def bert_mean(config, tensors, weights_of, rounds, ids):
    """The mean of the last hidden states. weights_of(module): a linear's weights. rounds: a linear's inputs are
    rounded to int8, a step for each token."""

    def linear(x, module):
        if rounds:
            steps = abs(x).max(1, keepdims=True) / 127
            x = np.round(x / steps) * steps
        return x @ weights_of(module).T + tensors[module + ".bias"].values

    def norm(x, name):
        return layer_norm(x, tensors, name, config["layer_norm_eps"])

    heads, parts = config["num_attention_heads"], ("word", "position", "token_type")
    word, position, kind = (tensors[f"embeddings.{part}_embeddings.weight"].values.astype(float) for part in parts)
    x = norm(word[ids] + position[:len(ids)] + kind[0], "embeddings.LayerNorm")
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}."
        q, k, v = (linear(x, f"{layer}attention.self.{part}").reshape(len(ids), heads, -1).swapaxes(0, 1)
                   for part in ("query", "key", "value"))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2])
        chances = np.exp(scores - scores.max(2, keepdims=True))
        chances /= chances.sum(2, keepdims=True)
        attended = (chances @ v).swapaxes(0, 1).reshape(len(ids), -1)
        x = norm(x + linear(attended, layer + "attention.output.dense"), layer + "attention.output.LayerNorm")
        middle = gelu(linear(x, layer + "intermediate.dense"))
        x = norm(x + linear(middle, layer + "output.dense"), layer + "output.LayerNorm")
    return x.mean(0)


def bert_with(data, tensors, weights, rounds=False):
    """The outputs of the formulas for the golden texts with these weights of linears, by module."""
    original, golden = golden_of(data, "bert-mean")
    config = json.loads((original / "config.json").read_text())
    tensors, weights = ({name.removeprefix("bert."): value for name, value in found.items()}
                        for found in (tensors, weights))
    got = np.array([bert_mean(config, tensors, weights.get, rounds, p["input_ids"]) for p in golden["prompts"]])
    return got / np.linalg.norm(got, axis=1, keepdims=True) if golden["normalised"] else got


def bert_of(data, folder, rounds=False):
    linears, tensors = read_quantised(folder)
    return bert_with(data, tensors, {module: linear.weights().astype(float) for module, linear in linears.items()},
                     rounds)


def linears_of(tensors):
    return {name.removesuffix(".weight"): tensor.values.astype(float) for name, tensor in tensors.items()
            if name.startswith("encoder.") and name.endswith(".weight") and tensor.values.ndim == 2}


def test_the_formulas_are_those_of_the_reference(data):
    folder = data / "embedders/bert-mean"
    tensors = read_checkpoint(folder)
    assert relative(bert_with(data, tensors, linears_of(tensors)), embeddings_of(folder)) < 1e-5


@pytest.mark.parametrize("target", TARGETS)
def test_a_quantised_encoder_follows_the_formulas_of_its_file(quantize, outputs, data, target):
    folder = quantize("bert-mean", target)
    assert relative(outputs("bert-mean", folder, "--activations", "float"), bert_of(data, folder)) <= BOUND


def test_activations_cost_no_more_than_their_rounding(quantize, outputs, data):
    """The engine's own distance from the reference is that of the rounded formulas, but for roundings of single
    activations that fall the other way, each a step of many."""
    folder = quantize("bert-mean", "w8a8")
    plain, rounded = bert_of(data, folder), bert_of(data, folder, rounds=True)
    got = outputs("bert-mean", folder)
    assert relative(got, rounded) < relative(rounded, plain) / 2
    reference = embeddings_of(data / "embedders/bert-mean")
    assert relative(got, reference) <= relative(rounded, reference) + relative(rounded, plain) / 2


# ---- Formats that Pinion reads and does not write, as compressed-tensors publishes them.


def bfloat16(values):
    return (np.asarray(values, np.float32).view(np.uint32) + 0x8000 & 0xffff0000).view(np.float32)


def packed_int4(weights):
    """(tensors by suffix, the weights that they stand for): symmetric, groups of 32, stored plus 8."""
    groups = weights.reshape(len(weights), -1, 32)
    scales = bfloat16(abs(groups).max(2) / 7)
    codes = np.clip(np.round(groups / scales[..., None]), -8, 7)
    nibbles = (codes + 8).astype(np.uint32).reshape(len(weights), -1, 8)
    words = (nibbles << np.arange(0, 32, 4, dtype=np.uint32)).sum(2, dtype=np.uint32).view(np.int32)
    tensors = {"weight_packed": Tensor("I32", words), "weight_scale": Tensor("BF16", scales),
               "weight_shape": Tensor("I64", np.array(weights.shape))}
    return tensors, (codes * scales[..., None]).reshape(weights.shape)


def e4m3():
    """The value of each byte; NaN is as far away as nothing else."""
    codes = np.arange(256)
    exponents, mantissas = codes >> 3 & 15, codes & 7
    values = np.where(exponents == 0, mantissas / 8 * 2.0**-6, (1 + mantissas / 8) * 2.0**(exponents - 7))
    values[codes & 127 == 127] = 1e9
    return np.where(codes < 128, values, -values)


def fp8_by_row(weights):
    scales = bfloat16(abs(weights).max(1, keepdims=True) / 448)
    table = e4m3()
    codes = abs((weights / scales)[..., None] - table).argmin(2)
    return {"weight": Tensor("F8_E4M3", codes), "weight_scale": Tensor("BF16", scales)}, table[codes] * scales


@pytest.mark.parametrize(("like", "publish"), [("llama-w4a16", packed_int4), ("llama-fp8-channel", fp8_by_row)])
def test_an_encoder_as_compressed_tensors_publishes_it(outputs, data, tmp_path, like, publish):
    folder, original = tmp_path / like, data / "embedders/bert-mean"
    shutil.copytree(original, folder, ignore=shutil.ignore_patterns("golden*", "*.safetensors"))
    tensors = read_checkpoint(original)
    published, stands_for = dict(tensors), {}
    for module, weights in linears_of(tensors).items():
        del published[module + ".weight"]
        parts, stands_for[module] = publish(weights)
        published |= {f"{module}.{suffix}": part for suffix, part in parts.items()}
    write_file(folder / "model.safetensors", published)
    config = json.loads((folder / "config.json").read_text())
    published_like = json.loads((data / "quantised" / like / "config.json").read_text())
    config["quantization_config"] = published_like["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    got = outputs("bert-mean", folder, "--activations", "float")
    assert relative(got, bert_with(data, tensors, stands_for)) <= BOUND
    assert 100 * BOUND < relative(got, embeddings_of(original)) < 1, "the rounding is there"


# Architectures whose plain weights have been compared with the reference (test_embed.py).
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", EMBEDDERS + RERANKERS)
def test_quantised_linears_count_as_the_weights_that_they_stand_for(quantize, outputs, data, tmp_path, name, target):
    folder = quantize(name, target)
    plain = dequantised(data / "embedders" / name, folder, tmp_path / "plain")
    assert relative(outputs(name, folder, "--activations", "float"), outputs(name, plain)) <= BOUND


@pytest.mark.parametrize("name", RERANKERS)
def test_a_classifier_stays_as_it_is(quantize, data, name):
    linears, rest = read_quantised(quantize(name, "gptq-int4"))
    before = read_checkpoint(data / "embedders" / name)
    kept = [module for module in before if "classifier" in module or "pooler" in module or module.startswith("head.")]
    assert kept and linears
    for module in kept:
        assert (rest[module].values == before[module].values).all()


def test_an_embedders_modules_come_along(quantize, data):
    folder, original = quantize("embeddinggemma", "w8a8"), data / "embedders/embeddinggemma"
    for module in json.loads((original / "modules.json").read_text()):
        here = original / module["path"]
        for path in here.iterdir() if module["path"] and here.is_dir() else ():
            assert (folder / module["path"] / path.name).read_bytes() == path.read_bytes()


def test_calibration_of_an_encoder_is_refused(pinion, data, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("some text")
    done = pinion("model", "quantize", data / "embedders/bert-mean", tmp_path / "out", "--to", "gptq-int4",
                  "--group-size", "32", "--calibration", text)
    assert done.returncode == 2
    assert "BertModel" in done.stderr and "leave out --calibration" in done.stderr
    assert not (tmp_path / "out").exists()
