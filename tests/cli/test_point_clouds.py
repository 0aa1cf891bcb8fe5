"""Point clouds through every verb: the same commands as for texts."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from regard.storage import read_tensors

SMALL = ["--set=model.n_layers=1", "--set=model.d_model=16", "--quiet"]


@pytest.fixture(scope="module")
def bodies(tmp_path_factory):
    """Balls and sticks, of different numbers of points, turned in any way."""
    from regard.bundled import random_rotation

    random, folder = np.random.default_rng(0), tmp_path_factory.mktemp("bodies")
    labels, clouds = random.integers(0, 2, 120), []
    for label in labels:
        points = random.normal(size=(random.integers(8, 20), 3)) * (1, 1 - label, 1 - label)
        clouds.append((points @ random_rotation(random).T).astype(np.float32))
    lengths = [len(cloud) for cloud in clouds]
    kinds = np.array(["ball", "stick"])[labels]
    np.savez(folder / "bodies.npz", points=np.concatenate(clouds), lengths=lengths, kind=kinds)
    return folder / "bodies.npz"


@pytest.fixture(scope="module")
def run(bodies, tmp_path_factory):
    """A small encoder that has learned them."""
    import regard.cli

    out = tmp_path_factory.mktemp("runs") / "points"
    steps = ["--set=train.steps=60", "--set=train.batch_tokens=300", "--set=data.test_fraction=0.3"]
    groups = [
        "--set=augment.rotate=180",
        "--set=augment.drop=0.2",
        "--set=input.n_groups=6",
        "--set=input.group_size=4",
        "--set=train.eval_every=20",
    ]
    words = ["train", str(bodies), *SMALL, *steps, *groups, "--out", str(out)]
    assert regard.cli.run(words) in (0, None)
    return out


def test_what_is_in_files_and_what_is_chosen_for_them_is_said(cli, bodies):
    said = cli("data", bodies).out
    assert "8 to 19, half have" in said and "ball" in said
    result = cli("train", bodies, *SMALL[:-1], "--set=train.steps=2", "--out=r", "--json")
    assert (
        "120 of 8 to 19 points in 3 dimensions → task label, each point is the center of a token"
        in result.err
    )
    assert "invariant to rotations" in result.err and result.document["outcome"] == "done"


def test_figures_classes_and_vectors(cli, run, bodies):
    held = cli("evaluate", run, "--json").document["metrics"]["accuracy"]["value"]
    given = cli("evaluate", run, bodies, "--json").document["metrics"]["accuracy"]["value"]
    assert held > 0.85 and given > 0.85
    lines = cli("predict", run, bodies).out.splitlines()
    truths = np.load(bodies)["kind"]
    right = [line.split("\t")[0] == truth for line, truth in zip(lines, truths, strict=True)]
    assert np.mean(right) == pytest.approx(given) and lines[3].endswith("bodies.npz[3]\t")
    cli("embed", run, bodies, "--out", "v.npy")
    assert np.load("v.npy").shape == (120, 16)
    assert "point clouds" in cli("predict", run).err


def test_verify_holds_and_points_may_be_permuted(cli, run):
    checks = cli("verify", run, "--json").document["checks"]
    assert not [check for check in checks if not check["ok"]]
    assert "permuted = in order" in [check["name"] for check in checks]


def test_look_shows_the_cloud_with_attention_over_it(cli, run, bodies):
    result = cli("look", run, f"{bodies}[5]", "--out", "look.html", "--target", "stick")
    page = Path("look.html").read_text(encoding="utf-8")
    assert result.code in (0, None)
    for section in ("Prediction", "What the prediction rests on", "Attention"):
        assert f"<h2>{section}</h2>" in page
    assert page.count('data-kind="point-maps"') >= 3
    assert cli("look", run, f"{bodies}[500]").err.strip().endswith("has no point cloud 500")
    assert cli("look", run, "--out", "held.html").code in (0, None)


def test_a_run_that_is_killed_and_resumed_ends_the_same(cli, run, bodies, tmp_path):
    """Rotations, noise and what is left out are drawn again as they were."""
    again = tmp_path / "again"
    shutil.copytree(run, again)
    shutil.rmtree(sorted((again / "checkpoints").iterdir())[-1])
    assert cli("train", bodies, "--out", again, "--resume", "--quiet").code in (0, None)
    one, two = (read_tensors(folder / "model.safetensors") for folder in (run, again))
    assert one.keys() == two.keys()
    assert all(np.array_equal(one[key].numpy(), two[key].numpy()) for key in one)


def test_points_can_be_labelled_each(cli):
    """Which points of a cloud are beyond a sphere."""
    random = np.random.default_rng(0)
    points = random.normal(size=(60, 12, 3)).astype(np.float32)
    centred = points - points.mean(1, keepdims=True)
    outer = (np.linalg.norm(centred, axis=2) > 1.4).astype(int)
    np.savez("parts.npz", points=points, outer=outer)
    words = ["--set=train.steps=60", "--set=input.scale=kept", "--set=data.test_fraction=0.2"]
    result = cli("train", "parts.npz", "--target=outer", *SMALL, *words, "--out=r", "--json")
    assert result.code in (0, None), result.err
    metrics = cli("evaluate", "r", "--json").document["metrics"]
    assert metrics["accuracy"]["value"] > 0.85
    lines = cli("predict", "r", "parts.npz").out.splitlines()
    said = np.array([[int(c) for c in line.split("\t")[0]] for line in lines])
    assert said.shape == outer.shape and (said == outer).mean() > 0.85
    assert cli("look", "r", "--out", "l.html").code in (0, None)
    assert 'data-kind="point-maps"' in Path("l.html").read_text(encoding="utf-8")
    wrong = cli("train", "parts.npz", "--target=outer", *SMALL, "--set=input.n_groups=4", "--out=s")
    assert "input.n_groups=0" in wrong.err and wrong.code == 1
    model = cli("train", "parts.npz", "--target=outer", "--model=majority", "--out=m", "--quiet")
    assert model.code in (0, None)


@pytest.mark.slow
def test_molecules_have_values_and_rows_of_their_own(cli):
    random, lines = np.random.default_rng(0), []
    for number in range(80):
        count = int(random.integers(2, 6))
        atoms = random.choice(["H", "C", "O"], count)
        energy = sum({"H": -1.0, "C": -6.0, "O": -8.0}[a] for a in atoms) + 0.1 * random.normal()
        places = random.normal(size=(count, 3)) * 1.5
        lines += [str(count), f"m{number} energy={energy:.4f}"]
        lines += [
            f"{a} {x:.4f} {y:.4f} {z:.4f}" for a, (x, y, z) in zip(atoms, places, strict=True)
        ]
    Path("all.xyz").write_text("\n".join(lines) + "\n")
    words = ["all.xyz", "--target=energy", "--set=train.steps=5", "--set=data.test_fraction=0.2"]
    models = ["--models=mean,ridge,coulomb,transformer", "--set=model.size=1"]
    found = cli("compare", *words[:2], *words[3:], *models, "--minutes=0.02", "--json", "--out=c")
    rows = {row["model"]: row["metrics"] for row in found.document["rows"]}
    error = {name: metrics["rmse"]["value"] for name, metrics in rows.items()}
    assert set(error) == {"mean", "ridge", "coulomb", "transformer"}
    # the sum over the elements is there before the first step
    assert error["transformer"] < error["mean"] / 5 and error["ridge"] < error["mean"]
    assert found.document["verdict"]
    wrong = cli("train", *words, "--model=cnn", "--out=x")
    assert wrong.code == 2 and "coulomb" in wrong.err
