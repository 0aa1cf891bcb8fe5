"""Masked pre-training: which tokens are hidden, against the binomial and by world and step; what is
learned, against the exact posterior of a small language; and whether it helps where labels are few.
"""

import dataclasses
import itertools
import random

import numpy as np
import pytest
import torch

from regard.data.batching import (
    IGNORE,
    LabelledExamples,
    LabelledLoader,
    Masked,
    MaskedLoader,
    pieces,
)
from regard.errors import UsageError
from regard.evaluation.eval_data import shard_of
from regard.evaluation.language_modeling import measure_masked_lm
from regard.layers.embeddings import Inputs
from regard.models import encoder
from regard.models import encoder as masked
from regard.models.encoder import EncoderModel, MaskedLM
from regard.planning import plan_recipe
from regard.recipe import TrainRecipe
from regard.run import weights, write_config
from regard.storage import write_tensors
from regard.tasks.masked_lm import MaskedLanguageModeling
from regard.tasks.prediction import PredictionTask
from regard.tokenizers import Characters
from regard.training.checkpoint import copy_weights
from regard.training.distributed import ALONE, empty
from regard.training.objectives import SupervisedObjective
from regard.training.optimizer import factor
from regard.training.step import Stepper
from regard.training.trainer import loss_per_target

LETTERS = "abcdefgh"
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def letters(count=600, longest=30, seed=0):
    tokenizer, draw = Characters.train([LETTERS]), random.Random(seed)
    texts = ["".join(draw.choices(LETTERS, k=draw.randint(1, longest))) for _ in range(count)]
    return tokenizer, shard_of([*texts, "aXb"], tokenizer)  # X is unknown


def loader(tokenizer, shard, share=0.15, seed=0, max_len=12):
    sizes = {"max_len": max_len, "batch_tokens": 700, "micro_tokens": 256}
    return MaskedLoader(shard, tokenizer, share=share, seed=seed, **sizes)


def within(count, total, share, sigmas=4.5):
    """Is this many what a binomial may give, but once in a hundred thousand times?"""
    return abs(count - total * share) <= sigmas * (total * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("share", [0.15, 0.4])
def test_masks_are_binomial_and_of_three_kinds(share):
    tokenizer, shard = letters()
    stream = loader(tokenizer, shard, share)
    plain = asked = hidden = same = 0
    others = np.zeros(tokenizer.vocab_size)
    for step in range(60):
        for batch in stream.step(step):
            ids, targets = batch.ids, batch.targets
            at = targets >= 0
            assert (targets[~at] == IGNORE).all() and batch.symbols == int(at.sum())
            assert (targets[at] >= 4).all()  # neither markers, nor padding, nor what is unknown
            assert (ids[batch.segments == 0] == tokenizer.pad).all()
            plain += int((at | (ids >= 4)).sum())
            asked += int(at.sum())
            hidden += int((ids[at] == tokenizer.mask).sum())
            same += int((ids[at] == targets[at]).sum())
            changed = at & (ids != tokenizer.mask) & (ids != targets)
            others += np.bincount(ids[changed].numpy(), minlength=tokenizer.vocab_size)
    assert within(asked, plain, share)
    assert within(hidden, asked, 0.8)
    assert within(same, asked, 0.1 + 0.1 / 8)  # kept, or replaced by itself
    assert others[:4].sum() == 0
    assert all(within(n, asked, 0.1 * 7 / 8 / 8) for n in others[4:])


def shown(batches):
    """What every record of some batches is shown as and asked: by its number."""
    return {
        int(item): (batch.ids[row][there].tolist(), batch.targets[row][there].tolist())
        for batch in batches
        for row, item in enumerate(batch.items)
        for there in [batch.segments[row] > 0]
    }


def test_masks_follow_from_seed_step_and_record_alone():
    tokenizer, shard = letters()
    stream, again = loader(tokenizer, shard), loader(tokenizer, shard)
    steps = range(round(stream.steps_per_epoch) + 3)
    alone = [shown(stream.step(n)) for n in steps]
    for n in reversed(steps):  # in any order, by any number of processes
        parts = [shown(again.step(n, rank, 3)) for rank in range(3)]
        assert sum(map(len, parts)) == len(alone[n])
        assert alone[n] == {k: v for part in parts for k, v in part.items()}
    assert shown(loader(tokenizer, shard, seed=1).step(0)) != alone[0]
    seen: dict = {}
    repeated = different = 0
    for step in alone:  # the second time a record is shown, its masks are others
        for item, (ids, targets) in step.items():
            if item in seen and len(ids) > 6:
                repeated, different = repeated + 1, different + (seen[item] != (ids, targets))
            seen[item] = ids, targets
    assert repeated > 20 and different > 0.9 * repeated


def test_validation_always_has_the_same_masks():
    tokenizer, shard = letters()
    one, two = (Masked(shard, tokenizer, 12) for _ in range(2))
    assert shown(one.batches(100)) == shown(two.batches(5000))
    asked = sum(batch.symbols for batch in one.batches(500))
    assert within(asked, int((np.asarray(shard.ids) >= 4).sum()), 0.15)


def test_long_records_are_cut_into_even_pieces():
    offsets = np.cumsum([0, 2, 12, 13, 100, 24, 3])
    starts, lengths = pieces(offsets, 12)
    covered = np.concatenate([np.arange(a, a + n) for a, n in zip(starts, lengths, strict=True)])
    assert covered.tolist() == list(range(offsets[-1])) and lengths.max() <= 12
    for first, last in itertools.pairwise(offsets):
        own = lengths[(starts >= first) & (starts < last)]
        assert own.sum() == last - first and own.max() - own.min() <= 1
        assert len(own) == -(-(last - first) // 12)


def make(preset=masked.modern_masked, size=12, **options):
    torch.manual_seed(0)
    sizes = {"n_heads": 2, "n_kv_heads": 2, "d_head": 16, "max_len": 12, "dropout": 0.0}
    return MaskedLM(size, dataclasses.replace(preset(1, 32), **{**sizes, **options}))


@pytest.mark.parametrize("preset", [masked.modern_masked, masked.bert_masked])
@pytest.mark.parametrize("r_drop", [0.0, 2.0])
def test_the_loss_is_of_what_is_asked_alone(preset, r_drop):
    tokenizer, shard = letters(40)
    model = make(preset).train()  # without dropout two passes agree
    (batch, *_) = loader(tokenizer, shard).step(0)
    loss, nats = SupervisedObjective(model, r_drop=r_drop)(batch.ids, batch.targets, batch.segments)
    logs = model.predict(Inputs(batch.ids, batch.segments)).log_softmax(-1)  # (B, T, V)
    at = batch.targets >= 0
    expected = -logs[at].gather(1, batch.targets[at][:, None]).sum()
    torch.testing.assert_close(nats, expected.detach())
    torch.testing.assert_close(loss, expected)


@pytest.mark.parametrize("task", ["masked", "label", "labels", "value", "position-label"])
def test_a_batch_that_asks_nothing_costs_nothing_and_reaches_every_weight(task):
    """What a process is given that has no part in a step; training in many ended there."""
    shape = {"n_heads": 2, "n_kv_heads": 2, "d_head": 16, "max_len": 12}
    config = dataclasses.replace(encoder.modern(1, 32), task=task, n_outputs=3, **shape)
    model = make() if task == "masked" else EncoderModel(12, config)
    loss, nats = SupervisedObjective(model, r_drop=1.0)(*empty(1).tensors())
    loss.backward()
    assert float(nats) == 0
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_figures_are_those_of_a_loop_over_tokens():
    tokenizer, shard = letters(50)
    model = make(masked.bert_masked).eval()
    nats, right = [], []
    for batch in Masked(shard, tokenizer, 12).batches(64):
        with torch.no_grad():
            logits = model.predict(Inputs(batch.ids, batch.segments))
        for b, t in (batch.targets >= 0).nonzero().tolist():
            truth = batch.targets[b, t]
            nats.append(-logits[b, t].log_softmax(-1)[truth].item())
            right.append(bool(logits[b, t].argmax() == truth))
    found = measure_masked_lm(model, shard, tokenizer).metrics()
    assert found["nats_per_token"].value == pytest.approx(np.mean(nats), rel=1e-5)
    assert found["accuracy"].value == pytest.approx(np.mean(right))
    cost = loss_per_target(SupervisedObjective(model), Masked(shard, tokenizer, 12), CPU)
    assert cost.value == pytest.approx(np.mean(nats), rel=1e-5)


def save(folder, model, tokenizer):
    write_config(folder, "transformer", model)
    write_tensors(folder / "model.safetensors", weights(model))
    tokenizer.save(folder / "tokenizer.json")


# Learning


def fit(model, batches, steps, **options):
    """The trainer's steps, without a folder."""
    recipe = TrainRecipe(steps=steps, device="cpu", **options)
    stepper = Stepper(model, recipe, SupervisedObjective, world=ALONE)
    model.train()
    for step in range(steps):
        torch.manual_seed(step)
        parts = batches.step(step)
        stepper.gradient(parts, max(1, sum(part.symbols for part in parts)))
        stepper.optimizer.set_rates(factor(recipe.schedule, step, steps, recipe.warmup))
        stepper.update(stepper.norm())
    return model.eval()


def best_nats(asked, tokenizer, half):
    """What the tokens cost who knows the language: words of `half` free letters said twice. A
    letter is known from what its own place shows, which is asked, and from its twin's place.
    """
    v, found = len(LETTERS), []
    choices = tokenizer.encode(LETTERS).astype(int)

    def chance(seen, share):  # (V,) of what is seen if each letter were the truth
        same, other = share * (0.1 + 0.1 / v) + 1 - share, share * 0.1 / v
        if seen == tokenizer.mask:
            return np.full(v, share * 0.8)
        return np.where(choices == seen, same, other)

    for batch in asked.batches(4096):
        for b, t in (batch.targets >= 0).nonzero().tolist():
            twin = t + half if t <= half else t - half
            likely = chance(int(batch.ids[b, t]), 1.0) * chance(int(batch.ids[b, twin]), 0.15)
            found.append(-np.log((likely / likely.sum())[choices == int(batch.targets[b, t])][0]))
    return np.array(found)


def test_training_comes_near_the_exact_posterior():
    draw, tokenizer, half = random.Random(1), Characters.train([LETTERS]), 3
    words = ["".join(draw.choices(LETTERS, k=half)) * 2 for _ in range(4000)]
    train, valid = shard_of(words[:3000], tokenizer), shard_of(words[3000:], tokenizer)
    asked = Masked(valid, tokenizer, 12)
    exact = best_nats(asked, tokenizer, half)
    model = make()
    guessing = loss_per_target(SupervisedObjective(model), asked, CPU).value
    fit(model, loader(tokenizer, train), 200, lr=0.02, adam_lr=0.01)
    reached = loss_per_target(SupervisedObjective(model), asked, CPU).value
    assert 0.2 < exact.mean() < 1.0 and guessing > np.log(8) - 0.1
    assert exact.mean() - 0.05 < reached < exact.mean() + 0.15


SORTS = 2  # kinds of record, told apart by their letters alone
MANY = 60  # letters of each


def record(draw, sort, length):
    return "".join(chr(0x4E00 + sort * MANY + draw.randrange(MANY)) for _ in range(length))


def labelled(draw, tokenizer, count, length=3):
    sorts = [i % SORTS for i in range(count)]
    shard = shard_of([record(draw, sort, length) for sort in sorts], tokenizer)
    return dataclasses.replace(shard, targets=np.array(sorts, np.int32))


@pytest.mark.slow
def test_pretraining_helps_where_labels_are_few(tmp_path):
    """Records are of letters of one of two kinds. Twenty of them show a third of the letters; that
    the others belong to one or the other kind can only be known from records without labels.
    """
    draw = random.Random(2)
    texts = [record(draw, i % SORTS, 8) for i in range(3000)]
    tokenizer = Characters.train(texts)
    sizes = {"n_heads": 2, "n_kv_heads": 2, "d_head": 16, "max_len": 12, "dropout": 0.0}
    filler = make(size=tokenizer.vocab_size)
    fit(filler, loader(tokenizer, shard_of(texts, tokenizer)), 150, lr=0.02, adam_lr=0.01)
    save(tmp_path, filler, tokenizer)
    test = labelled(draw, tokenizer, 400)
    reached = {"with": [], "without": []}
    for seed in range(3):
        few = labelled(draw, tokenizer, 20)
        for how, found in reached.items():
            torch.manual_seed(seed)
            config = dataclasses.replace(encoder.modern(1, 32), **sizes, n_outputs=SORTS)
            model = EncoderModel(tokenizer.vocab_size, config)
            if how == "with":
                said = copy_weights(model, tmp_path)
                assert "10 tensors" in said and "2 with 66 begin anew" in said
            batches = LabelledLoader(few, tokenizer, max_len=12, batch_tokens=60, seed=seed)
            fit(model, batches, 40, lr=0.01, adam_lr=0.003)
            found.append(accuracy(model, test, tokenizer))
    assert np.mean(reached["with"]) > 0.9
    assert np.mean(reached["with"]) > np.mean(reached["without"]) + 0.08, reached


@torch.no_grad()
def accuracy(model, shard, tokenizer):
    right = 0
    for batch in LabelledExamples(shard, tokenizer, 12).batches(8192):
        found = model.predict(Inputs(batch.ids, batch.segments)).argmax(-1)
        right += int((found == batch.targets).sum())
    return right / shard.records


# What a recipe leaves open


def test_running_text_is_read_in_windows_and_records_as_they_are(tmp_path):
    (tmp_path / "story.txt").write_text("once upon a time there was text\n\n" * 60)
    (tmp_path / "words.txt").write_text("anna\nbob\n" * 60)
    story, lines = plan_recipe([tmp_path / "story.txt"], task={"name": "masked"})
    assert story.data.format == "text" and story.model.config.max_len in (128, 512)
    assert "characters → task masked, words" in lines[0]
    words, lines = plan_recipe([tmp_path / "words.txt"], task={"name": "masked", "mask": 0.3})
    assert words.model.config.max_len == 16 and words.build_task().config.mask == 0.3
    assert "about 120 records → task masked, characters" in lines[0]
    with pytest.raises(UsageError, match=r"mask must be above 0 and below 1, got 1\.0"):
        plan_recipe([tmp_path / "words.txt"], task={"name": "masked", "mask": 1.0})


def test_it_pretrains_the_other_tasks_and_keeps_its_head():
    assert PredictionTask.pretrains_with == "masked" in MaskedLanguageModeling.starts_from
    assert MaskedLanguageModeling.keeps_head and not PredictionTask.keeps_head
    assert not MaskedLanguageModeling.compares
    verbs = [verb.format(run="runs/a") for verb in MaskedLanguageModeling.card.verbs]
    assert verbs[0] == "train FILE --pretrain runs/a"
    columns = ["a", "b"]
    assert MaskedLanguageModeling.suggest([], columns, texts=True) is None
