"""The film of training: what it shows, that training does not notice it, and resuming."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from interruptions import outcome
from sklearn.decomposition import PCA

import regard
from regard.api import train_recipe
from regard.data.corpus import reopen
from regard.errors import UserError
from regard.layers.tap import Tap
from regard.planning import plan_recipe
from regard.run import Run
from regard.training import checkpoint
from regard.training.film import (
    FILM,
    MOST_FRAMES,
    POSITIONS,
    RECORDS,
    TOP,
    Film,
    has_frame,
    project,
    turn_to,
)
from regard.training.loop import Loop
from regard.training.progress import Reporter
from regard.training.trainer import Trainer

SHAPE = ["model.n_layers=2", "model.d_model=16", "model.n_heads=2", "model.n_kv_heads=2"]
SHAPE += ["model.d_head=8", "model.d_ff=16", "train.steps=9", "train.batch_tokens=128"]
SHAPE += ["train.eval_every=2", "train.checkpoint_every=4", "train.device=cpu"]
SMALL = ["model.name=transformer", *SHAPE]


@pytest.fixture(scope="module")
def filmed(words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("film")
    recipe, _ = plan_recipe([words], assignments=[*SMALL, "train.film=true"])
    train_recipe(recipe, folder / "run")
    return folder / "run"


def test_training_does_not_notice_the_film(words, filmed, tmp_path):
    recipe, _ = plan_recipe([words], assignments=SMALL)
    train_recipe(recipe, tmp_path / "plain")
    assert outcome(tmp_path / "plain") == outcome(filmed)
    assert not (tmp_path / "plain" / FILM).exists()


def test_a_frame_shows_what_the_model_of_that_step_computes(filmed):
    film, run = Film.open(filmed), Run.open(filmed)
    assert film.steps.tolist() == [0, 2, 4, 6, 8, 9]
    tensors, state = checkpoint.newest(filmed, print)
    assert state["step"] == 9
    model = run.model()
    model.load_state_dict(tensors["model"], strict=False)
    for record in (0, 3, len(film.records) - 1):
        ids = film.ids[record][film.ids[record] >= 0].long()[None]
        tap = Tap(["norm", "*.weights"])
        with torch.no_grad():
            logits = model.logits(ids, tap=tap)[0]
        p = logits.softmax(-1)
        for position in range(ids.size(1)):
            shown = film.probabilities(-1, record, position)
            assert len(shown) == min(TOP, model.vocab_size)
            for token, probability in shown:
                assert probability == pytest.approx(float(p[position, token]), rel=2e-2)
        outputs = [value for _, value in film.outputs(-1, record)]
        best = logits[0].sort(descending=True).values[: len(outputs)]
        assert outputs == pytest.approx(best.tolist(), abs=2e-2)
        z = film.normalizers[-1, record, : ids.size(1)]
        torch.testing.assert_close(z, logits.logsumexp(-1), atol=1e-4, rtol=0)
    assert (film.ids[:, 0] == 1).all()  # <S>; <E> is only predicted


def test_heads_are_summarized_over_the_records(filmed):
    film, run = Film.open(filmed), Run.open(filmed)
    tensors, _ = checkpoint.newest(filmed, print)
    model = run.model()
    model.load_state_dict(tensors["model"], strict=False)
    bits, n = torch.zeros(2), 0
    for row in film.ids:
        ids, tap = row[row >= 0].long()[None], Tap(["block.1.attention.weights"])
        with torch.no_grad():
            model.logits(ids, tap=tap)
        w = tap.activations["block.1.attention.weights"][0]  # (H, T, S)
        bits += torch.special.entr(w).sum(-1).sum(-1) / np.log(2)
        n += w.size(1)
    assert list(film.attention) == ["block.0.attention", "block.1.attention"]
    # means within batches of similar lengths, then over the records
    torch.testing.assert_close(
        film.attention["block.1.attention"][-1, :, 0], bits / n, rtol=0.1, atol=0
    )


@pytest.mark.parametrize("step", [3, 7])
def test_a_run_that_is_killed_and_resumed_has_the_same_film(
    words, filmed, tmp_path, monkeypatch, step
):
    """Also where frames are newer than the last checkpoint, or there is no checkpoint yet."""
    recipe, _ = plan_recipe([words], assignments=[*SMALL, "train.film=true"])
    take = Trainer.take_step

    def fail(trainer, number):
        if number == step:
            raise RuntimeError("killed")
        return take(trainer, number)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "take_step", fail)
        with pytest.raises(RuntimeError, match="killed"):
            train_recipe(recipe, tmp_path / "run")
    assert Film.read(tmp_path / "run" / FILM).steps.tolist()[-1] == step - 1
    train_recipe(recipe, tmp_path / "run", resume=True)
    assert (tmp_path / "run" / FILM).read_bytes() == (filmed / FILM).read_bytes()


def test_the_film_of_a_classifier_has_one_prediction_for_each_record(tmp_path):
    random = np.random.default_rng(0)
    rows = [("".join(random.choice(list("ACGT"), 30)), "ab"[i % 2]) for i in range(200)]
    table = tmp_path / "t.csv"
    table.write_text("seq,kind\n" + "".join(f"{a},{b}\n" for a, b in rows))
    recipe, _ = plan_recipe(
        [table], assignments=[*SMALL, "train.film=true", "data.target=kind", "task.name=label"]
    )
    train_recipe(recipe, tmp_path / "run")
    film = Film.open(tmp_path / "run")
    assert film.top_logs.shape[2:] == (1, 2) and film.top_logs.dtype == torch.float32
    shown = dict(film.probabilities(-1, 0))
    assert sum(shown.values()) == pytest.approx(1, abs=1e-5)
    assert film.ids.size(1) == POSITIONS and film.points.isfinite().all()
    tensors, _ = checkpoint.newest(tmp_path / "run", print)
    predictor = regard.load(tmp_path / "run")
    predictor.model.load_state_dict(tensors["model"], strict=False)
    shard = reopen(tmp_path / "run").valid
    rows = predictor.predict_shard(shard).scores[film.records.numpy()]  # logits
    shown = [dict(film.outputs(-1, i)) for i in range(len(rows))]
    found = [[row[k] for k in range(2)] for row in shown]
    np.testing.assert_allclose(found, rows, atol=1e-4)


def test_what_cannot_be_filmed_is_said_before_training(words, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(Reporter, "say", lambda _, line: said.append(line))
    recipe, _ = plan_recipe([words], assignments=["model.name=bigram", "train.film=true"])
    train_recipe(recipe, tmp_path / "counts")
    assert "no film: bigram does not learn step by step" in said
    with pytest.raises(UserError, match=r"has no film: train with --film"):
        Film.open(tmp_path / "counts")
    pairs = [tmp_path / "t.en", tmp_path / "t.de"]
    for path in pairs:
        path.write_text("\n".join(f"red house {i}" for i in range(60)) + "\n")
    shape = [*SMALL, "model.n_encoder_layers=1", "train.film=true"]
    recipe, _ = plan_recipe(pairs, assignments=shape)
    with pytest.raises(UserError, match=r"train.film: EncoderDecoder does not read"):
        train_recipe(recipe, tmp_path / "pairs")
    assert not (tmp_path / "pairs").exists()


def test_a_damaged_film_is_refused_before_training_goes_on(words, tmp_path, monkeypatch):
    recipe, _ = plan_recipe([words], assignments=[*SMALL, "train.film=true"])
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(Loop, "log", lambda *_: (_ for _ in ()).throw(RuntimeError("killed")))
        with pytest.raises(RuntimeError):
            train_recipe(recipe, run)
    (run / FILM).write_bytes((run / FILM).read_bytes()[:-7])
    with pytest.raises(UserError, match=r"film\.safetensors is damaged"):
        train_recipe(recipe, run, resume=True)


def test_a_film_is_smaller_than_five_megabytes(tmp_path):
    frames = 0
    for steps, every in itertools.product((1, 7, 50, 999, 30_000), (1, 2, 50, 400)):
        validated = sorted({*range(0, steps + 1, every), steps})
        taken = [step for step in validated if has_frame(step, every, steps)]
        assert taken[0] == 0 and taken[-1] == steps
        frames = max(frames, len(taken))
    assert frames <= MOST_FRAMES
    shape = frames, RECORDS, POSITIONS
    film = Film(
        steps=torch.arange(frames),
        records=torch.arange(RECORDS),
        ids=torch.zeros(RECORDS, POSITIONS, dtype=torch.int32),
        top_ids=torch.zeros(*shape, TOP, dtype=torch.int32),
        top_logs=torch.zeros(*shape, TOP, dtype=torch.float16),
        normalizers=torch.zeros(shape),
        points=torch.zeros(frames, RECORDS, 2),
        attention={f"block.{i}.attention": torch.zeros(frames, 16, 4) for i in range(24)},
    )
    film.write(tmp_path / FILM)
    assert (tmp_path / FILM).stat().st_size < 5_000_000
    assert Film.read(tmp_path / FILM).until(2).steps.tolist() == [0, 1]


def test_points_are_principal_components_turned_to_those_before():
    random = np.random.default_rng(0)
    vectors = random.normal(size=(20, 5)) * [5, 3, 1, 1, 1]
    points = project(torch.from_numpy(vectors))
    expected = PCA(2, svd_solver="full").fit_transform(vectors)
    np.testing.assert_allclose(np.abs(points.numpy()), np.abs(expected), atol=1e-9)
    angle = torch.tensor(0.7, dtype=torch.float64)
    turn = torch.stack(
        [torch.stack([angle.cos(), angle.sin()]), torch.stack([angle.sin(), -angle.cos()])]
    )
    torch.testing.assert_close(turn_to(points @ turn, points), points)
    assert project(torch.ones(1, 5)).shape == (1, 2)
