"""GGUF files of every architecture, as llama.cpp's converter writes them, against the reference outputs of the
checkpoints that they were made of; and files in parts."""

import gzip
import json
import math
import shutil
import struct

import pytest

from gguf_encoders import ARCHITECTURES as ENCODERS
from gguf_files import write_gguf
from reference_outputs import read_safetensors
from test_gguf_encoders import EMBEDDERS
from test_quantised import SMALL

# Architecture and variant of the file, by the checkpoint it was made of. Not Mistral's first models: GGUF files lose
# their window.
MODELS = ["llama", "llama2", "mixtral", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "phi3", "phi3-longrope",
          "phi4-mini", "granite", "olmo2", "olmo3", "smollm3", "seedoss", "gptoss", "deepseekv2", "deepseekv3", "glm4",
          "glm4-moe", "ernie4.5", "ernie4.5-moe", "cohere2", "exaone4", "minimax-m2", "hunyuan", "hunyuan-moe", "lfm2",
          "lfm2-moe", "qwen3.5", "qwen3.5-text", "qwen3.5-moe", "qwen3next", "gemma4-e", "gemma4-moe", "gemma4-dense",
          "gemma3n", "granite4", "bamba", "nemotronh", "nemotronh-moe", "falconh1", "ministral3", "arcee",
          "deepseekv3.2", "glm4-moe-lite", "kimi-linear"]
# Files do not state the lengths of Llama 4, so the checkpoint with those of the published models takes the reference's
# place: fields of its config.json.
WITH_LENGTHS = {"llama4": {"attention_chunk_size": 8192, "floor_scale": 8192}}
# Of float32 logits, as for the checkpoints themselves.
TOLERANCE = 3e-4
PARTS = [f"qwen3-{part:05}-of-00003" for part in (1, 2, 3)]


def logits_of(pinion, model, prompts, folder):
    """Each prompt's float32 logits, one position after the other."""
    source, logits = folder / "in.jsonl", folder / "logits.safetensors"
    source.write_text("".join(json.dumps({"input_ids": prompt["input_ids"]}) + "\n" for prompt in prompts))
    done = pinion("score", model, "--input", source, "--logits", logits, "--output", folder / "scores.jsonl",
                  "--dtype", "float32", *SMALL)
    assert done.returncode == 0, done.stderr
    read = read_safetensors(logits)
    return [read(f"prompt{i}.logits")[1] for i in range(len(prompts))]


def error_of(found, reference):
    """The largest error of the last logits over the RMS of the reference's."""
    assert all(map(math.isfinite, found))
    rms = math.sqrt(sum(value**2 for value in reference) / len(reference))
    found = found[len(found) - len(reference):]
    return max(abs(a - b) for a, b in zip(found, reference, strict=True)) / rms


def worst_error(pinion, data, model, path, folder):
    """Of the logits of all golden prompts."""
    prompts = json.loads((data / "models" / model / "golden.json").read_text())["prompts"]
    want = read_safetensors(data / "models" / model / "golden.safetensors")
    return max(error_of(found, want(f"prompt{i}.logits.float32")[1])
               for i, found in enumerate(logits_of(pinion, path, prompts, folder)))


def architecture_in(pinion_json, model):
    """As which Pinion reads a file or a folder."""
    return pinion_json("model", "info", model, "--json")["architecture"]


@pytest.mark.parametrize("model", MODELS)
def test_a_file_of_every_architecture_gives_the_references_logits(pinion, pinion_json, data, tmp_path, model):
    path = tmp_path / f"{model}.gguf"
    write_gguf(data, model, path)
    assert worst_error(pinion, data, model, path, tmp_path) <= TOLERANCE
    info = pinion("model", "info", path)
    assert info.returncode == 0, info.stderr
    assert architecture_in(pinion_json, path) == architecture_in(pinion_json, data / "models" / model)


def test_a_file_of_mistral_small_3_gives_the_logits_of_the_llama_that_it_computes_as(pinion, pinion_json, data,
                                                                                     tmp_path):
    """Its architecture in GGUF files is Ministral 3's, without that one's scales."""
    path = tmp_path / "mistral-small3.gguf"
    write_gguf(data, "mistral-small3", path, "llama2")
    assert worst_error(pinion, data, "llama2", path, tmp_path) <= TOLERANCE
    assert architecture_in(pinion_json, path) == "MistralForCausalLM"


@pytest.mark.parametrize("model", WITH_LENGTHS)
def test_a_file_without_lengths_gives_the_checkpoints_logits(pinion, data, tmp_path, model):
    folder, path = tmp_path / model, tmp_path / f"{model}.gguf"
    write_gguf(data, model, path)
    shutil.copytree(data / "models" / model, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | WITH_LENGTHS[model]))
    prompts = json.loads((folder / "golden.json").read_text())["prompts"]
    want, got = (logits_of(pinion, each, prompts, tmp_path) for each in (folder, path))
    assert max(map(error_of, got, want)) <= TOLERANCE


def architecture_of(data, recipe):
    """The header of a recipe's file."""
    head = bytes.fromhex(json.loads(gzip.open(data / "gguf" / f"{recipe}.json.gz").read())["head"])
    key = b"general.architecture"
    length, = struct.unpack_from("<Q", head, head.index(key) + len(key) + 4)
    at = head.index(key) + len(key) + 12
    return head[at:at + length].decode()


def test_a_file_of_every_architecture_that_the_registry_lists_is_tested(pinion_json, data):
    """With each of the architectures as which files of that name are read."""
    rows = pinion_json("describe-registries")["gguf_table"].splitlines()[2:]
    listed = {(name, model) for name, *models in (row.split("`")[1::2] for row in rows) for model in models}
    generative = {pair for pair in listed if pair[1].endswith("ForCausalLM")}
    tested = {(architecture_of(data, model), architecture_in(pinion_json, data / "models" / model))
              for model in MODELS + list(WITH_LENGTHS)}
    assert len(listed) > 40 and generative == tested | {("mistral3", "MistralForCausalLM")}
    encoders = {ENCODERS[json.loads((data / "embedders" / name / "config.json").read_text())["model_type"]][0]
                for name in EMBEDDERS}
    assert {name for name, _ in listed - generative} == encoders - {"qwen3"}


@pytest.fixture(scope="module")
def parts(data, tmp_path_factory):
    """The folder of a file in three parts."""
    folder = tmp_path_factory.mktemp("parts")
    for name in PARTS:
        write_gguf(data, name, folder / f"{name}.gguf", "qwen3")
    return folder


@pytest.mark.parametrize("name", PARTS)
def test_any_part_names_the_whole_file(pinion, data, parts, tmp_path, name):
    assert worst_error(pinion, data, "qwen3", parts / f"{name}.gguf", tmp_path) <= TOLERANCE


@pytest.mark.parametrize("missing", PARTS)
def test_a_missing_part_is_named(pinion, parts, tmp_path, missing):
    for name in PARTS:
        if name != missing:
            shutil.copy(parts / f"{name}.gguf", tmp_path)
    done = pinion("model", "info", tmp_path / f"{next(name for name in PARTS if name != missing)}.gguf")
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert f"part {int(missing[6:11])} of 3, {tmp_path}/{missing}.gguf, is missing" in done.stderr


def test_parts_under_other_names_are_refused(pinion, parts, tmp_path):
    alone = tmp_path / "alone.gguf"
    shutil.copy(parts / f"{PARTS[1]}.gguf", alone)
    done = pinion("model", "info", alone)
    assert done.returncode == 1
    assert "part 2 of 3, but its name says 1 of 1" in done.stderr
    for name in PARTS:
        shutil.copy(parts / f"{PARTS[0]}.gguf", tmp_path / f"{name}.gguf")
    done = pinion("model", "info", tmp_path / f"{PARTS[0]}.gguf")
    assert done.returncode == 1
    assert f"{PARTS[1]}.gguf: it says that it is part 1 of 3, but its name says 2 of 3" in done.stderr


def test_an_unknown_architecture_is_refused_with_those_that_load(pinion, data, tmp_path):
    path = tmp_path / "odd.gguf"
    write_gguf(data, "llama", path)
    path.write_bytes(path.read_bytes().replace(b"\5\0\0\0\0\0\0\0llama", b"\5\0\0\0\0\0\0\0lamma", 1))
    done = pinion("model", "info", path)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "'general.architecture' is 'lamma', want one of arcee, bert, cohere2, deepseek2," in done.stderr


def header_only(path, pre, vocabulary, merges):
    """A file with GPT-2's vocabulary, one empty layer and no weights but an embedding."""
    architecture = {"block_count": 1, "context_length": 64, "embedding_length": 8, "feed_forward_length": 8,
                    "attention.head_count": 1}
    entries = [("general.architecture", 8, packed_text("llama")), ("tokenizer.ggml.model", 8, packed_text("gpt2")),
               ("tokenizer.ggml.pre", 8, packed_text(pre)), ("tokenizer.ggml.add_bos_token", 7, b"\0"),
               ("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
               ("tokenizer.ggml.tokens", 9, packed_list(8, map(packed_text, vocabulary))),
               ("tokenizer.ggml.token_type", 9, packed_list(5, [struct.pack("<i", 1)] * len(vocabulary))),
               ("tokenizer.ggml.merges", 9, packed_list(8, map(packed_text, merges)))]
    entries += [(f"llama.{key}", 4, struct.pack("<I", value)) for key, value in architecture.items()]
    head = struct.pack("<4sIQQ", b"GGUF", 3, 1, len(entries))
    head += b"".join(packed_text(key) + struct.pack("<I", kind) + value for key, kind, value in entries)
    head += packed_text("token_embd.weight") + struct.pack("<IQQIQ", 2, 8, len(vocabulary), 0, 0)
    path.write_bytes(head + bytes(-len(head) % 32 + 32 * len(vocabulary)))


def packed_text(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def packed_list(kind, values):
    values = list(values)
    return struct.pack("<IQ", kind, len(values)) + b"".join(values)


def test_texts_are_split_as_each_pre_tokenizer_says(pinion, data, tmp_path):
    model = json.loads(gzip.decompress((data / "text" / "gpt2" / "tokenizer.json.gz").read_bytes()))["model"]
    vocabulary = sorted(model["vocab"], key=model["vocab"].get)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    cases = {}
    for line in (data / "gguf" / "words.jsonl").read_text().splitlines():
        case = json.loads(line)
        cases.setdefault(case["pre"], []).append(case)
    assert len(cases) == 21
    for pre, texts in cases.items():
        header_only(tmp_path / "words.gguf", pre, vocabulary, merges)
        (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": case["text"]}) + "\n" for case in texts))
        done = pinion("tokenize", tmp_path / "words.gguf", "--input", tmp_path / "in.jsonl",
                      "--output", tmp_path / "out.jsonl")
        assert done.returncode == 0, done.stderr
        got = [json.loads(line)["ids"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        for case, ids in zip(texts, got, strict=True):
            assert ids == case["ids"], (pre, case["text"])


# Gemma 4's files list merges, where others of SentencePiece's BPE have scores; Qwen3.5's name a pattern of their own.
@pytest.mark.parametrize("model", ["gemma4-e", "qwen3.5"])
def test_a_files_tokenizer_gives_the_references_tokens(pinion, data, tmp_path, model):
    cases = json.loads((data / "models" / model / "golden.json").read_text())["tokenization"]
    write_gguf(data, model, tmp_path / "model.gguf")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": case["text"]}) + "\n" for case in cases))
    done = pinion("tokenize", tmp_path / "model.gguf", "--input", tmp_path / "in.jsonl",
                  "--output", tmp_path / "out.jsonl")
    assert done.returncode == 0, done.stderr
    got = [json.loads(line)["ids"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(cases) > 10 and got == [case["ids"] for case in cases]
