#!/usr/bin/env python3
"""Trains small tokenizers in the form of each model family and records what Hugging Face makes of a hard corpus.

    python3 -m venv /tmp/v && /tmp/v/bin/pip install transformers==4.57.3 sentencepiece protobuf
    /tmp/v/bin/python tests/golden/tokenizer/make.py

Writes one folder per family beside this file: the model files, and expected.json with, for every text of texts.json,
  ids        with special tokens parsed and the post-processor's around them
  split      with split_special_tokens and nothing around; absent where `ids` is prefix + split + suffix
  text, skip decode(ids) without and with skip_special_tokens; absent where equal to the text
  segments   [[text, from_template], ...] and their ids
  round_trip (tokenizer.model) whether decode(split) is the text again
  decodes    random ids and their text, without and with skip_special_tokens
Everything is seeded; the same versions write the same files. One case is of tokenizers 0.23 instead, which decodes a
plain added token of normalised text as it is normalised: in flags, CAFÉTOK is "cafetok".
"""

import collections
import contextlib
import json
import pathlib
import random
import shutil
import tempfile

import corpus
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from readers import Fast, Slow
from transformers import GPT2TokenizerFast, LlamaTokenizer

HERE = pathlib.Path(__file__).resolve().parent
LINES = [line for line in corpus.TRAINING.split("\n") if line]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPACE = "\u2581"

GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = GPT4.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]


def special(content, **flags):
    return AddedToken(content, special=True, normalized=flags.pop("normalized", False), **flags)


def plain(content, **flags):
    return AddedToken(content, special=False, normalized=flags.pop("normalized", False), **flags)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def byte_level(vocabulary=800, **settings):
    """A trained byte-level tokenizer; settings are its parts."""
    tokenizer = Tokenizer(models.BPE())
    if "normalizer" in settings:
        tokenizer.normalizer = settings["normalizer"]
    tokenizer.pre_tokenizer = settings["pre_tokenizer"]
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES * 2, trainer)
    return tokenizer


def with_model(tokenizer, **changes):
    """The same tokenizer with some settings of its model changed."""
    document = json.loads(tokenizer.to_str())
    document["model"].update(changes)
    return Tokenizer.from_str(json.dumps(document))


def common_characters(count):
    counts = collections.Counter("".join(LINES))
    return set(sorted(counts, key=lambda c: (-counts[c], c))[:count]) | {" "}


def characters(
    pre_tokenizer=None,
    normalizer=None,
    specials=("<unk>", "<s>", "</s>"),
    byte_tokens=True,
    vocabulary=900,
):
    """A SentencePiece-like model: characters, byte tokens, specials first. Trained word by word."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    size = vocabulary - (256 if byte_tokens else 0) - len(specials)
    known = common_characters(330)  # the trainer's own limit breaks ties by chance
    lines = ["".join(c for c in line if c in known) for line in LINES]
    trained.train_from_iterator(
        lines * 2, trainers.BpeTrainer(vocab_size=size, show_progress=False)
    )
    model = json.loads(trained.to_str())["model"]
    tokens = (
        list(specials)
        + (BYTES if byte_tokens else [])
        + sorted(model["vocab"], key=model["vocab"].get)
    )
    tokens += [SPACE * n for n in (2, 3, 4, 8) if SPACE * n not in tokens]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    merges += [(SPACE, SPACE), (SPACE * 2, SPACE), (SPACE * 2, SPACE * 2), (SPACE * 4, SPACE * 4)]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={t: i for i, t in enumerate(tokens)},
            merges=merges,
            unk_token=specials[0],
            fuse_unk=True,
            byte_fallback=byte_tokens,
        )
    )
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_special_tokens([special(s) for s in specials])
    return tokenizer


def bos_template(tokenizer, bos):
    return processors.TemplateProcessing(
        single=f"{bos}:0 $A:0",
        pair=f"{bos}:0 $A:0 {bos}:1 $B:1",
        special_tokens=[(bos, tokenizer.token_to_id(bos))],
    )


def llama_decoder(strip=True):
    parts = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(parts + ([decoders.Strip(" ", 1, 0)] if strip else []))


def gpt2():
    tokenizer = byte_level(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.add_special_tokens([special("<|endoftext|>")])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer, "<|endoftext|>", "<|endoftext|>"


def roberta():
    tokenizer = byte_level(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True))
    tokenizer.add_special_tokens([special("<s>"), special("</s>"), special("<mask>", lstrip=True)])
    ids = [tokenizer.token_to_id(t) for t in ("</s>", "<s>")]
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", ids[0]), ("<s>", ids[1]), add_prefix_space=True
    )
    return tokenizer, "<s>", "</s>"


def llama3():
    tokenizer = byte_level(
        pre_tokenizer=pre_tokenizers.Sequence(
            [split(GPT4), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    )
    # A word of the vocabulary that no merges make, which only ignore_merges finds.
    vocab = json.loads(tokenizer.to_str())["model"]["vocab"]
    vocab["Ġworld"] = vocab.get("Ġworld", len(vocab))
    vocab["ĠHelloxyz"] = len(vocab)
    tokenizer = with_model(tokenizer, ignore_merges=True, vocab=vocab)
    tokenizer.add_special_tokens(
        [
            special(t)
            for t in (
                "<|begin_of_text|>",
                "<|end_of_text|>",
                "<|start_header_id|>",
                "<|end_header_id|>",
                "<|eot_id|>",
            )
        ]
    )
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), bos_template(tokenizer, "<|begin_of_text|>")]
    )
    return tokenizer, "<|begin_of_text|>", "<|eot_id|>"


def qwen2():
    tokenizer = byte_level(
        normalizer=normalizers.NFC(),
        pre_tokenizer=pre_tokenizers.Sequence(
            [split(QWEN), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        ),
    )
    tokenizer.add_special_tokens(
        [special(t) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")]
    )
    tokenizer.add_tokens([plain(t) for t in ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer, "<|im_start|>", "<|im_end|>"


def tekken():
    tokenizer = byte_level(
        pre_tokenizer=pre_tokenizers.Sequence(
            [split(TEKKEN), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    )
    document = json.loads(tokenizer.to_str())
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    document["model"]["vocab"] = {
        t: i
        for i, t in enumerate(
            specials + sorted(document["model"]["vocab"], key=document["model"]["vocab"].get)
        )
    }
    document["model"]["ignore_merges"] = True
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.add_special_tokens([special(t) for t in specials])
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer, "<s>", "</s>"


def starcoder():
    tokenizer = byte_level(
        pre_tokenizer=pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    )
    tokenizer.add_special_tokens(
        [special("<|endoftext|>"), special("<|im_end|>", normalized=True, rstrip=True)]
    )
    return tokenizer, "<|endoftext|>", "<|im_end|>"


def deepseek():
    steps = [split(pattern) for pattern in DEEPSEEK] + [
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    ]
    tokenizer = byte_level(
        normalizer=normalizers.Sequence([]), pre_tokenizer=pre_tokenizers.Sequence(steps)
    )
    tokenizer.add_special_tokens(
        [special("<｜begin▁of▁sentence｜>"), special("<｜end▁of▁sentence｜>")]
    )
    tokenizer.add_tokens([plain("<think>", normalized=True), plain("</think>", normalized=True)])
    tokenizer.post_processor = bos_template(tokenizer, "<｜begin▁of▁sentence｜>")
    return tokenizer, "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"


def llama2():
    tokenizer = characters(
        normalizer=normalizers.Sequence(
            [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)]
        )
    )
    tokenizer.decoder = llama_decoder()
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer, "<s>", "</s>"


def mistral():
    tokenizer = characters(
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
        specials=("<unk>", "<s>", "</s>", "[INST]", "[/INST]"),
    )
    tokenizer.decoder = llama_decoder()
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer, "<s>", "</s>"


def llama_normalized():
    """Llama's early files: the special tokens match normalised text."""
    tokenizer, bos, eos = llama2()
    document = json.loads(tokenizer.to_str())
    for token in document["added_tokens"]:
        token["normalized"] = True
    return Tokenizer.from_str(json.dumps(document)), bos, eos


def gemma():
    tokenizer = characters(
        normalizer=normalizers.Replace(" ", SPACE),
        pre_tokenizer=pre_tokenizers.Split(" ", behavior="merged_with_previous"),
        specials=("<unk>", "<s>", "</s>", "<start_of_turn>"),
    )
    tokenizer.add_tokens([plain("\n\n"), plain("\n\n\n"), plain("\t\t")])
    tokenizer.decoder = llama_decoder(strip=False)
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer, "<s>", "</s>"


def metaspace():
    tokenizer = characters(
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="always", split=True),
        byte_tokens=False,
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always", split=True)
    return tokenizer, "<s>", "</s>"


def flags():
    """Every other normaliser, pre-tokeniser and flag; no decoder."""
    steps = [
        normalizers.NFKD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
        normalizers.Replace(Regex(r"\s{2,}"), " "),
        normalizers.Strip(),
    ]
    tokenizer = characters(
        normalizer=normalizers.Sequence(steps),
        pre_tokenizer=pre_tokenizers.Sequence(
            [
                pre_tokenizers.Whitespace(),
                pre_tokenizers.Punctuation(behavior="contiguous"),
                pre_tokenizers.Digits(),
            ]
        ),
        byte_tokens=False,
    )
    tokenizer = with_model(tokenizer, fuse_unk=False)
    tokenizer.add_special_tokens(
        [special("<mask>", lstrip=True, rstrip=True), special("<|im_end|>", normalized=True)]
    )
    tokenizer.add_tokens(
        [
            plain("SOLO", single_word=True),
            plain("CAFÉTOK", normalized=True, single_word=True),
            plain("zero", rstrip=True),
        ]
    )
    return tokenizer, "<s>", "</s>"


# Rules of a SentencePiece model: characters' numbers, and those of what they become.
RULES = """\
FB01\t66 69
3000\t20
FF21\t41
65 301\tE9
200B\t
2026\t2E 2E 2E
"""


def charsmap():
    """These rules, compiled by SentencePiece."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "text").write_text("\n".join(LINES), encoding="utf-8")
        (folder / "rules").write_text(RULES, encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(folder / "m"), model_type="unigram", vocab_size=700,
            hard_vocab_limit=False, minloglevel=2, num_threads=1, normalization_rule_tsv=str(folder / "rules"))
        model = sentencepiece_model_pb2.ModelProto.FromString((folder / "m.model").read_bytes())
    return model.normalizer_spec.precompiled_charsmap


def trained_unigram(**settings):
    """A unigram model whose special tokens are added behind it. Hugging Face takes a special piece for what it spells
    in plain text too, which a client may not write here: no text of the corpus holds [UNK]."""
    tokenizer = Tokenizer(models.Unigram())
    for part, value in settings.items():
        setattr(tokenizer, part, value)
    tokenizer.train_from_iterator(LINES, trainers.UnigramTrainer(
        vocab_size=600, show_progress=False, special_tokens=["[UNK]"], unk_token="[UNK]"))
    tokenizer.add_special_tokens([special("<s>"), special("</s>")])
    return tokenizer


def unigram():
    """T5's and XLM-R's kind: compiled rules, runs of spaces are one, an unknown character is [UNK]."""
    tokenizer = trained_unigram(
        normalizer=normalizers.Sequence([
            normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), SPACE)]),
        pre_tokenizer=pre_tokenizers.Metaspace(),
        decoder=decoders.Metaspace(),
    )
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer, "<s>", "</s>"


def unigram_bytes():
    """llm-jp's kind: unknown characters are bytes."""
    tokenizer = trained_unigram(
        normalizer=normalizers.NFKC(),
        pre_tokenizer=pre_tokenizers.Metaspace(),
        decoder=llama_decoder(),
    )
    document = json.loads(tokenizer.to_str())
    model = document["model"]
    model["byte_fallback"] = True
    # The trainer leaves out few characters of its text.
    rare = [piece for piece, _ in model["vocab"] if len(piece) == 1 and not piece.isascii() and piece != SPACE][::2]
    model["vocab"] = [[piece, score] for piece, score in model["vocab"] if not set(piece) & set(rare)]
    model["vocab"][1:1] = [[byte, 0.0] for byte in BYTES]
    for i, token in enumerate(document["added_tokens"][1:]):
        token["id"] = len(model["vocab"]) + i
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.post_processor = bos_template(tokenizer, "<s>")
    return tokenizer, "<s>", "</s>"


FAMILIES = [
    gpt2,
    roberta,
    llama3,
    qwen2,
    tekken,
    starcoder,
    deepseek,
    llama2,
    llama_normalized,
    mistral,
    gemma,
    metaspace,
    flags,
    unigram,
    unigram_bytes,
]


def substitute(segments, bos, eos):
    return [(text.replace("S", bos).replace("E", eos), template) for text, template in segments]


def around(reader):
    """What the post-processor puts before and behind a text."""
    ids, bare = reader.encode("a"), reader.split("a")
    start = next(i for i in range(len(ids)) if ids[i : i + len(bare)] == bare)
    return ids[:start], ids[start + len(bare) :]


def record(reader, bos, eos, is_slow=False):
    generator = random.Random(11)
    prefix, suffix = around(reader)
    out = {"prefix": prefix, "suffix": suffix, "cases": [], "segments": [], "decodes": []}
    for text in corpus.cases():
        ids = reader.encode(text)
        case = {"ids": ids}
        bare = reader.split(text)
        if prefix + bare + suffix != ids:
            case["split"] = bare
        if not is_slow:
            for key, skip in (("text", False), ("skip", True)):
                decoded = reader.decode(ids, skip)
                if decoded != text:
                    case[key] = decoded
        else:
            # The slow decoder loses spaces and unknown characters; it is a yardstick only where it does not.
            case["round_trip"] = reader.decode(bare, True) == text
        out["cases"].append(case)
    if not is_slow:
        lists = (
            [substitute(s, bos, eos) for s in corpus.SEGMENTS]
            + corpus.straddles(bos)
            + corpus.straddles(eos)
        )
        for segments in lists:
            ids = reader.segments(segments)
            if ids is not None:
                out["segments"].append({"segments": segments, "ids": ids})
        for _ in range(40):
            ids = [generator.randrange(reader.size()) for _ in range(12)]
            out["decodes"].append(
                {"ids": ids, "text": reader.decode(ids, False), "skip": reader.decode(ids, True)}
            )
    return out


def write(folder, name, value):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(
        json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8"
    )


def make_fast(family):
    folder = HERE / family.__name__
    tokenizer, bos, eos = family()
    write(folder, "tokenizer.json", json.loads(tokenizer.to_str()))
    config = {"bos_token": bos, "eos_token": eos, "tokenizer_class": "PreTrainedTokenizerFast"}
    # transformers 4 changes a ByteLevel pre-tokeniser to what the config says.
    config["add_prefix_space"] = family is roberta
    write(folder, "tokenizer_config.json", config)
    write(
        folder,
        "expected.json",
        record(Fast(Tokenizer.from_file(str(folder / "tokenizer.json"))), bos, eos),
    )


def make_opt():
    """OPT publishes no tokenizer.json: GPT-2's files and a bos that is </s>."""
    folder = HERE / "opt"
    folder.mkdir(exist_ok=True)
    document = json.loads(
        byte_level(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False)).to_str()
    )
    tokens = ["<s>", "<pad>", "</s>", "<unk>"] + sorted(
        document["model"]["vocab"], key=document["model"]["vocab"].get
    )
    write(folder, "vocab.json", {t: i for i, t in enumerate(tokens)})
    merges = [" ".join(m) if isinstance(m, list) else m for m in document["model"]["merges"]]
    (folder / "merges.txt").write_text(
        "#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8"
    )
    token = {
        "content": "</s>",
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": True,
        "__type": "AddedToken",
    }
    config = {
        "errors": "replace",
        "unk_token": token,
        "bos_token": token,
        "eos_token": token,
        "add_prefix_space": False,
        "add_bos_token": True,
    }
    config |= {"pad_token": "<pad>", "tokenizer_class": "GPT2Tokenizer"}
    write(folder, "tokenizer_config.json", config)
    fast = GPT2TokenizerFast.from_pretrained(folder)
    write(folder, "expected.json", record(Fast(fast.backend_tokenizer), "</s>", "</s>"))


def make_slow(name, kind, config, **training):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    # The model records the paths it was made with: relative ones are the same everywhere.
    with tempfile.TemporaryDirectory() as scratch, contextlib.chdir(scratch):
        pathlib.Path("text").write_text("\n".join(LINES * 3), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input="text",
            model_prefix="m",
            model_type=kind,
            minloglevel=2,
            num_threads=1,
            unk_id=0,
            bos_id=1,
            eos_id=2,
            **training,
        )
        shutil.copy("m.model", folder / "tokenizer.model")
    write(folder, "tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer"} | config)
    write(folder, "expected.json", record(Slow(folder), "<s>", "</s>", is_slow=True))


def main():
    write(HERE, "texts.json", corpus.cases())
    for family in FAMILIES:
        make_fast(family)
    make_opt()
    llama = dict(
        vocab_size=900,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        split_digits=True,
    )
    llama |= dict(character_coverage=0.985, allow_whitespace_only_pieces=True)
    make_slow("model_bpe", "bpe", {}, **llama)
    make_slow("model_bpe_later", "bpe", {"legacy": False}, **llama)
    make_slow(
        "model_unigram",
        "unigram",
        {"add_bos_token": False, "add_eos_token": True},
        vocab_size=700,
        hard_vocab_limit=False,
    )


if __name__ == "__main__":
    main()
