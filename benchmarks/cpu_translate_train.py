"""The training row of `cpu_translate.py`, and what its rows share: shapes, export, medians.

The peer is MarianMTModel in a plain loop: our weights, the same pairs in rectangles of like length,
which it finds in memory; smoothed cross-entropy of torch, the same clipping and fused AdamW. Ours
takes the trainer's whole step, reading included. Before anything is timed the losses must agree.
Rates count real target tokens, not padding.
"""

from __future__ import annotations

import gzip
import os
import random
import statistics
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from cpu_train import Step, alternate, trainer_of
from torch import Tensor
from torch.nn import functional as F

from regard.data.batching import TokenLoader
from regard.data.corpus import prepare
from regard.interop.hugging_face import export_hf
from regard.models.encoder_decoder import EncoderDecoder
from regard.planning import plan_recipe
from regard.run import weights, write_config
from regard.storage import write_tensors
from regard.tokenizers.tokenizer import Tokenizer
from regard.training.objectives import NextTokenObjective
from regard.training.trainer import Trainer

OURS, OURS8, HF = "ours", "ours, int8", "Hugging Face"
CT2, CT28 = "CTranslate2", "CTranslate2, int8"
SMOOTHING, TOLERANCE = 0.1, 1e-4
IGNORE = -1  # a target that is not scored


@dataclass(frozen=True, kw_only=True)
class Case:
    """The shape of a model and of the work."""

    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    vocabulary: int
    rows: int = 0  # sources decoded together,
    length: int = 0  # of so many tokens each, and new tokens likewise
    batch_tokens: int = 0  # of targets in a step


TRAIN = Case(n_layers=4, d_model=128, d_ff=256, n_heads=4, vocabulary=8000, batch_tokens=4096)


def quick(case: Case) -> Case:
    """The same so small that it only shows that everything runs."""
    small = replace(case, n_layers=1, d_model=32, d_ff=48, n_heads=2, vocabulary=300)
    return replace(small, rows=min(case.rows, 3), batch_tokens=min(case.batch_tokens, 256))


def export(model: EncoderDecoder, tokenizer: Tokenizer, folder: Path) -> tuple[Any, Path]:
    """The same weights as a Hugging Face model, and the folder it was loaded from."""
    from transformers import AutoModelForSeq2SeqLM

    run, out = folder / "exported", folder / "hf"
    run.mkdir(parents=True)
    write_config(run, "transformer", model)
    write_tensors(run / "model.safetensors", weights(model))
    tokenizer.save(run / "tokenizer.json")
    export_hf(run, out)
    peer = AutoModelForSeq2SeqLM.from_pretrained(
        out, attn_implementation="sdpa", dtype=torch.float32
    )
    peer.generation_config.max_length = None  # max_new_tokens alone says it
    return peer, out


def summary(seconds: dict[str, list[float]], tokens: dict[str, list[int]]) -> dict[str, Any]:
    """Median rates, and ours over each of the peers', int8 over int8."""
    rates = {
        name: [n / s for n, s in zip(tokens[name], took, strict=True)]
        for name, took in seconds.items()
    }
    ratios = {}
    for mine, peer in ((OURS, HF), (OURS, CT2), (OURS8, HF), (OURS8, CT28)):
        if mine in rates and peer in rates:
            found = sorted(a / b for a, b in zip(rates[mine], rates[peer], strict=True))
            quarter = len(found) // 4
            ratios[f"{mine} / {peer}"] = {
                "value": round(statistics.median(found), 3),
                "middle_half": [round(found[quarter], 3), round(found[-1 - quarter], 3)],
            }
    middle = {name: round(statistics.median(found), 1) for name, found in rates.items()}
    return {"tokens_per_second": middle, "ratios": ratios}


def pairs_of(data: Path, folder: Path, count: int) -> list[Path]:
    """Multi30k where `data` has it, else made-up pairs; at most `count`, as two files."""
    paths = [folder / "pairs.en", folder / "pairs.de"]
    source = random.Random(0)
    words = ["".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(20_000)]
    for path in paths:
        given = data / "multi30k" / f"train{path.suffix}.gz"
        if given.exists():
            lines = gzip.decompress(given.read_bytes()).decode().splitlines()[:count]
        else:
            lines = [" ".join(source.choices(words, k=source.randint(6, 18))) for _ in range(count)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


def made_trainer(case: Case, files: list[Path], folder: Path, steps: int) -> Trainer:
    """Our trainer before its first step."""
    chosen = {
        "data.valid_fraction": 0,
        "data.test_fraction": 0,
        "input.tokenizer": "bpe",
        "input.vocab_size": case.vocabulary,
        "output.tokenizer": "bpe",
        "output.vocab_size": case.vocabulary,
        "model.preset": "vaswani",
        "model.n_layers": case.n_layers,
        "model.d_model": case.d_model,
        "model.d_ff": case.d_ff,
        "model.n_heads": case.n_heads,
        "model.n_kv_heads": case.n_heads,
        "model.d_head": case.d_model // case.n_heads,
        "model.dropout": 0.1,
        "train.label_smoothing": SMOOTHING,
        "train.optimizer": "adamw",
        "train.lr": 1e-3,
        "train.batch_tokens": case.batch_tokens,
        "train.steps": steps,
        "train.clip": 1.0,
        "train.device": "cpu",
        "train.precision": "fp32",
        "train.compile": "off",
    }
    recipe, _ = plan_recipe(files, assignments=[f"{key}={value}" for key, value in chosen.items()])
    corpus = prepare(recipe, folder, lambda line: None)
    return trainer_of(recipe, corpus, folder)


Rectangle = dict[str, Tensor]  # what the peer is given


def rectangles(trainer: Trainer, steps: int) -> list[list[Rectangle]]:
    """The same pairs for the peer, which cannot keep several in a row apart: in rectangles of like
    length, those of a step together.
    """
    recipe, pad = trainer.recipe, trainer.corpus.tokenizer.start  # its own padding
    loader = TokenLoader(
        trainer.loader.shard,
        trainer.corpus.tokenizer,
        max_len=trainer.loader.max_len,
        batch_tokens=recipe.batch_tokens,
        seed=recipe.seed,
        supports_packing=False,
    )
    found = []
    for n in range(steps):
        parts = []
        for batch in loader.step(n):
            assert batch.source is not None
            seen = (batch.source.segments > 0).long()
            parts.append(
                {
                    "input_ids": batch.source.ids.where(seen > 0, pad),
                    "attention_mask": seen,
                    "decoder_input_ids": batch.ids.where(batch.targets != IGNORE, pad),
                    "labels": batch.targets,
                }
            )
        found.append(parts)
    return found


def count_targets(part: Rectangle) -> int:
    """Target tokens in a rectangle."""
    return int((part["labels"] != IGNORE).sum())


def their_loss(peer: Any, part: Rectangle, smoothing: float) -> Tensor:
    """Summed cross-entropy of the peer's logits."""
    inputs = {key: value for key, value in part.items() if key != "labels"}
    logits = peer(**inputs, use_cache=False).logits
    return F.cross_entropy(
        logits.flatten(0, 1),
        part["labels"].flatten(),
        ignore_index=IGNORE,
        reduction="sum",
        label_smoothing=smoothing,
    )


def difference(trainer: Trainer, peer: Any, part: Rectangle) -> float:
    """By how many nats per token the two disagree, nothing dropped."""
    model, count = trainer.model.eval(), count_targets(part)
    seen = part["attention_mask"]
    with torch.no_grad():
        theirs = float(their_loss(peer.eval(), part, 0.0))
        _, nats = NextTokenObjective(model)(
            part["decoder_input_ids"], part["labels"], None, part["input_ids"], seen
        )
    model.train()
    peer.train()
    return abs(float(nats) - theirs) / count


def their_step(peer: Any, trainer: Trainer, batches: list[list[Rectangle]]) -> Step:
    """A plain training step of the peer."""
    recipe = trainer.recipe
    optimizer = torch.optim.AdamW(
        peer.parameters(),
        lr=recipe.lr,
        betas=(recipe.beta1, recipe.beta2),
        weight_decay=recipe.weight_decay,
        fused=True,
    )

    def step(n: int) -> None:
        parts = batches[n]
        total = sum(map(count_targets, parts))
        for part in parts:
            (their_loss(peer, part, SMOOTHING) / total).backward()
        torch.nn.utils.clip_grad_norm_(peer.parameters(), recipe.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def train(case: Case, data: Path, folder: Path, rounds: int, count: int) -> dict[str, Any]:
    """The row of training."""
    steps = rounds + 1
    folder.mkdir()
    trainer = made_trainer(case, pairs_of(data, folder, count), folder, steps)
    tokenizer = trainer.corpus.tokenizer
    peer, _ = export(trainer.model, tokenizer, folder)
    batches = rectangles(trainer, steps)
    gap = difference(trainer, peer, batches[0][0])
    if not gap <= TOLERANCE:
        raise SystemExit(f"train: the losses differ by {gap:.2g} nats: nothing to compare")
    seconds = alternate(
        {OURS: trainer.take_step, HF: their_step(peer, trainer, batches)}, rounds, 1
    )
    tokens = {
        OURS: [sum(b.tokens for b in trainer.loader.step(n)) for n in range(1, steps)],
        HF: [sum(map(count_targets, parts)) for parts in batches[1:]],
    }
    return {
        "row": "train",
        "vocabulary": tokenizer.vocab_size,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "loss_difference": gap,
        **summary(seconds, tokens),
    }
