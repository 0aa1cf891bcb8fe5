"""Labels and values on public sets, by the published protocols: the recipe's Transformer and other
rows, by seeds or folds, with the published figure beside them.

A row is trained by `regard train`: `transformer`, from scratch, and `pretrained` by recipes, the
others as they come (`--model NAME`). Pre-training fills in masked tokens: of WikiText-2 for
text, of the molecules of HIV for molecules, of the training sequences themselves for proteins; of
test records it sees none, but for HIV's molecules, some of which are in other sets too, without
what is asked. Seeds are told as mean ± standard deviation and, together, as an ensemble whose
probabilities are averaged; folds are pooled: every record is tested once. Figures on the validation
side stand beside them, since they alone may choose a row or a setting. What pre-training gains is
told with a 95% interval over records, in pairs.

    python benchmarks/labels.py trec splice esol [--data DIR] [--rows transformer,logistic]
        [--seeds 5] [--jobs 1] [--set train.steps=300] [--keep FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from label_sets import CORPORA, SETS, Set

RECIPES = Path(__file__).parent.parent / "recipes"


@dataclass(frozen=True)
class Job:
    """One run: a row on one fold, or with one seed, and what `regard train` is told."""

    name: str
    row: str
    run: Path
    words: tuple[str, ...]
    start: Path | None = None  # the run it begins from


@dataclass(frozen=True)
class Done:
    """What came of it: the seconds that training took, and by side what was answered."""

    seconds: float
    answers: dict[str, Any]


def carried_out(job: Job) -> Done:
    """Train and measure, in this process."""
    import regard.cli
    from regard.api import load_examiner
    from regard.data.corpus import reopen

    began, said = time.perf_counter(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = regard.cli.run(["train", *job.words, "--out", str(job.run), "--quiet"])
    if code:
        raise RuntimeError(f"regard train {' '.join(job.words)}\n{said.getvalue()[-3000:]}")
    seconds = time.perf_counter() - began
    if not job.row:  # pre-training
        return Done(seconds, {})
    corpus, predictor = reopen(job.run), load_examiner(job.run, device="auto")
    sides = {side: corpus.side(side) for side in ("valid", "test")}
    return Done(seconds, {s: predictor.measure(x) for s, x in sides.items() if x is not None})


def planned(
    name: str, one: Set, row: str, number: int, words: Sequence[str], sets: Sequence[str]
) -> list[str]:
    """What `regard train` is told, for one fold or seed of a row."""
    chosen = ["--model", row]
    if row in ("transformer", "pretrained", *one.rows):
        recipe = CORPORA[one.start][2] if row == "pretrained" else one.recipe or name
        chosen = [str(RECIPES / f"{recipe}.toml"), *one.rows.get(row, ())]
        sets = [*one.settings, *sets]
    split = [f"data.fold={number}", f"data.folds={one.folds}"]
    if not one.folds:
        split = [f"train.seed={number}"]
        if "--valid" not in words:  # other seeds, other sides
            test = 0.0 if "--test" in words else 0.1
            split += ["data.valid_fraction=0.1", f"data.test_fraction={test}"]
            split += [f'data.split="{one.split}"'] if one.split else []
            split += [] if one.split == "scaffold" else [f"data.split_seed={number}"]
    given = [word for each in (*split, *sets) for word in ("--set", each)]
    return [*chosen, *words, *given]


def pretraining(
    name: str, one: Set, words: Sequence[str], sets: Sequence[str], data: Path, folder: Path
) -> Job:
    """The run that the row `pretrained` begins from."""
    make, recipe, _ = CORPORA[one.start]
    run = folder / f"{name}-pretrained" if make is None else folder / f"{one.start}-pretrained"
    file, more = [words[0], "--input", "text"], list[str]()
    if make is not None:
        file = [str(make(data, folder / one.start))]
    elif "--valid" in words:
        more = ["--valid", words[words.index("--valid") + 1]]
    if make is None:
        sets = [*sets, *(each for each in one.settings if each.startswith("model.max_len"))]
    given = [word for each in sets for word in ("--set", each)]
    return Job(name, "", run, (str(RECIPES / f"{recipe}.toml"), *file, *more, *given))


def pooled(parts: Sequence[Any]) -> Any:
    """The answers of all folds as one."""
    from regard.evaluation.predictions import Predictions as Answered

    joined = [np.concatenate([getattr(p, k) for p in parts]) for k in ("scores", "truths")]
    return Answered(parts[0].task, *joined, np.concatenate([p.lengths for p in parts]))


def ensemble(parts: Sequence[Any]) -> Any:
    """What all seeds say of the same records, on average."""
    from regard.evaluation.predictions import Predictions as Answered
    from regard.evaluation.predictions import average_views as averaged

    first = parts[0]
    stacked = np.stack([p.scores for p in parts], 1).reshape(-1, first.scores.shape[1])
    scores = averaged(first.task, stacked, len(parts))
    return Answered(first.task, scores, first.truths, first.lengths)


def summary(name: str, one: Set, row: str, done: Sequence[Done]) -> dict[str, Any]:
    """The figures of a row."""
    seconds = statistics.fmean(each.seconds for each in done)
    found: dict[str, Any] = {"set": name, "row": row, "seconds": round(seconds, 1)}
    for side in ("valid", "test"):
        parts = [each.answers[side] for each in done if side in each.answers]
        if not parts:
            continue
        if one.folds:
            figures = pooled(parts).figures()
            found[side] = {key: figure.to_json() for key, figure in figures.items()}
            continue
        each = [part.figures() for part in parts]
        found[side] = {
            key: {
                "mean": statistics.fmean(f[key].value for f in each),
                "sd": statistics.stdev(f[key].value for f in each) if len(each) > 1 else 0.0,
                "values": [f[key].value for f in each],
            }
            for key in each[0]
        }
        if len(parts) > 1 and alike(parts):
            together = ensemble(parts).figures()
            found[side]["ensemble"] = {key: f.to_json() for key, f in together.items()}
    return found


def gain(done: Sequence[Done], others: Sequence[Done], metric: str) -> dict[str, Any]:
    """How much more one row's figure is than another's on the same test records, in pairs."""
    from regard.evaluation.estimates import mean_over_seeds

    def estimated(several: Sequence[Done]) -> Any:
        parts = [each.answers["test"] for each in several]
        if len(parts) > 1 and alike(parts):
            return mean_over_seeds([part.estimates for part in parts])[metric]
        return pooled(parts).estimates[metric]

    found: dict[str, Any] = estimated(done).minus(estimated(others)).to_json()
    return found


def alike(parts: Sequence[Any]) -> bool:
    """Are the records the same in all of them?"""
    return all(np.array_equal(p.truths, parts[0].truths, equal_nan=True) for p in parts)


def line(found: dict[str, Any], metric: str) -> str:
    """A row of the table as text."""
    cells = []
    for side in ("valid", "test"):
        told = found.get(side, {})
        if metric in told:
            one = told[metric]
            if "mean" in one:
                cells.append(f"{side} {one['mean']:.4f} ± {one['sd']:.4f}")
            else:
                cells.append(f"{side} {one['value']:.4f} [{one['low']:.4f}, {one['high']:.4f}]")
        if "ensemble" in told:
            cells.append(f"together {told['ensemble'][metric]['value']:.4f}")
    if "gain" in found:
        g = found["gain"]
        cells.append(f"{g['value']:+.4f} [{g['low']:+.4f}, {g['high']:+.4f}] to transformer")
    return f"  {found['row']:<14} {metric} {', '.join(cells)}; {found['seconds']:.0f} s a run"


def main(sets: Mapping[str, Set] = SETS, about: str | None = __doc__) -> None:
    """Train, measure, print, write."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", choices=[*sets, "all"], metavar="SET")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--rows", default="transformer")
    parser.add_argument("--seeds", type=int, default=0, help="0: as the protocol has it")
    parser.add_argument("--jobs", type=int, default=1, help="trained side by side")
    parser.add_argument("--set", action="append", default=[], help="for all runs")
    parser.add_argument("--keep", type=Path, help="where the runs are to stay")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    names = list(sets) if "all" in args.names else args.names
    with tempfile.TemporaryDirectory() as temporary:
        run(sets, names, args, args.keep or Path(temporary))


def run(sets: Mapping[str, Set], names: Sequence[str], args: Any, folder: Path) -> None:
    """Prepare the sets and carry out what is asked of them."""
    first: dict[Path, Job] = {}
    jobs: dict[tuple[str, str], list[Job]] = {}
    for name in names:
        one, own = sets[name], folder / name
        own.mkdir(parents=True, exist_ok=True)
        words = one.prepare(args.data, own)
        count = one.folds if one.folds > 0 else args.seeds or one.seeds
        if one.folds < 0:
            count = len(set((own / "all.tsv").read_text().splitlines()[1:]))
        for row in args.rows.split(","):
            more, start = list[str](), None
            if row == "pretrained":
                if not one.start:
                    continue
                begin = pretraining(name, one, words, args.set, args.data, folder)
                first[begin.run], start = begin, begin.run
                more = ["--pretrain", str(begin.run)]
            jobs[name, row] = [
                Job(
                    name,
                    row,
                    own / f"{row}-{n}",
                    (*planned(name, one, row, n, words, args.set), *more),
                    start,
                )
                for n in range(count)
            ]
    carry_out(sets, jobs, first, args)


def carry_out(
    sets: Mapping[str, Set],
    jobs: Mapping[tuple[str, str], Sequence[Job]],
    first: Mapping[Path, Job],
    args: Any,
) -> None:
    """All runs side by side, what begins from another when that is done; every row once it is."""
    done: dict[Job, Done] = {}
    told: dict[tuple[str, str], dict[str, Any]] = {}
    with ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn")) as pool:
        everyone = [job for several in jobs.values() for job in several]
        waiting = [job for job in everyone if job.start in first]
        at_once = [job for job in everyone if job.start not in first]
        running = {pool.submit(carried_out, job): job for job in (*first.values(), *at_once)}
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                done[job] = future.result()
                for other in [each for each in waiting if each.start == job.run]:
                    waiting.remove(other)
                    running[pool.submit(carried_out, other)] = other
            for key, several in jobs.items():
                if key not in told and all(job in done for job in several):
                    told[key] = tell(sets[key[0]], key, jobs, done)
                    if args.json:
                        ordered = [told[key] for key in jobs if key in told]
                        args.json.write_text(json.dumps(ordered, indent=1) + "\n")


def tell(
    one: Set,
    key: tuple[str, str],
    jobs: Mapping[tuple[str, str], Sequence[Job]],
    done: Mapping[Job, Done],
) -> dict[str, Any]:
    """Print the figures of a row; beside the row from scratch where that is there too."""
    name, row = key
    found = summary(name, one, row, [done[job] for job in jobs[key]])
    other = jobs.get((name, "transformer"), ())
    if row == "pretrained" and other and all(job in done for job in other):
        found["gain"] = gain([done[j] for j in jobs[key]], [done[j] for j in other], one.metric)
    beside = f"{name}: published {one.published}; wanted {one.bar or 'beside it'}"
    print(f"{beside}\n{line(found, one.metric)}", flush=True)
    return found


if __name__ == "__main__":
    main()
