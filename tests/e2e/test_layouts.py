"""Checkpoints as transformers 5.24 saves them: the fixtures, rewritten into its layouts, give the fixtures' logits."""

import json
import shutil

import numpy as np

import checkpoint


def rewritten(data, tmp_path, name, tensors, change):
    """A copy of a fixture with its tensors and config.json passed through `tensors` and `change`."""
    folder = tmp_path / name
    shutil.copytree(data / "models" / name, folder)
    stored = tensors(checkpoint.read_checkpoint(folder))
    for path in folder.glob("model*.safetensors*"):
        path.unlink()
    checkpoint.write_file(folder / "model.safetensors", stored)
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def logits(pinion, folder, tmp_path):
    ids = tmp_path / "ids.jsonl"
    ids.write_text(json.dumps({"input_ids": [5 + 3 * i for i in range(40)]}) + "\n")
    written = tmp_path / "logits.safetensors"
    done = pinion("score", folder, "--input", ids, "--logits", written, "--output", tmp_path / "scores.jsonl",
                  "--dtype", "float32", "--kv-cache-space", "64MiB")
    assert done.returncode == 0, done.stderr
    return checkpoint.read_file(written)["prompt0.logits"].values


def same_logits(pinion, data, tmp_path, name, tensors=lambda stored: stored, change=lambda config: None):
    folder = rewritten(data, tmp_path, name, tensors, change)
    return np.array_equal(logits(pinion, data / "models" / name, tmp_path), logits(pinion, folder, tmp_path))


def test_experts_of_qwen_3_5_may_be_stored_apart(pinion, data, tmp_path):
    def apart(stored):
        tensors = {}
        for name, (kind, values) in stored.items():
            module, _, part = name.rpartition(".")
            if not module.endswith("mlp.experts"):
                tensors[name] = checkpoint.Tensor(kind, values)
                continue
            for expert, matrix in enumerate(values):
                halves = {"down_proj": matrix}
                if part == "gate_up_proj":
                    halves = dict(zip(("gate_proj", "up_proj"), np.split(matrix, 2)))
                for own, rows in halves.items():
                    tensors[f"{module}.{expert}.{own}.weight"] = checkpoint.Tensor(kind, rows)
        assert len(tensors) > len(stored)
        return tensors

    assert same_logits(pinion, data, tmp_path, "qwen3.5-moe", apart)


def test_kimi_linear_as_transformers_writes_it(pinion, data, tmp_path):
    def renamed(stored):
        return {name.replace("layers.0.mlp.", "layers.0.block_sparse_moe."): tensor for name, tensor in stored.items()}

    def beside_the_others(config):
        own = config.pop("linear_attn_config")
        config.update(linear_num_heads=own["num_heads"], linear_head_dim=own["head_dim"],
                      linear_conv_kernel_dim=own["short_conv_kernel_size"])
        config["layer_types"] = ["linear_attention" if layer in own["kda_layers"] else "full_attention"
                                 for layer in range(1, config["num_hidden_layers"] + 1)]
        dense = config.pop("first_k_dense_replace")
        config["mlp_layer_types"] = ["dense" if layer < dense else "sparse" for layer in range(config["num_hidden_layers"])]

    assert same_logits(pinion, data, tmp_path, "kimi-linear", renamed, beside_the_others)


def test_gemma_4_with_heads_layer_by_layer(pinion, data, tmp_path):
    def layer_by_layer(config):
        own = {"head_dim": config.pop("global_head_dim"), "num_key_value_heads": config.pop("num_global_key_value_heads")}
        config["per_layer_config"] = {str(layer): own for layer, kind in enumerate(config["layer_types"])
                                      if kind == "full_attention"}

    assert same_logits(pinion, data, tmp_path, "gemma4-dense", change=layer_by_layer)
