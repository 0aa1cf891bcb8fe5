"""Run a command and end it when our standard input closes, as it does when the studio dies in any
way. Run by its path, so that it imports nothing of regard: `python guard.py COMMAND…`.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading

GRACE = 10.0  # seconds in which a command may save what it has


def main() -> None:
    """Run the command; exit with its code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # meant for the command, of the same group
        signal.signal(number, lambda *_: None)
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    closing = threading.Event()
    watch = threading.Thread(target=end_with_studio, args=(process, closing), daemon=True)
    watch.start()
    code = process.wait()
    if closing.is_set():
        watch.join()  # which ends us, too
    os._exit(code if code >= 0 else 128 - code)  # the thread that waits for input cannot be joined


def end_with_studio(process: "subprocess.Popen[bytes]", closing: threading.Event) -> None:
    """Wait for the end of our input; then stop the command and everything that it started."""
    while os.read(0, 1024):
        pass
    closing.set()
    process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
