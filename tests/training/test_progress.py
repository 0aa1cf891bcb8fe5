"""What a user sees of a run: its status in words, warnings even when quiet, and signals."""

import math
import os
import signal

import pytest

from regard.training.progress import Interrupt, Reporter, Status, clock, resident_bytes


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "0:03"), (125, "2:05"), (3723, "1:02:03"), (-4, "0:00")]
)
def test_times_are_shown_as_on_a_clock(seconds, words):
    assert clock(seconds) == words


def test_the_status_of_symbols_is_shown_in_bits_too():
    line = Status(3, 10, math.log(4), 1234.5, 61, 1.25, 0.5).line()
    assert line.startswith("loss 1.3863 · 2.000 bits/symbol · best valid 1.2500 ± 0.5000 · ")
    assert "1,234 symbols/s" in line and line.endswith("ETA 1:01")
    words = Status(3, 10, 1.0, 10, None, None, unit="word").line()
    assert "bits" not in words and "10 words/s" in words and words.endswith("ETA …")


def test_a_quiet_reporter_prints_nothing_but_warnings(capsys):
    quiet = Reporter(quiet=True)
    quiet.say("hello [b]")
    quiet.warn("be\ncareful")
    Reporter().say("hello [b]")
    assert capsys.readouterr().err.splitlines() == ["warning: be careful", "hello [b]"]


def test_without_a_terminal_the_status_is_a_line_now_and_then(capsys):
    reporter = Reporter()
    reporter.start(10, 0)
    reporter.update(Status(1, 10, 1.0, 10, None, None))
    assert capsys.readouterr().err == ""
    reporter.last -= 11
    reporter.update(Status(2, 10, 1.0, 10, None, None))
    reporter.stop()
    assert capsys.readouterr().err.startswith("step 2/10 · loss 1.0000")


def test_the_first_signal_is_noted_and_a_second_one_acts(request):
    # a shell starts background jobs with the signal ignored
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupt.asked == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    with Interrupt(repeated=True) as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert interrupt.asked == signal.SIGINT


def test_a_process_holds_memory():
    assert 1 << 20 < resident_bytes() < 1 << 45
