"""Training on a CPU in fp32: our trainer against Hugging Face's model of the same shape, from the
same weights, on the same batches.

tiny is the `modern` preset (Qwen3ForCausalLM) with characters, small is `gpt2` (GPT2LMHeadModel)
with byte pairs. Before anything is timed both must give the same loss. Ours takes the trainer's
whole step: the batch is read from a shard, and loss and gradient are checked to be finite. The peer
finds its batches in memory, takes the loss of its own `labels` path, fused attention, no key-value
cache, the same clipping and the same fused AdamW. Nothing is compiled on either side. Muon, our
default optimizer, stands beside it: another method, so its ratio is of speed alone.

Blocks of steps alternate, the order turning from round to round. Rates are medians over rounds; the
ratio is the median of the rounds' own ratios, beside the middle half of these, so that a machine
which is busy for a while slows both sides of it. On an idle one it is the ratio of the rates.

    python benchmarks/cpu_train.py --rounds 21 --json cpu_train.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import torch
from torch import nn

from regard.data.corpus import Corpus, prepare
from regard.interop.hugging_face import export_hf
from regard.planning import plan_recipe
from regard.recipe import Recipe
from regard.run import weights, write_config
from regard.storage import write_tensors
from regard.training.objectives import NextTokenObjective
from regard.training.progress import Reporter
from regard.training.trainer import Session, Trainer

IGNORE = -1  # a target that is not scored
TOLERANCE = 1e-4  # nats by which two computations of one loss may differ in fp32
LEARNING_RATE = {"adamw": 1e-3, "muon": 0.02}
OURS, MUON, THEIRS = "ours", "ours, muon", "Hugging Face"
COLUMNS = ("vocabulary", "batch", "trainer", "tokens/s", "ratio", "middle half")

Step = Callable[[int], object]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model, the shape of its batches, and how many steps make a block."""

    name: str
    peer: str  # the class of Hugging Face that computes the same
    preset: str
    n_layers: int
    d_model: int
    tokenizer: str
    vocabulary: int  # requested size; 0 = the symbols of the text
    context: int
    rows: int
    block: int

    @property
    def positions(self) -> int:
        """Tokens in a step."""
        return self.rows * self.context


CASES = (
    Case(
        name="tiny",
        peer="Qwen3ForCausalLM",
        preset="modern",
        n_layers=4,
        d_model=128,
        tokenizer="characters",
        vocabulary=0,
        context=64,
        rows=32,
        block=4,
    ),
    Case(
        name="small",
        peer="GPT2LMHeadModel",
        preset="gpt2",
        n_layers=4,
        d_model=256,
        tokenizer="bpe",
        vocabulary=8192,
        context=256,
        rows=8,
        block=1,
    ),
)


def quick(case: Case) -> Case:
    """The same case so small that it only shows that everything runs."""
    vocabulary = min(case.vocabulary, 300)
    return replace(case, n_layers=1, d_model=32, vocabulary=vocabulary, context=16, rows=4, block=2)


def made_up(size: int, seed: int = 0) -> str:
    """Text of about so many characters of 64 kinds, with enough words for 8,192 byte pairs."""
    source = random.Random(seed)
    letters = [chr(i) for i in range(ord("A"), ord("A") + 62)]
    words = ["".join(source.choices(letters, k=source.randint(2, 9))) for _ in range(20_000)]
    frequency = [1 / (i + 10) for i in range(len(words))]
    parts: list[str] = []
    length = 0
    while length < size:
        parts.append(" ".join(source.choices(words, frequency, k=80)) + "\n")
        length += len(parts[-1])
    return "".join(parts)


def text_file(data: Path, folder: Path, size: int) -> Path:
    """Tiny Shakespeare where `data` has it, else made-up text, at most `size` characters of it."""
    given = data / "tinyshakespeare" / "input.txt"
    path = folder / "text.txt"
    path.write_text(given.read_text()[:size] if given.exists() else made_up(size))
    return path


def recipe_of(case: Case, text: Path, optimizer: str, steps: int) -> Recipe:
    """Return the recipe of a case."""
    chosen = {
        "data.format": "text",
        "output.tokenizer": case.tokenizer,
        "output.vocab_size": case.vocabulary,
        "model.preset": case.preset,
        "model.n_layers": case.n_layers,
        "model.d_model": case.d_model,
        "model.max_len": case.context,
        "model.dropout": 0.0,
        "train.optimizer": optimizer,
        "train.lr": LEARNING_RATE[optimizer],
        "train.batch_tokens": case.positions,
        "train.steps": steps,
        "train.clip": 1.0,
        "train.device": "cpu",
        "train.precision": "fp32",
        "train.compile": "off",
    }
    return plan_recipe([text], assignments=[f"{key}={value}" for key, value in chosen.items()])[0]


def trainer_of(recipe: Recipe, corpus: Corpus, run: Path) -> Trainer:
    """Our trainer before its first step."""
    trainer = Session(run, False, Reporter(quiet=True), 0.0).trainer(recipe, corpus, None)
    trainer.model.train()
    return trainer


def peer_of(case: Case, trainer: Trainer, folder: Path) -> nn.Module:
    """Hugging Face's model with the weights that ours has now."""
    import transformers

    run = folder / "exported"
    run.mkdir()
    write_config(run, "transformer", trainer.model)
    write_tensors(run / "model.safetensors", weights(trainer.model))
    trainer.corpus.tokenizer.save(run / "tokenizer.json")
    export_hf(run, folder / "hf")
    peer: nn.Module = getattr(transformers, case.peer).from_pretrained(
        folder / "hf", attn_implementation="sdpa", dtype=torch.float32
    )
    return peer.train()


def loss_of(peer: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """The loss of the peer's own path; it shifts the labels itself."""
    loss: torch.Tensor = peer(input_ids=ids, labels=ids, use_cache=False).loss
    return loss


def difference(trainer: Trainer, peer: nn.Module) -> float:
    """By how many nats the two disagree on the first batch.

    The peer makes logits for every position but cannot ask the last one, whose target it does not
    know; for this comparison neither do we.
    """
    (batch,) = trainer.loader.step(0)
    targets = batch.targets.clone()
    targets[:, -1] = IGNORE
    with torch.no_grad():
        _, nats = NextTokenObjective(trainer.model)(batch.ids, targets)
        return abs(float(nats) / int((targets != IGNORE).sum()) - float(loss_of(peer, batch.ids)))


def their_step(peer: nn.Module, trainer: Trainer, steps: int) -> Step:
    """A plain training step of the peer on the batches of our trainer, read beforehand."""
    batches = [trainer.loader.step(n)[0].ids for n in range(steps)]
    recipe = trainer.recipe
    optimizer = torch.optim.AdamW(
        peer.parameters(),
        lr=recipe.lr,
        betas=(recipe.beta1, recipe.beta2),
        weight_decay=recipe.weight_decay,
        fused=True,
    )

    def step(n: int) -> float:
        loss = loss_of(peer, batches[n])
        loss.backward()
        nn.utils.clip_grad_norm_(peer.parameters(), recipe.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    return step


def alternate(steps: dict[str, Step], rounds: int, block: int) -> dict[str, list[float]]:
    """Seconds of each block of steps, by name; the first round is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            start = time.perf_counter()
            for n in range(turn * block, (turn + 1) * block):
                steps[name](n)
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def compare(case: Case, text: Path, folder: Path, rounds: int) -> dict[str, Any]:
    """One case: check that the losses agree, then time everyone."""
    steps = (rounds + 1) * case.block
    folder.mkdir()
    recipe = recipe_of(case, text, "adamw", steps)
    corpus = prepare(recipe, folder, lambda line: None)
    trainer = trainer_of(recipe, corpus, folder)
    muon = trainer_of(recipe_of(case, text, "muon", steps), corpus, folder)
    (first,) = trainer.loader.step(0)
    assert first.ids.shape == (case.rows, case.context), f"a batch is {tuple(first.ids.shape)}"
    peer = peer_of(case, trainer, folder)
    gap = difference(trainer, peer)
    if not gap <= TOLERANCE:
        raise SystemExit(f"{case.name}: the losses differ by {gap:.2g} nats: nothing to compare")
    takers = {OURS: trainer.take_step, THEIRS: their_step(peer, trainer, steps)}
    seconds = alternate({**takers, MUON: muon.take_step}, rounds, case.block)
    tokens = case.block * case.positions
    rates = {name: tokens / statistics.median(seconds[name]) for name in seconds}
    ratios = {
        name: sorted(b / a for a, b in zip(seconds[name], seconds[THEIRS], strict=True))
        for name in (OURS, MUON)
    }
    return {
        "name": case.name,
        "case": asdict(case) | {"vocabulary": corpus.tokenizer.vocab_size},
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
        "loss_difference": gap,
        "tokens_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "ratio": {name: round(statistics.median(found), 3) for name, found in ratios.items()},
        "ratio_middle_half": {
            name: [round(found[len(found) // 4], 3), round(found[-1 - len(found) // 4], 3)]
            for name, found in ratios.items()
        },
        "rounds": rounds,
    }


def lines(row: dict[str, Any]) -> list[str]:
    """The table's lines of one case."""
    case = row["case"]
    found = []
    for name, rate in row["tokens_per_second"].items():
        ratio = low = high = ""
        if name in row["ratio"]:
            ratio = f"{row['ratio'][name]:.2f}"
            low, high = (f"{value:.2f}" for value in row["ratio_middle_half"][name])
        spread = f"{low} – {high}" if low else ""
        batch = f"{case['rows']} × {case['context']}"
        label = {THEIRS: case["peer"]}.get(name, f"regard{name.removeprefix(OURS)}")
        found.append(
            f"{row['name']:<7}{case['vocabulary']:>10,}{batch:>10}  {label:<18}"
            f"{rate:>10,.0f}{ratio:>7}  {spread}"
        )
    return found


def main() -> int:
    """Compare the cases, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21, help="blocks timed for each trainer")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("../shared/data"),
        help="holds tinyshakespeare/input.txt; without it the text is made up",
    )
    parser.add_argument("--quick", action="store_true", help="seconds, and figures of no meaning")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    cases = [quick(case) for case in CASES] if args.quick else CASES
    rounds = 2 if args.quick else args.rounds
    if rounds < 1:
        parser.error(f"--rounds must be at least 1, got {rounds}")
    facts = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "rounds": rounds,
    }
    print(f"fp32, {facts['threads']} threads, torch {facts['torch']}, {rounds} rounds")
    vocabulary, batch, trainer, rate, ratio, spread = COLUMNS
    print(f"{'':<7}{vocabulary:>10}{batch:>10}  {trainer:<18}{rate:>10}{ratio:>7}  {spread}")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        text = text_file(args.data, folder, 20_000 if args.quick else 1_200_000)
        for case in cases:
            rows.append(compare(case, text, folder / case.name, rounds))
            print("\n".join(lines(rows[-1])), flush=True)
    gaps = ", ".join(f"{row['loss_difference']:.1e} ({row['name']})" for row in rows)
    print(f"same weights, same batch: the losses differ by {gaps} nats")
    if args.json:
        args.json.write_text(json.dumps({**facts, "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
