"""Pictures through every verb: the same commands as for texts."""

from pathlib import Path

import numpy as np
import pytest

from regard.storage import read_tensors

SMALL = ["--set=model.n_layers=1", "--set=model.d_model=16", "--set=input.patch=3", "--quiet"]


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    """Pictures of bars that stand or lie, and noise: 6 × 6 pixels."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 160)
    images = random.integers(0, 40, (160, 6, 6), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        at = random.integers(0, 5)
        (image if label else image.T)[at : at + 2] += 160
    folder = tmp_path_factory.mktemp("bars")
    names = np.array(["stands", "lies"])[labels]
    np.savez(folder / "bars.npz", images=images, kinds=names)
    return folder / "bars.npz"


@pytest.fixture(scope="module")
def run(bars, tmp_path_factory):
    """A small ViT that has learned them."""
    import regard.cli

    out = tmp_path_factory.mktemp("runs") / "vit"
    steps = ["--set=train.steps=100", "--set=train.batch_tokens=160"]
    steps += ["--set=data.test_fraction=0.3", "--set=data.valid_fraction=0.15"]
    steps += ["--set=data.split=random"]
    more = ["--set=train.checkpoint_every=80", "--set=model.preset=vit"]
    assert regard.cli.run(["train", str(bars), *SMALL, *steps, *more, "--out", str(out)]) in (
        0,
        None,
    )
    return out


def test_training_says_what_it_chose_and_learns(cli, bars):
    result = cli("train", bars, *SMALL[:-1], "--set=train.steps=2", "--out=r", "--json")
    assert result.code in (0, None)
    assert "160 of 6 × 6 pixels, grey → task label, 2 × 2 patches of 3 × 3" in result.err
    assert result.document["outcome"] == "done"


def test_figures_are_measured_on_what_was_held_out_and_on_files(cli, run, bars):
    held = cli("evaluate", run, "--json").document["metrics"]["accuracy"]["value"]
    given = cli("evaluate", run, bars, "--json").document["metrics"]["accuracy"]["value"]
    assert held > 0.85 and given > 0.85


def test_classify_names_pictures_and_embed_has_a_vector_each(cli, run, bars):
    lines = cli("predict", run, bars).out.splitlines()
    truths = np.load(bars)["kinds"]
    right = [line.split("\t")[0] == truth for line, truth in zip(lines, truths, strict=True)]
    assert np.mean(right) > 0.85 and lines[3].endswith("bars.npz[3]\t")
    cli("embed", run, bars, "--out", "v.npy")
    assert np.load("v.npy").shape == (160, 16)
    assert cli("predict", run).code == 2


def test_verify_holds_for_pictures(cli, run):
    result = cli("verify", run, "--json")
    failed = [check for check in result.document["checks"] if not check["ok"]]
    assert not failed and len(result.document["checks"]) >= 9


def test_look_shows_the_picture_with_attention_over_it(cli, run, bars):
    result = cli("look", run, f"{bars}[5]", "--out", "look.html", "--target", "lies")
    page = Path("look.html").read_text(encoding="utf-8")
    assert result.code in (0, None)
    for section in ("Prediction", "What the prediction rests on", "Attention", "Positions"):
        assert f"<h2>{section}</h2>" in page
    assert page.count('data-kind="image-maps"') >= 4
    assert cli("look", run, f"{bars}[500]").err.strip().endswith("has no image 500")


def test_a_run_that_was_stopped_ends_where_it_would_have(cli, run, bars, tmp_path):
    """Changes by chance are the same after a resume: killed between checkpoints, bit for bit."""
    import shutil

    again = tmp_path / "again"
    shutil.copytree(run, again)
    last = sorted((again / "checkpoints").iterdir())[-1]
    assert "100" in last.name
    shutil.rmtree(last)
    assert cli("train", bars, "--out", again, "--resume", "--quiet").code in (0, None)
    one, two = (read_tensors(folder / "model.safetensors") for folder in (run, again))
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[key].numpy(), two[key].numpy()) for key in one)


def test_vit_is_a_preset_of_the_transformer_and_other_models_are_not_for_images(cli, bars):
    steps = ["--set=train.steps=1", "--set=train.batch_tokens=50"]
    assert cli("train", bars, *SMALL, *steps, "--set=model.preset=vit", "--out=v").code in (0, None)
    result = cli("train", bars, "--model=lstm", "--out=w")
    assert result.code == 2 and "cnn, logistic, majority, transformer" in result.err


def test_what_is_not_for_pictures_is_said(cli, bars):
    for words, said in (
        (["--task", "position-label"], "images are for label, labels, value"),
        (["--task", "next"], "images are for label, labels, value"),
        (["--tokenizer", "characters"], "no setting 'tokenizer' for task label of images"),
        (["--set", "model.positions=alibi"], "positions of images are learned"),
        (["--target", "kind"], "bars.npz has no such array; it holds images uint8"),
    ):
        result = cli("train", bars, *words, "--out=r")
        assert result.code == 2 and said in result.err, (words, result.err)


def test_other_files_and_a_broken_image_are_one_line(cli, run, tmp_path):
    """Each sequence of a FASTA file was taken for the path of an image, and printed whole."""
    (tmp_path / "a.fasta").write_text(">a\nACGT\n>b\nACGA\n")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnonsense")
    result = cli("predict", run, "a.fasta")
    assert (result.code, result.err) == (
        1,
        "error: a.fasta: holds sequences, and the run reads images\n",
    )
    result = cli("predict", run, "broken.png")
    assert result.code == 1 and result.err.startswith("error: broken.png: is no image that can")


def test_values_are_learned_from_pictures_too(cli, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (60, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "light.npz", images=images, light=images.mean((1, 2)))
    words = ["--model=ridge", "--quiet", "--json", "--set=data.test_fraction=0.3"]
    result = cli("train", "light.npz", *words, "--set=model.strength=1e-3", "--out=r")
    assert result.document["metrics"]["test"]["r2"]["value"] > 0.9


@pytest.mark.slow
def test_compare_has_rows_of_counting_pixels_filters_and_attention(cli, bars):
    result = cli("compare", bars, "--minutes=0.2", *SMALL[:-1], "--json", "--out=c")
    rows = {row["model"]: row for row in result.document["rows"]}
    assert set(rows) == {"majority", "logistic", "cnn", "transformer"}
    assert abs(rows["cnn"]["parameters"] / rows["transformer"]["parameters"] - 1) <= 0.1
