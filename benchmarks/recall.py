"""Associative recall and induction at lengths that a CPU has no patience for, by mixer.

    python benchmarks/recall.py [--length 2048] [--mixers attention,hyena] [--device cuda]
        [--tasks recall] [--steps 4000] [--tokens 32768] [--parameters 500000] [--lr 0.02]
        [--json FILE]

The experiment is that of `regard lab recall`: two layers, a vocabulary of 30, sequences that grow
while the models learn; in far recall and induction the target depends on the first quarter alone.
`--tasks` are those that are learned: `recall` alone as it is published, or several in turns; tasks
that are not learned are not reported. On a GPU products are in bf16, transforms in fp32. The goal:
recall 99% right at 2,048 for attention and Hyena.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch

from regard.lab.recall import ATTENTION, HYENA, MIXERS, RECALL, TASKS, Plan, evaluate, learn

BAR = 0.99


class Progress:
    """Prints the progress of a mixer every ten seconds."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0.0
        self.start = self.last = time.monotonic()

    def __call__(self, tokens: float) -> None:
        """Count tokens that were read since the last call."""
        self.done += tokens
        now = time.monotonic()
        if now - self.last > 10:
            self.last = now
            left = (now - self.start) * (self.total / self.done - 1)
            print(f"{self.name}: {self.done / self.total:.0%}, {left:.0f} s left", file=sys.stderr)


def main() -> int:
    """Train the mixers, test them and print their accuracies."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--mixers", default=f"{ATTENTION},{HYENA}", help="; ".join(MIXERS))
    parser.add_argument("--tasks", default=",".join(TASKS), help="learned, of these")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--tokens", type=int, default=32_768, help="of a step")
    parser.add_argument("--parameters", type=int, default=500_000)
    parser.add_argument("--tested", type=int, default=500, help="sequences of each length")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    unknown = [name for name in args.mixers.split(",") if name not in MIXERS]
    if unknown:
        parser.error(f"unknown mixer {unknown[0]!r}; choose of: {'; '.join(MIXERS)}")
    tasks = tuple(args.tasks.split(","))
    if set(tasks) - set(TASKS):
        parser.error(f"tasks are {', '.join(TASKS)}")
    plan = Plan(
        tasks=tasks,
        lengths=(
            *tuple(n for n in (64, 256, 512, 1024, 2048, 4096, 8192) if n < args.length),
            args.length,
        ),
        steps=args.steps,
        tokens=max(args.tokens, args.length),
        tested=args.tested,
        parameters=args.parameters,
        lr=args.lr,
        adam_lr=args.adam_lr,
        device=args.device,
    )
    rows, passed = {}, True
    for name in args.mixers.split(","):
        start = time.monotonic()
        model = learn(name, plan, args.seed, Progress(name, plan.train_tokens))
        seconds = time.monotonic() - start
        accuracies = evaluate(model, plan, args.seed)
        rows[name] = {f"{task} {n}": str(s) for (task, n), s in accuracies.items() if task in tasks}
        rows[name]["seconds"] = f"{seconds:.0f}"
        if name in (ATTENTION, HYENA) and RECALL in tasks:
            passed &= accuracies[RECALL, args.length].value >= BAR
        for task in tasks:
            row = "  ".join(f"n={n}: {100 * accuracies[task, n].value:.1f}" for n in plan.lengths)
            print(f"{name:24}{task:12}{row}  ({seconds:.0f} s)", flush=True)
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, "passed": passed}, indent=1))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
