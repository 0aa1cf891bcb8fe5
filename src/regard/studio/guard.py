"""Run a command and end it when our standard input closes, as it does when the studio dies in any
way. Run by its path, so that it imports nothing of regard: `python guard.py COMMAND…`.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

GRACE = 10.0  # seconds in which a command may save what it has


def main() -> int:
    """Return the exit code of the command."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the command, of the same group
        signal.signal(number, lambda *_: None)
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    threading.Thread(target=end_with_studio, args=(process,), daemon=True).start()
    return process.wait()


def end_with_studio(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the end of our input; then stop the command and everything that it started."""
    sys.stdin.buffer.read()
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    time.sleep(0.1)  # the exit code of a command that ended by itself is returned first
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
