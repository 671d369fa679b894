"""The trained Llama fixture as a GPT-OSS model with MXFP4 experts, of which there is no trained one.

One expert whose SwiGLU is neither clamped nor sharpened, and whose up bias of -1 undoes GPT-OSS's + 1, is Llama's MLP;
sinks far below every score take nothing from attention. `FACTOR` makes 4 channels behind each MLP's norm that much larger
and the weights that read them that much smaller. Alone: trained_mxfp4.py FIXTURE FACTOR DIR
"""

import json
import pathlib
import random
import shutil
import sys

import numpy as np

from checkpoint import Tensor, read_file, write_file

GRID = np.array([0, .5, 1, 1.5, 2, 3, 4, 6], np.float32)  # of e2m1; codes from 8 on are the negatives


def mxfp4(weight):
    """Blocks and scales of [outputs, inputs], each block's largest magnitude between 4 and 8 steps."""
    blocks = weight.reshape(len(weight), -1, 32)
    exponents = np.floor(np.log2(np.maximum(np.abs(blocks).max(-1), 1e-30))) - 2
    steps = blocks / np.exp2(exponents)[..., None]
    codes = np.abs(np.abs(steps)[..., None] - GRID).argmin(-1) + 8 * (steps < 0)
    packed = codes[..., 0::2] | codes[..., 1::2] << 4
    return Tensor("U8", packed[None].astype(np.uint8)), Tensor("U8", (exponents + 127)[None].astype(np.uint8))


def experts_of(mlp, gate, up, down):
    """The tensors of a layer's only expert; gate and up rows alternate."""
    both = np.stack([gate, up], 1).reshape(-1, gate.shape[1])
    tensors = {f"{mlp}.router.weight": Tensor("F32", np.zeros((1, gate.shape[1]))),
               f"{mlp}.router.bias": Tensor("F32", np.zeros(1)),
               f"{mlp}.experts.gate_up_proj_bias": Tensor("F32", np.tile([0., -1.], len(gate))[None]),
               f"{mlp}.experts.down_proj_bias": Tensor("F32", np.zeros((1, len(down))))}
    for name, weight in (("gate_up_proj", both), ("down_proj", down)):
        tensors[f"{mlp}.experts.{name}_blocks"], tensors[f"{mlp}.experts.{name}_scales"] = mxfp4(weight)
    return tensors


def write_gptoss(original, factor, folder):
    shutil.copytree(original, folder)
    stored = read_file(original / "model.safetensors")
    config = json.loads((original / "config.json").read_text())
    channels = random.Random(19).sample(range(config["hidden_size"]), 4)
    tensors = {name: tensor for name, tensor in stored.items() if ".mlp." not in name}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        norm = stored[f"{prefix}.post_attention_layernorm.weight"].values.copy()
        norm[channels] *= factor
        tensors[f"{prefix}.post_attention_layernorm.weight"] = Tensor("F32", norm)
        gate, up, down = (stored[f"{prefix}.mlp.{name}_proj.weight"].values.copy() for name in ("gate", "up", "down"))
        gate[:, channels] /= factor
        up[:, channels] /= factor
        tensors[f"{prefix}.self_attn.sinks"] = Tensor("F32", np.full(config["num_attention_heads"], -1e4))
        tensors |= experts_of(f"{prefix}.mlp", gate, up, down)
    write_file(folder / "model.safetensors", tensors)
    config.update(architectures=["GptOssForCausalLM"], model_type="gpt_oss", num_local_experts=1, num_experts_per_tok=1,
                  swiglu_alpha=1.0, swiglu_limit=1e6, layer_types=["full_attention"] * config["num_hidden_layers"],
                  quantization_config={"quant_method": "mxfp4"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


if __name__ == "__main__":
    write_gptoss(pathlib.Path(sys.argv[1]), float(sys.argv[2]), pathlib.Path(sys.argv[3]))
