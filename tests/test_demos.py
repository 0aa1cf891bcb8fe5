"""The demonstration, on a short list and with a few steps: table, samples, report."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest

from regard import registry
from regard.bundled import NAMES
from regard.demos import LADDER, NAMES_TRANSFORMER, SAMPLES, demo, free_folder
from regard.run import Run
from regard.training.progress import Reporter

TINY = ["model.size=1", "train.steps=2", "train.batch_tokens=256", "data.test_fraction=0.2"]
MODELS = ["uniform", "bigram", "map", "transformer"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder of a tiny demonstration and what it printed; the folder asked for is taken."""
    folder = tmp_path_factory.mktemp("demo")
    names = folder / "names.txt"
    names.write_text("".join(NAMES.read_text().splitlines(keepends=True)[::300]))
    taken = folder / "runs"
    taken.mkdir()
    (taken / "mine.txt").write_text("not to be touched")
    quiet = Reporter(quiet=True)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        made = demo(taken, 1.0, names=names, models=MODELS, assignments=TINY, reporter=quiet)
    return taken, made, out.getvalue()


def test_the_table_has_a_row_for_each_model_and_a_verdict(shown):
    _, _, text = shown
    for name in MODELS:
        assert any(name in line.split()[1:2] for line in text.splitlines() if line[:1].isdigit())
    assert "Use " in text or "cannot be told apart" in text


def test_several_models_offer_samples_without_markers(shown):
    _, _, text = shown
    for name in MODELS:
        line = next(line for line in text.splitlines() if line.startswith(f"  {name}"))
        assert len(line.split()) <= SAMPLES + 1 and "<" not in line


def test_the_models_are_in_the_order_of_the_registry(shown):
    assert list(LADDER) == [name for name in registry.MODELS.names("next") if name in LADDER]
    assert LADDER[0] == "uniform" and LADDER[-1] == "transformer"
    config = Run(shown[1] / "transformer").description.config
    assert {key: getattr(config, key) for key in NAMES_TRANSFORMER} == NAMES_TRANSFORMER


def test_a_folder_that_is_taken_is_left_alone_and_the_next_number_used(shown):
    taken, made, text = shown
    assert made == taken.with_name("runs-2")
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    assert free_folder(taken) == taken.with_name("runs-3")
    assert str(made) in text


def test_the_report_has_every_section(shown):
    _, made, text = shown
    page = (made / "report.html").read_text(encoding="utf-8")
    assert str(made / "report.html") in text
    for section in ("The table", "Surprise", "Samples", "Counting", "Bayes", "Lengths"):
        assert f">{section}<" in page, section
    for section in ("Attention", "Mask and reach", "Next symbol"):
        assert f">{section}<" in page, section


@pytest.mark.slow
def test_digits_have_a_table_wrong_answers_and_a_page(tmp_path, capsys):
    from regard.demos import demo_digits

    tiny = ["model.size=1", "train.steps=2", "train.batch_tokens=256"]
    models = ["majority", "transformer"]
    made = demo_digits(
        tmp_path / "runs", 0.1, models=models, assignments=tiny, reporter=Reporter(quiet=True)
    )
    text = capsys.readouterr().out
    assert "majority" in text and "read as" in text and "held-out records" in text
    assert 'data-kind="image-maps"' in (made / "look.html").read_text()
    assert (made / "digits.npz").exists() and (made / "compare.html").exists()


def test_images_in_characters_are_as_bright_as_their_pixels():
    from regard.demos import images_as_text

    lines = images_as_text([np.array([[0, 255], [128, 0]], np.uint8)] * 2, ["one", "two"])
    assert [line.split() for line in lines] == [["one", "two"], ["@@"] * 2, ["=="] * 2]
    assert images_as_text([], []) == []


@pytest.mark.slow
def test_shapes_have_a_table_what_is_mistaken_and_a_page(tmp_path, capsys):
    from regard.demos import demo_shapes

    tiny = ["model.size=1", "train.steps=2", "train.batch_tokens=256"]
    made = demo_shapes(
        tmp_path / "runs", 0.1, models=["majority", "transformer"], assignments=tiny, records=160,
        reporter=Reporter(quiet=True),
    )  # fmt: skip
    text = capsys.readouterr().out
    assert "majority" in text and "held-out records" in text and "predicted as" in text
    assert 'data-kind="point-maps"' in (made / "look.html").read_text()
    assert (made / "shapes.npz").exists() and (made / "compare.html").exists()
