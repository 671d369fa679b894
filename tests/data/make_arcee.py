"""Makes models/arcee: a small checkpoint with random weights and the outputs of transformers' Arcee, in float32.

    pip install torch transformers safetensors
    python tests/data/make_arcee.py

The tokenizer, and what the golden says of it, are those of models/seedoss.
"""

import json
import pathlib
import shutil

import torch
import transformers
from safetensors.torch import save_file

MODELS = pathlib.Path(__file__).resolve().parent / "models"
FOLDER, TOKENIZER = MODELS / "arcee", MODELS / "seedoss"
SEED, TOKENS, ROWS = 3912, 32, 40
CONFIG = transformers.ArceeConfig(
    vocab_size=448, hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=24, max_position_embeddings=2048, bos_token_id=0, eos_token_id=2,
    rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 16.0, "beta_fast": 32.0, "beta_slow": 1.0,
                     "original_max_position_embeddings": 128})


def save_checkpoint():
    torch.manual_seed(SEED)
    model = transformers.ArceeForCausalLM(CONFIG)
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            torch.nn.init.normal_(weight, mean=1, std=0.2)
        else:
            torch.nn.init.normal_(weight, std=1.6 / weight.shape[1]**0.5)
    model.to(torch.bfloat16).save_pretrained(FOLDER)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER / name, FOLDER)


def load(dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=dtype, attn_implementation="eager").eval()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0].float()


def greedy(model, ids):
    """Ids, the five best with their log-probabilities, and the smallest distance of the best two."""
    chosen, best = [], []
    for _ in range(TOKENS):
        top = torch.log_softmax(logits_of(model, ids + chosen)[-1].double(), 0).topk(5)
        best.append([[int(id), round(float(value), 6)] for id, value in zip(top.indices, top.values)])
        chosen.append(int(top.indices[0]))
    return chosen, best, min(each[0][1] - each[1][1] for each in best)


def rms(values):
    return float(values.double().square().mean().sqrt())


def main():
    save_checkpoint()
    exact, rounded = load(torch.float32), load(torch.bfloat16)
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    golden = json.loads((TOKENIZER / "golden.json").read_text())
    tensors, prompts = {}, []
    for i, text in enumerate(prompt["text"] for prompt in golden["prompts"]):
        ids = tokenizer(text)["input_ids"]
        chosen, best, gap = greedy(exact, ids)
        logits = logits_of(exact, ids)[-ROWS:]
        error = logits_of(rounded, ids)[-ROWS:] - logits
        tensors[f"prompt{i}.logits.float32"] = logits.contiguous()
        prompts.append({"text": text, "input_ids": ids, "greedy_ids": chosen,
                        "greedy_text": tokenizer.decode(chosen, skip_special_tokens=True), "top5_logprobs": best,
                        "min_gap_nats": gap, "bf16_max_abs_logit_error": float(error.abs().max()),
                        "bf16_rms_logit_error": rms(error), "logit_rms": rms(logits)})
        print(len(ids), "tokens: smallest gap", gap, "logits", rms(logits), "bf16 error", rms(error))
    golden = {"prompts": prompts, "chats": golden["chats"], "tokenization": golden["tokenization"],
              "transformers": transformers.__version__, "torch": torch.__version__,
              "architecture": "ArceeForCausalLM", "seed": SEED}
    (FOLDER / "golden.json").write_text(json.dumps(golden, ensure_ascii=False))
    save_file(tensors, FOLDER / "golden.safetensors")


if __name__ == "__main__":
    main()
