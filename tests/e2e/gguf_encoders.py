"""GGUF files of encoders and embedders, laid out as llama.cpp's converter does, of the checkpoints in
tests/data/embedders.

The names of keys and tensors are those of the `gguf` package's constants; no rule is taken from Pinion's reader.
"""

import json
import struct
import unicodedata

import numpy

from gguf_files import as_f32, read_checkpoint

U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
INT32, UINT8 = 5, 0
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
ALIGNMENT = 32
IN_F32, IN_Q8_0 = 0, 8
Q8_0_ELEMENTS = 32  # of a block

# Tensors by the ends of their names in checkpoints; "{}" stands for the layer.
BERT_TENSORS = {
    "embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
    "encoder.layer.{}.attention.self.query": "blk.{}.attn_q", "encoder.layer.{}.attention.self.key": "blk.{}.attn_k",
    "encoder.layer.{}.attention.self.value": "blk.{}.attn_v",
    "encoder.layer.{}.attention.output.dense": "blk.{}.attn_output",
    "encoder.layer.{}.attention.output.LayerNorm": "blk.{}.attn_output_norm",
    "encoder.layer.{}.intermediate.dense": "blk.{}.ffn_up", "encoder.layer.{}.output.dense": "blk.{}.ffn_down",
    "encoder.layer.{}.output.LayerNorm": "blk.{}.layer_output_norm",
    "classifier.dense": "cls", "classifier.out_proj": "cls.output", "classifier": "cls.output"}
NOMIC_TENSORS = {
    "embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
    "emb_ln": "token_embd_norm", "encoder.layers.{}.attn.Wqkv": "blk.{}.attn_qkv",
    "encoder.layers.{}.attn.out_proj": "blk.{}.attn_output", "encoder.layers.{}.norm1": "blk.{}.attn_output_norm",
    "encoder.layers.{}.mlp.fc11": "blk.{}.ffn_up", "encoder.layers.{}.mlp.fc12": "blk.{}.ffn_gate",
    "encoder.layers.{}.mlp.fc2": "blk.{}.ffn_down", "encoder.layers.{}.norm2": "blk.{}.layer_output_norm"}
QWEN3_TENSORS = {
    "embed_tokens": "token_embd", "norm": "output_norm", "layers.{}.input_layernorm": "blk.{}.attn_norm",
    "layers.{}.post_attention_layernorm": "blk.{}.ffn_norm", "layers.{}.self_attn.q_proj": "blk.{}.attn_q",
    "layers.{}.self_attn.k_proj": "blk.{}.attn_k", "layers.{}.self_attn.v_proj": "blk.{}.attn_v",
    "layers.{}.self_attn.o_proj": "blk.{}.attn_output", "layers.{}.self_attn.q_norm": "blk.{}.attn_q_norm",
    "layers.{}.self_attn.k_norm": "blk.{}.attn_k_norm", "layers.{}.mlp.gate_proj": "blk.{}.ffn_gate",
    "layers.{}.mlp.up_proj": "blk.{}.ffn_up", "layers.{}.mlp.down_proj": "blk.{}.ffn_down"}
GEMMA_TENSORS = {
    **QWEN3_TENSORS, "layers.{}.post_attention_layernorm": "blk.{}.post_attention_norm",
    "layers.{}.pre_feedforward_layernorm": "blk.{}.ffn_norm",
    "layers.{}.post_feedforward_layernorm": "blk.{}.post_ffw_norm"}
MODERN_BERT_TENSORS = {
    "embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "final_norm": "output_norm",
    "layers.{}.attn_norm": "blk.{}.attn_norm", "layers.{}.attn.Wqkv": "blk.{}.attn_qkv",
    "layers.{}.attn.Wo": "blk.{}.attn_output", "layers.{}.mlp_norm": "blk.{}.ffn_norm",
    "layers.{}.mlp.Wi": "blk.{}.ffn_up", "layers.{}.mlp.Wo": "blk.{}.ffn_down",
    "head.dense": "cls", "head.norm": "cls.norm", "classifier": "cls.output"}
# Architecture of the file and names of its tensors, by the checkpoint's model_type.
ARCHITECTURES = {"bert": ("bert", BERT_TENSORS), "xlm-roberta": ("bert", BERT_TENSORS),
                 "nomic_bert": ("nomic-bert", NOMIC_TENSORS), "qwen3": ("qwen3", QWEN3_TENSORS),
                 "gemma3_text": ("gemma-embedding", GEMMA_TENSORS),
                 "modernbert": ("modern-bert", MODERN_BERT_TENSORS)}
POOLING = {"pooling_mode_mean_tokens": 1, "pooling_mode_cls_token": 2, "pooling_mode_lasttoken": 3}


def packed_text(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


PACK = {U32: lambda value: struct.pack("<I", value), F32: lambda value: struct.pack("<f", value),
        BOOL: lambda value: struct.pack("<?", value), STRING: packed_text,
        INT32: lambda value: struct.pack("<i", value), UINT8: lambda value: struct.pack("<B", value)}


def packed_entry(key, kind, value):
    """kind: a number of PACK, or a list of one for an array."""
    head = packed_text(key)
    if isinstance(kind, list):
        return head + struct.pack("<IIQ", ARRAY, kind[0], len(value)) + b"".join(map(PACK[kind[0]], value))
    return head + struct.pack("<I", kind) + PACK[kind](value)


def write_file(path, entries, tensors):
    """entries: (key, kind, value); tensors: name -> (shape, bytes, type)."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(entries))
    head += b"".join(packed_entry(*entry) for entry in entries)
    body = b""
    for name, (shape, raw, kind) in tensors.items():
        head += packed_text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", extent) for extent in reversed(shape)) + struct.pack("<IQ", kind, len(body))
        body += raw + bytes(-len(raw) % ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + body)


def file_tensors(folder, config, names):
    """The tensors that files hold, in float32 and under their names there."""
    found = {}
    for name, (shape, elements) in read_checkpoint(folder).items():
        module, _, kind = name.removeprefix("bert.").removeprefix("roberta.").removeprefix("model.") \
            .rpartition(".")
        parts = module.split(".")
        layer = next((part for part in parts if part.isdigit()), None)
        module = ".".join("{}" if part.isdigit() else part for part in parts)
        if module not in names:
            assert module == "pooler.dense", name
            continue
        if names[module] == "position_embd" and config["model_type"] == "xlm-roberta":
            first = config["pad_token_id"] + 1
            elements = elements[first * shape[1]:]
            shape = [shape[0] - first, shape[1]]
        raw = b"".join(map(as_f32, elements))
        if config["model_type"] == "gemma3_text" and name.endswith("norm.weight"):
            raw = (numpy.frombuffer(raw, "<f4") + numpy.float32(1)).tobytes()
        found[f"{names[module].format(layer)}.{kind}"] = shape, raw, IN_F32
    for dense in sorted(folder.glob("?_Dense")):
        for name, (shape, elements) in read_checkpoint(dense).items():
            found[name.replace("linear", f"dense_{dense.name[0]}")] = shape, b"".join(map(as_f32, elements)), IN_F32
    return found


def in_blocks(tensors):
    """The matrices but the small tables in Q8_0 (a float16 scale and 32 integers), and what they stand for in F32."""
    stored, meant = dict(tensors), dict(tensors)
    for name, (shape, raw, _) in tensors.items():
        if len(shape) < 2 or name in ("position_embd.weight", "token_types.weight"):
            continue
        blocks = numpy.frombuffer(raw, "<f4").reshape(-1, Q8_0_ELEMENTS)
        scales = (numpy.abs(blocks).max(axis=1, keepdims=True) / 127).astype("<f2")
        codes = numpy.rint(blocks / scales.astype("<f4")).clip(-127, 127).astype("i1")
        stored[name] = shape, numpy.hstack([scales.view("u1").reshape(-1, 2), codes.view("u1")]).tobytes(), IN_Q8_0
        meant[name] = shape, (scales.astype("<f4") * codes.astype("<f4")).tobytes(), IN_F32
    return stored, meant


def model_entries(folder, config, architecture):
    offset = config["pad_token_id"] + 1 if config["model_type"] == "xlm-roberta" else 0
    entries = [("general.architecture", STRING, architecture)]
    values = [("block_count", U32, config["num_hidden_layers"]),
              ("context_length", U32, config["max_position_embeddings"] - offset),
              ("embedding_length", U32, config["hidden_size"]),
              ("feed_forward_length", U32, config["intermediate_size"]),
              ("attention.head_count", U32, config["num_attention_heads"])]
    if "rms_norm_eps" in config:
        values += [("attention.layer_norm_rms_epsilon", F32, config["rms_norm_eps"]),
                   ("attention.head_count_kv", U32, config["num_key_value_heads"]),
                   ("attention.key_length", U32, config["head_dim"]),
                   ("attention.value_length", U32, config["head_dim"])]
    else:
        values += [("attention.layer_norm_epsilon", F32, config.get("layer_norm_eps", config.get("norm_eps"))),
                   ("attention.causal", BOOL, False)]
    if architecture == "modern-bert":
        values += [("attention.sliding_window", U32, config["local_attention"]),
                   ("attention.sliding_window_pattern", U32, config["layer_types"][1:].index("full_attention") + 1),
                   ("rope.freq_base", F32, config["rope_parameters"]["full_attention"]["rope_theta"]),
                   ("rope.freq_base_swa", F32, config["rope_parameters"]["sliding_attention"]["rope_theta"]),
                   ("rope.scaling.type", STRING, "none"), ("hidden_activation", STRING, config["hidden_activation"])]
    elif architecture == "gemma-embedding":
        ropes, slides = config["rope_parameters"], [kind == "sliding_attention" for kind in config["layer_types"]]
        values += [("rope.freq_base", F32, ropes["full_attention"]["rope_theta"]),
                   ("rope.freq_base_swa", F32, ropes["sliding_attention"]["rope_theta"]),
                   ("attention.sliding_window", U32, config["sliding_window"]),
                   ("attention.sliding_window_pattern", [BOOL], slides)]
    elif "rope_parameters" in config:
        values.append(("rope.freq_base", F32, config["rope_parameters"]["rope_theta"]))
    pooling = folder / "1_Pooling" / "config.json"
    if pooling.exists():
        kinds = json.loads(pooling.read_text())
        values.append(("pooling_type", U32, next(POOLING[key] for key in POOLING if kinds[key])))
    elif "id2label" in config:
        values.append(("classifier.output_labels", [STRING], list(config["id2label"].values())))
    if "classifier_pooling" in config:
        values.append(("classifier.pooling_type", U32, {"mean": 1, "cls": 2}[config["classifier_pooling"]]))
    return entries + [(f"{architecture}.{key}", kind, value) for key, kind, value in values]


def special_entries(tokenizer, roles):
    ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    return [(f"tokenizer.ggml.{role}_token_id", U32, ids[text]) for role, text in roles.items()]


def word_piece_entries(tokenizer, config):
    controls = {token["content"] for token in tokenizer["added_tokens"]}
    vocabulary = tokenizer["model"]["vocab"]
    texts = sorted(vocabulary, key=vocabulary.get)

    def stored(text):
        if text in controls:
            return text
        return text[2:] if text.startswith("##") else "\u2581" + text
    return [("tokenizer.ggml.token_type_count", U32, config.get("type_vocab_size", 1)),
            ("tokenizer.ggml.model", STRING, "bert"), ("tokenizer.ggml.pre", STRING, "jina-v2-en"),
            ("tokenizer.ggml.tokens", [STRING], [stored(text) for text in texts]),
            ("tokenizer.ggml.token_type", [INT32], [CONTROL if text in controls else NORMAL for text in texts]),
            *special_entries(tokenizer, {"bos": "[CLS]", "eos": "[SEP]", "unknown": "[UNK]", "seperator": "[SEP]",
                                         "padding": "[PAD]", "mask": "[MASK]"}),
            ("tokenizer.ggml.add_bos_token", BOOL, True), ("tokenizer.ggml.add_eos_token", BOOL, True),
            ("tokenizer.ggml.add_sep_token", BOOL, False)]


def replacements(texts):
    """NFKC's replacements of the characters of the texts, and of pairs of them, by their UTF-8."""
    found = {}
    for text in texts:
        for size in (1, 2):
            for at in range(len(text) - size + 1):
                part = text[at:at + size]
                made = unicodedata.normalize("NFKC", part)
                if made != part and (size == 1 or made != "".join(unicodedata.normalize("NFKC", c) for c in part)):
                    found[part.encode()] = made.encode()
    return found


def charsmap(rules):
    """SentencePiece's precompiled_charsmap of the rules: a double array of bytes, then the replacements.

    Each node of the trie has 256 units to itself, so that no two nodes need to be fitted together.
    """
    children, leaves, text = [{}], {}, b""
    for key, made in sorted(rules.items()):
        node = 0
        for byte in key:
            if byte not in children[node]:
                children[node][byte] = len(children)
                children.append({})
            node = children[node][byte]
        leaves[node] = len(text)
        text += made + b"\0"
    units = [0] * (256 * (len(children) + 1))
    base = [256 * (node + 1) for node in range(len(children))]
    units[0] = base[0] << 10
    for node, below in enumerate(children):
        if node in leaves:
            units[base[node]] = leaves[node] | 1 << 31
        for byte, child in below.items():
            at = base[node] ^ byte
            units[at] = byte | (child in leaves) << 8 | (at ^ base[child]) << 10
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + text


def unigram_entries(tokenizer, config, texts):
    controls = {token["content"] for token in tokenizer["added_tokens"]}
    pieces = tokenizer["model"]["vocab"]
    unknown = tokenizer["model"]["unk_id"]
    kinds = [UNKNOWN if i == unknown else CONTROL if text in controls else NORMAL
             for i, (text, _) in enumerate(pieces)]
    return [("tokenizer.ggml.model", STRING, "t5"), ("tokenizer.ggml.pre", STRING, "default"),
            ("tokenizer.ggml.tokens", [STRING], [text for text, _ in pieces]),
            ("tokenizer.ggml.scores", [F32], [score for _, score in pieces]),
            ("tokenizer.ggml.token_type", [INT32], kinds), ("tokenizer.ggml.add_space_prefix", BOOL, True),
            ("tokenizer.ggml.token_type_count", U32, config["type_vocab_size"]),
            ("tokenizer.ggml.remove_extra_whitespaces", BOOL, False),
            ("tokenizer.ggml.precompiled_charsmap", [UINT8], charsmap(replacements(texts))),
            *special_entries(tokenizer, {"bos": "<s>", "eos": "</s>", "unknown": "<unk>", "seperator": "</s>",
                                         "padding": "<pad>"}),
            ("tokenizer.ggml.add_bos_token", BOOL, True), ("tokenizer.ggml.add_eos_token", BOOL, True),
            ("tokenizer.ggml.add_sep_token", BOOL, True)]


# Name and special tokens of a byte-level tokenizer, by its post-processor.
BYTE_LEVEL = {
    "TemplateProcessing": ("qwen2", {"eos": "<|endoftext|>", "eot": "<|im_end|>", "padding": "<|endoftext|>"},
                           {"eos": True}),
    "RobertaProcessing": ("roberta-bpe", {"bos": "<s>", "eos": "</s>", "unknown": "<unk>", "seperator": "</s>",
                                          "padding": "<pad>", "cls": "<s>"},
                          {"bos": True, "eos": True, "sep": True})}


def byte_level_entries(tokenizer):
    pre, roles, added = BYTE_LEVEL[tokenizer["post_processor"]["type"]]
    kinds = {token["content"]: CONTROL if token["special"] else USER_DEFINED for token in tokenizer["added_tokens"]}
    vocabulary = tokenizer["model"]["vocab"] | {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    texts = sorted(vocabulary, key=vocabulary.get)
    return [("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, pre),
            ("tokenizer.ggml.tokens", [STRING], texts),
            ("tokenizer.ggml.token_type", [INT32], [kinds.get(text, NORMAL) for text in texts]),
            ("tokenizer.ggml.merges", [STRING], [" ".join(merge) for merge in tokenizer["model"]["merges"]]),
            *special_entries(tokenizer, roles),
            *((f"tokenizer.ggml.add_{role}_token", BOOL, value) for role, value in added.items())]


def sentence_piece_entries(tokenizer):
    """Merges become scores: the earlier a token is made, the higher its score."""
    controls = {token["content"] for token in tokenizer["added_tokens"]}
    vocabulary = tokenizer["model"]["vocab"]
    texts = sorted(vocabulary, key=vocabulary.get)
    scores = {}
    for rank, merge in enumerate(tokenizer["model"]["merges"]):
        scores.setdefault("".join(merge), -float(rank))
    lowest = -float(len(tokenizer["model"]["merges"]))

    def kind(text):
        if text in controls:
            return UNKNOWN if text == tokenizer["model"]["unk_token"] else CONTROL
        return BYTE if text.startswith("<0x") else NORMAL
    return [("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.pre", STRING, "default"),
            ("tokenizer.ggml.tokens", [STRING], texts),
            ("tokenizer.ggml.scores", [F32], [scores.get(text, lowest) for text in texts]),
            ("tokenizer.ggml.token_type", [INT32], list(map(kind, texts))),
            *special_entries(tokenizer, {"bos": "<bos>", "eos": "<eos>", "unknown": "<unk>", "padding": "<pad>"}),
            ("tokenizer.ggml.add_space_prefix", BOOL, False), ("tokenizer.ggml.add_bos_token", BOOL, True),
            ("tokenizer.ggml.add_eos_token", BOOL, True)]


def write_encoder(folder, path, change=lambda entries, tensors: None):
    """Makes `path` of a folder of tests/data/embedders; `change` alters the entries and tensors before."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    architecture, names = ARCHITECTURES[config["model_type"]]
    entries = model_entries(folder, config, architecture)
    kind = tokenizer["model"]["type"]
    if kind == "WordPiece":
        entries += word_piece_entries(tokenizer, config)
    elif kind == "BPE" and tokenizer["model"]["byte_fallback"]:
        entries += sentence_piece_entries(tokenizer)
    elif kind == "BPE":
        entries += byte_level_entries(tokenizer)
    else:
        golden = json.loads((folder / "golden.json").read_text())
        entries += unigram_entries(tokenizer, config, [case["text"] for case in golden["tokenization"]])
    tensors = file_tensors(folder, config, names)
    change(entries, tensors)
    write_file(path, entries, tensors)
