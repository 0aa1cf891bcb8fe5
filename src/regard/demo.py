"""The demonstration: one list of names, from counting to attention, in one honest table.

Three models see the same training part and are measured on the same held-out part. Nothing here is
special: each step is a call that a user of the library can make as well.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from regard.api import Predictor, Trained, continuations, held_out, load, plan, shard_of, train
from regard.bundled import NAMES
from regard.cli.look import command as look
from regard.cli.output import print_table
from regard.data.shards import Shard
from regard.decode import Sample
from regard.errors import UserError
from regard.evaluate.report import Figure, difference
from regard.train.progress import Reporter

# Each model and what it is told; the rest is chosen as for any file. Depth helps an LSTM little.
MODELS = {"bigram": {}, "lstm": {"n_layers": 2, "d_model": 128}, "transformer": {}}
SAMPLES = 10


def demo(
    out: str | Path,
    minutes: float,
    *,
    names: Path = NAMES,
    assignments: Sequence[str] = (),
    reporter: Reporter | None = None,
) -> Path:
    """Train each model for `minutes`, print table, difference and samples; the folder of it all.

    `out` is numbered when it is taken, so that nothing is ever overwritten. `assignments` are
    recipe keys ("train.steps=20") that hold for every model.
    """
    folder, reporter = free_folder(Path(out)), reporter or Reporter()
    results: list[Trained] = []
    for name, told in MODELS.items():
        model, budget = {"name": name, **told}, {"minutes": minutes}
        recipe, lines = plan([names], assignments=assignments, model=model, train=budget)
        for line in lines[bool(results) :]:  # what the data are is said once
            reporter.say(line)
        result = train(recipe, folder / name, reporter=reporter, began=time.monotonic())
        if result.outcome == "interrupted":
            raise UserError(f"interrupted; what was trained so far is in {folder}")
        results.append(result)
    counting, *_, attending = (load(result.run) for result in results)
    _, test = held_out(results[0].run, counting)
    print_results(results, test.records)
    print_difference(attending, counting, test)
    print_samples(results, set(names.read_text(encoding="utf-8").split()))
    print_places(folder, attending)
    return folder


def free_folder(out: Path) -> Path:
    """`out`, or `out-2`, `out-3`, … if it is taken."""
    folder, number = out, 1
    while folder.exists():
        number += 1
        folder = out.with_name(f"{out.name}-{number}")
    return folder


def print_results(results: Sequence[Trained], records: int) -> None:
    """The table, one row a model."""
    rows = []
    for name, result in zip(MODELS, results, strict=True):
        found = result.figures["test"]
        figures = [str(found[key]) for key in ("nats_per_symbol", "bits_per_symbol")]
        rows.append([name, f"{result.parameters:,}", *figures, f"{result.seconds:.0f} s"])
    title = f"{records:,} held-out names, 95% intervals; a symbol is a letter or the end of a name"
    columns = ["model", "parameters", "nats per symbol", "bits per symbol", "time"]
    print()
    print_table(columns, rows, title=title)


def print_difference(ours: Predictor, theirs: Predictor, test: Shard) -> None:
    """The two models in pairs, name by name, where both are finite."""
    records = [test.record(i) for i in range(test.records)]
    texts = [theirs.tokenizer.decode(ids[1:-1]) for ids in records]
    scored = zip(texts, theirs.score(texts), strict=True)
    possible = [text for text, (_, logs) in scored if min(logs) > float("-inf")]
    shard = shard_of(possible, theirs.tokenizer)
    gap: Figure = difference(ours.measure(shard), theirs.measure(shard))
    left = len(texts) - len(possible)
    if left:
        print(
            f"\nA count of zero is a probability of zero: the bigram holds {left:,} of these names"
            "\nimpossible, which costs it infinitely much. Without them, name by name:",
            end="",
        )
    verdict = "better" if gap.high < 0 else "worse" if gap.low > 0 else "not told apart"
    print(f"\ntransformer minus bigram: {gap} nats per symbol ({verdict})")


def print_samples(results: Sequence[Trained], known: set[str]) -> None:
    """New names from each model, those that are in the list marked."""
    print("\nten new names each (* is in the list already):")
    for name, result in zip(MODELS, results, strict=True):
        found = continuations(load(result.run), [""], Sample(seed=1), copies=SAMPLES, max_new=30)
        marked = [f"{one.text}*" if one.text in known else one.text for one in found]
        print(f"  {name:<12} {' '.join(marked)}")


def print_places(folder: Path, attending: Predictor) -> None:
    """Write the transformer's page and say where everything is."""
    run = shlex.quote(str(attending.run))
    print("\nwhat the transformer does inside, as a page for a browser:")
    look(attending.run, "", out=folder / "look.html", png=None, beams=4)
    print(f"run folders: {folder}/{{{','.join(MODELS)}}}")
    print(f"go on with:  regard generate {run} --prompt ma")
