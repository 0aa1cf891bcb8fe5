"""Train one run after the other in this process: `python -m regard.evaluate.several RUN…`.

The folds of a row are many small runs, for each of which a process of its own would take longer to
start than to train. Folds are of one size: as many steps as fit into the minutes of the first are
taken by all. What is finished is not trained again.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from regard.errors import UserError, one_line


def main(runs: Sequence[str | Path]) -> int:
    """Train the recipes that stand in run folders; the exit code, as that of `regard train`."""
    from regard.evaluate.conclusion import conclude
    from regard.evaluate.rungs import finished
    from regard.recipe import build, read, to_toml
    from regard.run import RECIPE, write_text
    from regard.train.progress import Reporter
    from regard.train.session import Session

    steps = 0
    try:
        for run in map(Path, runs):
            recipe = build(read(run / RECIPE))
            if finished(run):
                steps = recipe.train.steps
                continue
            if steps and not recipe.train.steps:
                recipe = recipe.replace(train={"steps": steps})
                write_text(run / RECIPE, to_toml(recipe))
            fitted = Session(run, True, Reporter(), time.monotonic()).fit(recipe)
            if conclude(run, fitted).outcome == "interrupted":
                return 128 + fitted.signal
            steps = fitted.recipe.train.steps
    except UserError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the command line does
    sys.exit(main(sys.argv[1:]))
