"""Search texts by a regular expression, for a limited time.

A pattern such as (a+)+$ may try for ever, and while it does, Python's `re` lets no other thread
run. So it runs in a process of its own, which the system ends when its time is over. That process
runs this file by its path, so that it imports nothing of regard.
"""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence


class PatternError(ValueError):
    """A pattern that cannot be read, or takes too long."""


def search_texts(pattern: str, texts: Sequence[str], seconds: float) -> list[bool]:
    """Return for each text whether a pattern occurs in it, in any case."""
    command = [sys.executable, "-I", __file__, str(seconds)]
    request = json.dumps([pattern, list(texts)])
    done = subprocess.run(command, input=request, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGALRM:
        advice = "repeat no part that repeats itself, as in (a+)+, or search for a plain text"
        raise PatternError(f"takes more than {seconds:g} seconds on these records: {advice}")
    if done.returncode:
        raise PatternError(done.stderr.strip() or f"stopped with status {done.returncode}")
    matches: list[bool] = json.loads(done.stdout)
    return matches


def main() -> None:
    """Read a pattern and texts, and print which texts match, before an alarm ends the process."""
    pattern, texts = json.load(sys.stdin)
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
    try:
        expression = re.compile(pattern, re.IGNORECASE)
    except (re.error, RecursionError, OverflowError) as error:
        sys.exit(f"is no regular expression: {error}")
    print(json.dumps([expression.search(text) is not None for text in texts]))


if __name__ == "__main__":
    main()
