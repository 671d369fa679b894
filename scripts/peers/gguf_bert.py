"""Writes a BERT of `pinion model make` as a GGUF file, so that llama.cpp embeds with the same weights."""

import json
import re

from peers import gguf

OUTER = {"word_embeddings": "token_embd", "position_embeddings": "position_embd",
         "token_type_embeddings": "token_types", "LayerNorm": "token_embd_norm"}
INNER = {"attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
         "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm"}
ADDED = ("position_embd", "token_types")  # to the tokens' rows, by llama.cpp in float32
MEAN = 1  # pooling_type


def gguf_name(name):
    """bert.encoder.layer.3.output.dense.bias -> blk.3.ffn_down.bias."""
    stem, _, kind = name.rpartition(".")
    layer = re.fullmatch(r"bert\.encoder\.layer\.(\d+)\.(.*)", stem)
    known = INNER.get(layer[2]) if layer else OUTER.get(stem.removeprefix("bert.embeddings."))
    if not known:
        raise gguf.Unsupported(f"{name} has no name in a GGUF file")
    return f"blk.{layer[1]}.{known}.{kind}" if layer else f"{known}.{kind}"


def converted(tensors):
    """Tensors: matrices as they are; vectors, and tables of which rows are added, in float32."""
    for name, (shape, data) in tensors.items():
        name = gguf_name(name)
        widened = len(shape) == 1 or name.startswith(ADDED)
        data = gguf.as_f32(data) if widened else data
        yield gguf.Tensor(name, shape, gguf.TENSOR_F32 if widened else gguf.TENSOR_BF16, len(data), [data])


def metadata(folder, config):
    """key -> (type, value), or (ARRAY, type, values)."""
    keys = {"general.architecture": (gguf.STRING, "bert"), **gguf.tokenizer_metadata(folder, config),
            "tokenizer.ggml.token_type_count": (gguf.U32, config["type_vocab_size"])}
    for key, kind, value in [
            ("block_count", gguf.U32, config["num_hidden_layers"]),
            ("context_length", gguf.U32, config["max_position_embeddings"]),
            ("embedding_length", gguf.U32, config["hidden_size"]),
            ("feed_forward_length", gguf.U32, config["intermediate_size"]),
            ("attention.head_count", gguf.U32, config["num_attention_heads"]),
            ("attention.layer_norm_epsilon", gguf.F32, config["layer_norm_eps"]),
            ("attention.causal", gguf.BOOL, False),
            ("pooling_type", gguf.U32, MEAN)]:
        keys[f"bert.{key}"] = (kind, value)
    return keys


def write_gguf(folder, path):
    """Makes `path` of the checkpoint in `folder`."""
    config = json.loads((folder / "config.json").read_text())
    if config["architectures"] != ["BertModel"]:
        raise gguf.Unsupported(f"it is a {config['architectures'][0]}, and embeddings are compared with a BertModel")
    gguf.write_file(path, metadata(folder, config), list(converted(gguf.read_tensors(folder))))
