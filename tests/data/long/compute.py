"""The reference of prompts longer than any model's own golden: logits of the last positions.

    pip install torch transformers safetensors
    python tests/data/long/compute.py

writes NAME.golden.json and NAME.golden.safetensors beside itself, in the form of tests/data/models.
"""

import json
import pathlib

import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parent / "models"
POSITIONS, ROWS, MAX_LEN = 4000, 4, 4096


def load(name, dtype):
    # The stored weights know no length; only the configuration limits it.
    config = transformers.AutoConfig.from_pretrained(MODELS / name)
    config.max_position_embeddings = MAX_LEN
    return transformers.AutoModelForCausalLM.from_pretrained(
        MODELS / name, config=config, dtype=dtype, attn_implementation="eager").eval()


def last_logits(model, ids, positions):
    """Of ROWS positions. One forward pass, no cache; the mask says that this is one sequence."""
    with torch.no_grad():
        ids = torch.tensor([ids])
        return model(ids, attention_mask=torch.ones_like(ids), position_ids=positions[None],
                     use_cache=False, logits_to_keep=ROWS).logits[0].float()


def rms(values):
    return values.double().square().mean().sqrt().item()


def compute(name):
    text = (MODELS / "tiny-trained" / "heldout.txt").read_text()
    ids = transformers.AutoTokenizer.from_pretrained(MODELS / name)(text)["input_ids"][:POSITIONS]
    assert len(ids) == POSITIONS
    positions = torch.arange(POSITIONS)
    model = load(name, torch.float32)
    logits = last_logits(model, ids, positions)
    change = {f"positions modulo {n}": rms(last_logits(model, ids, positions % n) - logits)
              / rms(logits) for n in (512, 1024, 2048)}
    exact = last_logits(load(name, torch.float64), ids, positions)
    json.dump({
        "reference": f"transformers {transformers.__version__}, torch {torch.__version__}",
        "max_position_embeddings": MAX_LEN,
        "ablations": change,
        "prompts": [{"input_ids": ids, "logit_rms": rms(logits),
                     "float64_rms_logit_error": rms(logits - exact)}],
    }, open(HERE / f"{name}.golden.json", "w"))
    save_file({"prompt0.logits.float32": logits.contiguous()},
              HERE / f"{name}.golden.safetensors")
    print(name, "float64", rms(logits - exact) / rms(logits), change)


if __name__ == "__main__":
    torch.manual_seed(0)
    for model_name in ("tiny-trained", "gemma3", "llama"):
        compute(model_name)
