"""Writes words.jsonl: how the `tokenizers` package (0.23) encodes texts with GPT-2's vocabulary and the published
patterns of other pre-tokenizers, by the names that GGUF files give these."""

import gzip
import json
import pathlib

from tokenizers import Regex, Tokenizer, pre_tokenizers

HERE = pathlib.Path(__file__).parent
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
SEED = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
            r"\s*[\r\n]+|\s+(?!\S)|\s+"]
CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    "Ὗ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-"
    "Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
DEEPSEEK_LLM = [r"[\r\n]", rf"\s?[{CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{UPPER[:-1]}&&[^\p{{Han}}]]*{LOWER[:-1]}&&[^\p{{Han}}]]+{CONTRACTIONS}?|"
        rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER[:-1]}&&[^\p{{Han}}]]+{LOWER[:-1]}&&[^\p{{Han}}]]*{CONTRACTIONS}?|"
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PATTERNS = {"dbrx": [LLAMA3], "smaug-bpe": [LLAMA3], "chatglm-bpe": [LLAMA3], "glm4": [LLAMA3], "llama-bpe": [LLAMA3],
            "gpt-4o": [O200K], "llama4": [O200K], "minimax-m2": [O200K], "deepseek-v3": DEEPSEEK,
            "hunyuan-dense": DEEPSEEK, "hunyuan": [QWEN2], "qwen2": [QWEN2], "qwen35": [QWEN35],
            "falcon-h1": [LLAMA3], "pixtral": [LLAMA3], "seed-coder": [SEED], "olmo": [], "exaone4": [],
            "command-r": [], "deepseek-llm": DEEPSEEK_LLM, "kimi-k2": [KIMI]}
DIGITS_APART = {"command-r", "deepseek-llm"}  # as Cohere's tokenizers of transformers, and DeepSeek-V2's
TEXTS = ["It's 12345 o'CLOCK, we'Ll see: HTTPServer's XMLParser/\n\n", "price: $1,234.56!!!\r\n  tabs\t\tand   spaces  ",
         "naïve façade – ÉCOLE Straße", "東京都へ2024年10月 行きましたThe end", "if(x_1>=10){return a[i]+b;}//done\n}\n",
         "  leading\n \n  \nlines \u3000wide", "don't CAN'T they'RE", "a1b22c333d4444", "...?!/// \n/path/to",
         "हिन्दी में x\u0301y \u0301z", "ภาษาไทย น้ำ",
         "€  5 字  6 \U0001d54f x漢Y、字母's  "]

for name, patterns in PATTERNS.items():
    tokenizer = Tokenizer.from_str(gzip.open(HERE.parent / "text/gpt2/tokenizer.json.gz").read().decode())
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    if name in DIGITS_APART:
        splits.append(pre_tokenizers.Digits(individual_digits=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not patterns)])
    with open(HERE / "words.jsonl", "w" if name == next(iter(PATTERNS)) else "a") as out:
        for text in TEXTS:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            out.write(json.dumps({"pre": name, "text": text, "ids": ids}) + "\n")
