"""What a user sees of a run: its status in words, warnings even when quiet, and signals."""

import io
import os
import signal
import sys
import types

import pytest
from rich.console import Console

from regard.training import progress
from regard.training.progress import (
    Interrupt,
    Reporter,
    Status,
    TerminalLine,
    clock,
    resident_bytes,
)


@pytest.mark.parametrize(
    ("seconds", "words"), [(3, "0:03"), (125, "2:05"), (3723, "1:02:03"), (-4, "0:00")]
)
def test_times_are_shown_as_on_a_clock(seconds, words):
    assert clock(seconds) == words


MOLECULES = Status("step", 410, 498, "molecules", 60.2, 32.0, "validation RMSE 1.17")


def test_a_status_names_the_metric_and_the_unit():
    words = "step 410/498 · validation RMSE 1.17 · 60 molecules/s · 0:32 left"
    assert MOLECULES.line() == words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status("encoding", 84e7, 1e9, "bytes", 1.9e6, 85.0), "encoding 84% of 1.0 GB · 1.9 MB/s"),
        (Status("encoding", 84e7, 0, "bytes", 2e6), "encoding 840 MB · 2.0 MB/s"),
        (Status("predicting", 12000, 0, "records", 0.5), "predicting 12,000 · 0.5 records/s"),
        (
            Status("fitting svm", 12, 30, "seconds", 1.0, None, "C = 1"),
            "fitting svm 0:12/0:30 · C = 1",
        ),
        (Status("distance", 25.2, 100, "%", 0.0, 60.0), "distance 25% · 1:00 left"),
    ],
)
def test_each_unit_is_shown_as_people_write_it(status, words):
    assert status.line().startswith(words)


@pytest.mark.parametrize("width", [80, 60, 40, 20])
def test_a_line_fits_its_width_and_loses_the_speed_first(width):
    long = Status(
        "step", 12000, 100_000, "masked tokens", 1.2e6, 4000.0, "validation 2.08 nats/token"
    )
    line = long.line(width)
    assert len(line) <= width and line.startswith("step 12,000/100,000"[:width])
    assert "nats/token" in long.line(80) and "masked" not in long.line(80)
    assert MOLECULES.line(80) == MOLECULES.line()


def screen(width, status):
    """What a terminal of this width shows of a status."""
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(TerminalLine.render(status, width))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_terminal_shows_one_line_and_a_bar_where_there_is_room(width):
    (line,) = screen(width, MOLECULES)
    assert len(line.rstrip()) <= width
    assert ("━" in line) == (width > 70)
    assert width < 80 or MOLECULES.line() in line


def test_a_quiet_reporter_prints_nothing_but_warnings(capsys):
    quiet = Reporter(quiet=True)
    quiet.say("hello [b]")
    quiet.warn("be\ncareful")
    quiet.show(MOLECULES)
    Reporter().say("hello [b]")
    assert capsys.readouterr().err.splitlines() == ["warning: be careful", "hello [b]"]


def test_without_a_terminal_the_status_is_a_line_now_and_then(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    reporter = Reporter()
    for now[0] in (100.0, 129.0, 131.0, 140.0, 162.0):
        reporter.show(MOLECULES)
    reporter.stop()
    assert capsys.readouterr().err.splitlines() == [MOLECULES.line()] * 2  # at 131 and 162
    often = Reporter(every=1)
    for now[0] in (162.5, 163.0, 164.0, 164.5):
        often.show(MOLECULES)
    assert len(capsys.readouterr().err.splitlines()) == 2  # at 163 and 164


def test_a_quieter_reporter_still_shows_progress_and_repeats_no_warning(capsys, monkeypatch):
    reporter = Reporter()
    reporter.warn("once")
    quieter, statuses = reporter.quieter(), []
    quieter.warn("once")
    quieter.say("nothing")
    monkeypatch.setattr(reporter.logged, "show", statuses.append)
    quieter.show(MOLECULES)
    assert capsys.readouterr().err == "warning: once\n" and statuses == [MOLECULES]


def test_an_activity_is_shown_once_it_takes_a_while_and_its_speed_is_its_own(monkeypatch):
    now, statuses = [0.0], []
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    reporter = Reporter()
    monkeypatch.setattr(reporter, "show", statuses.append)
    for now[0], done in ((0.0, 100), (1.0, 200), (4.0, 500)):
        reporter.progress("reading", done, 900, "records")
    now[0] = 5.0
    reporter.progress("writing", 0, 10)
    assert statuses == [Status("reading", 500, 900, "records", 100.0, 4.0)]


def test_a_notebook_shows_the_line_below_its_cell(monkeypatch):
    shown = []

    class Handle:
        def update(self, text):
            shown.append(text.plain)

    module = types.ModuleType("IPython.display")
    module.display = lambda text, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    reporter = Reporter()
    reporter.show(MOLECULES)
    reporter.stop()
    assert shown == [MOLECULES.line(), ""]


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
