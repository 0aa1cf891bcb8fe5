"""The demonstration, on a short list and with a few steps: table, difference, samples."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
import torch

from regard.api import load, shard_of
from regard.bundled import NAMES
from regard.demo import MODELS, demo, free_folder, print_difference
from regard.train.progress import Reporter

TINY = ["model.size=1", "train.steps=2", "train.batch_tokens=256", "data.test_fraction=0.2"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder of a tiny demonstration and what it printed; the folder asked for is taken."""
    folder = tmp_path_factory.mktemp("demo")
    names = folder / "names.txt"
    names.write_text("".join(NAMES.read_text().splitlines(keepends=True)[::300]))
    taken = folder / "runs"
    taken.mkdir()
    (taken / "mine.txt").write_text("not to be touched")
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # models this small are slower on several
    with contextlib.redirect_stdout(io.StringIO()) as out:
        made = demo(taken, 1.0, names=names, assignments=TINY, reporter=Reporter(quiet=True))
    torch.set_num_threads(before)
    return taken, made, out.getvalue()


def test_the_table_has_a_row_for_each_model_with_parameters_and_intervals(shown):
    _, made, text = shown
    for name in MODELS:
        predictor = load(made / name)
        size = sum(t.numel() for t in predictor.model.state_dict().values())
        row = next(line for line in text.splitlines() if line.startswith(name))
        assert f"{size:,}" in row
        assert row.count("[") == 2 or row.count("infinite") == 2  # nats and bits, with intervals


def test_every_model_offers_ten_samples_without_markers(shown):
    _, _, text = shown
    for name in MODELS:
        line = next(line for line in text.splitlines() if line.startswith(f"  {name}"))
        assert len(line.split()) <= 11 and "<" not in line
        assert len(re.split(r" +", line.strip())) > 5  # an empty name leaves no word


def test_a_folder_that_is_taken_is_left_alone_and_the_next_number_used(shown):
    taken, made, text = shown
    assert made == taken.with_name("runs-2")
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    assert free_folder(taken) == taken.with_name("runs-3")
    assert str(made) in text


def test_a_page_about_the_transformer_is_written(shown):
    _, made, text = shown
    page = (made / "look.html").read_text(encoding="utf-8")
    assert page.startswith("<!") and "transformer" in page
    assert str(made / "look.html") in text


def test_the_difference_leaves_out_what_the_bigram_holds_impossible_and_says_so(shown, capsys):
    _, made, _ = shown
    counting, attending = load(made / "bigram"), load(made / "transformer")
    seen = counting.tokenizer.decode([4, 5])[0]
    never = next(
        text
        for text in (a + b for a in "abcdefghijklmnopqrstuvwxyz" for b in "qxz")
        if min(counting.score([text])[0][1]) == float("-inf")
    )
    possible = [t for t in ("maria", "anna", seen) if min(counting.score([t])[0][1]) > -1e9]
    assert possible
    print_difference(attending, counting, shard_of([*possible, never], counting.tokenizer))
    text = capsys.readouterr().out
    assert "holds 1 of these names" in text
    ours = sum(sum(logs) for _, logs in attending.score(possible))
    theirs = sum(sum(logs) for _, logs in counting.score(possible))
    symbols = sum(len(t) + 1 for t in possible)
    found = re.search(r"minus bigram: (-?[\d.]+)", text)
    assert found is not None
    assert float(found[1]) == pytest.approx((theirs - ours) / symbols, abs=1e-4)
