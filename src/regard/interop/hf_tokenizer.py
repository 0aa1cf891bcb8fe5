"""The tokenizer of a Hugging Face folder, both ways: which tokens are special, what is put around a
text, and files that PreTrainedTokenizerFast encodes alike.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from regard import tokenizers
from regard.errors import UserError
from regard.interop import hf_seq2seq
from regard.interop.hf_decoder import Format
from regard.interop.untrusted_folder import inside
from regard.models.heads import HEADS
from regard.registry import TASKS
from regard.run import TOKENIZER, write_json, write_text
from regard.tokenizers import Words
from regard.tokenizers.tokenizer import END, PAD, SPECIALS, START, UNK, OwnTokenizer, read_document

TOKENIZER_CONFIG = "tokenizer_config.json"
ROLES = {
    "next": {"bos_token": START, "eos_token": END, "pad_token": PAD, "unk_token": UNK},
    "target": {"bos_token": START, "eos_token": END, "pad_token": START, "unk_token": UNK},
}
ENCODER_ROLES = {"cls_token": START, "sep_token": END, "pad_token": PAD, "unk_token": UNK} | {
    "mask_token": PAD  # see Tokenizer.mask
}
PIECES = (".spm", ".model")  # the files of sentencepiece


def check_vocabulary(folder: Path, tokenizer: tokenizers.Tokenizer, vocab_size: int) -> None:
    """Refuse a tokenizer whose ids the model does not know; unused rows of the model are usual."""
    if tokenizer.vocab_size > vocab_size:
        raise UserError(
            f"{folder}: {TOKENIZER} has ids up to {tokenizer.vocab_size - 1}, "
            f"the model only up to {vocab_size - 1}"
        )


def markers(
    form: Format, tokenizer: tokenizers.Tokenizer, vocab_size: int, max_len: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ids of specials as config.json has them, and all of generation_config.json."""
    if form.task == "target":
        ids = hf_seq2seq.marker_ids(tokenizer.start, tokenizer.end)
        never = tokenizer.never_produced(vocab_size)
        return ids, hf_seq2seq.generation(ids, max_len, never)
    ids = {
        "bos_token_id": tokenizer.start,
        "eos_token_id": tokenizer.end,
        "pad_token_id": tokenizer.pad,
    }
    return ids, ids


def declared(document: dict[str, Any], task: str) -> dict[str, Any]:
    """Our tokenizer.json with its specials declared and `<S>` put before each text; in a
    translator, whose sources they are, `<E>` after it; in an encoder both, and `<E>` between two
    texts, which are of two kinds. For the task `masked`, what is to be filled in takes the place of
    the space around it too where words have theirs before them.
    """
    marks = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": id, "content": s, **marks, "special": True} for id, s in enumerate(SPECIALS)]
    if task == "masked" and document.get("normalizer") == Words.layout["normalizer"]:
        added[PAD] |= {"lstrip": True, "rstrip": True}
    single, pair = ["<S>", "A"], ["<S>", "A", "B"]
    if task == "target":
        single, pair = ["A", "<E>"], ["A", "B", "<E>"]
    elif task in HEADS:
        single, pair = ["<S>", "A", "<E>"], ["<S>", "A", "<E>", "B:1", "<E>:1"]
    used = [s for s in SPECIALS if s in single]
    template = {
        "type": "TemplateProcessing",
        "single": [_part(name) for name in single],
        "pair": [_part(name) for name in pair],
        "special_tokens": {s: {"id": s, "ids": [SPECIALS.index(s)], "tokens": [s]} for s in used},
    }
    return {**document, "added_tokens": added, "post_processor": template}


def _part(name: str) -> dict[str, Any]:
    """A part of a template: a text, or a special, and after a colon which kind of text it is."""
    name, _, kind = name.partition(":")
    of = "SpecialToken" if name in SPECIALS else "Sequence"
    return {of: {"id": name, "type_id": int(kind or 0)}}


def write_tokenizer(
    folder: Path, form: Format, tokenizer: tokenizers.Tokenizer, max_len: int
) -> None:
    """Write the tokenizer for PreTrainedTokenizerFast to encode alike; a foreign one as it came."""
    if not isinstance(tokenizer, OwnTokenizer):
        tokenizer.save(folder / TOKENIZER)
        return
    write_text(
        folder / TOKENIZER,
        json.dumps(declared(tokenizer.document(), form.task), ensure_ascii=False),
    )
    specials = {role: SPECIALS[id] for role, id in ROLES.get(form.task, ENCODER_ROLES).items()}
    options = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_len,
        "clean_up_tokenization_spaces": False,
        # a `<S>` written out in a text stays three characters, but a mask must be read as one
        "split_special_tokens": form.task != "masked",
        "padding_side": "left" if form.task == "next" else "right",  # left: rows can be continued
        "model_input_names": ["input_ids", "attention_mask"],
    }
    if form.task in HEADS:
        options["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    write_json(folder / TOKENIZER_CONFIG, specials | options)
    write_json(folder / "special_tokens_map.json", specials)


def adopt_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """The folder's tokenizer; one that we exported becomes again what it was."""
    pieces = sorted(path.name for path in folder.iterdir() if path.suffix in PIECES)
    if pieces and not os.path.lexists(folder / TOKENIZER):
        raise UserError(
            f"{folder}: its tokenizer is a file of sentencepiece, {pieces[0]}, which is not read; "
            f"only {TOKENIZER} is"
        )
    path = inside(folder, TOKENIZER)
    if os.path.lexists(folder / TOKENIZER_CONFIG):
        inside(folder, TOKENIZER_CONFIG)
    document = read_document(path)[1]
    plain = {**document, "added_tokens": [], "post_processor": None}
    for kind in tokenizers.KINDS.values():
        if document in (declared(plain, task) for task in TASKS) and kind.recognises(plain):
            return kind.from_document(plain, str(path))
    return tokenizers.load(path)


def adopt_markers(
    path: Path, tokenizer: tokenizers.Tokenizer, start: int, end: int
) -> tokenizers.Tokenizer:
    """The tokenizer of a translator whose config.json says what starts and what ends a target."""
    if end != tokenizer.end:
        raise UserError(
            f"{path}: eos_token_id = {end}, but the tokenizer ends texts with {tokenizer.end}"
        )
    if start == tokenizer.start:
        return tokenizer
    if not isinstance(tokenizer, tokenizers.Pretrained):
        raise UserError(
            f"{path}: decoder_start_token_id = {start}, but the tokenizer has {tokenizer.start}"
        )
    t = tokenizer  # tokenizer_config.json has no word for what starts a target: usually `pad`
    again = tokenizers.Pretrained(t.source, start=start, end=end, pad=t.pad, unk=t.unk, name=t.name)
    again.config = {**t.config, **again.config}
    return again
