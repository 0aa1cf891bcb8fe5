"""Stacks with several kinds of mixers: recipes, layers, decoding, and runs of them."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch

import regard
import regard.cli
from regard.decoding import Beam, Greedy, generate
from regard.errors import UsageError
from regard.layers.attention import SelfAttention
from regard.layers.embeddings import Inputs
from regard.layers.hyena import Hyena
from regard.layers.linear_attention import LinearAttention
from regard.layers.sliding_window import WindowedAttention
from regard.models.decoder import Decoder, modern
from regard.models.encoder import EncoderModel
from regard.models.encoder import modern as encoder
from regard.recipe import build, tables, to_toml
from regard.verify import verify

HEADS = {"n_heads": 2, "n_kv_heads": 2, "d_head": 8}
STACKS = {
    "hyena": {"mixers": ("hyena",)},
    "window": {"window": 6},
    "global tokens": {"window": 4, "global_tokens": 2},
    "linear": {"mixers": ("linear",)},
    "hybrid": {"mixers": ("hyena", "window", "linear", "attention"), "window": 5},
}


def make(n_layers=2, max_len=160, **options):
    torch.manual_seed(4)
    config = dataclasses.replace(modern(n_layers, 16), max_len=max_len, **{**HEADS, **options})
    return Decoder(9, config).eval()


def test_a_list_of_mixers_is_repeated_over_the_layers():
    model = make(5, mixers=("hyena", "window", "attention"), window=3)
    kinds = [type(block.mixer) for block in model.blocks]
    assert kinds == [Hyena, WindowedAttention, SelfAttention, Hyena, WindowedAttention]
    assert [type(block.mixer) for block in make(2).blocks] == [SelfAttention] * 2
    assert [type(block.mixer) for block in make(2, window=3).blocks] == [WindowedAttention] * 2
    assert type(make(1, mixers=("linear",)).blocks[0].mixer) is LinearAttention


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mixers": ["hyena", "attentoin"]}, "attentoin"),
        ({"mixers": ["window"]}, "window must be positive"),
        ({"mixers": ["hyena"], "window": 3}, "'window' among the mixers"),
        ({"global_tokens": 3}, "global_tokens"),
        ({"mixers": ["hyena"], "order": 1}, "order must be from 2 to 8"),
        ({"mixers": ["linear"], "score": "additive"}, "score must be scaled_dot"),
        ({"mixers": 3}, "model.mixers"),
    ],
)
def test_a_wrong_setting_is_named_in_the_error(options, message):
    with pytest.raises(UsageError, match=message):
        build({"model": {"name": "transformer", **options}})


def test_a_recipe_stores_the_mixers():
    recipe = build({"model": {"mixers": ["hyena", "attention"], "size": 2}})
    assert recipe.model.config.mixers == ("hyena", "attention")
    assert 'mixers = ["hyena", "attention"]' in to_toml(recipe)
    assert build(tables(recipe)) == recipe


def test_records_share_a_row_only_where_every_mixer_is_masked():
    assert make(window=4).supports_packing and make().supports_packing
    for name in ("hyena", "linear", "global tokens", "hybrid"):
        model = make(4, **STACKS[name])
        assert not model.supports_packing
        with pytest.raises(ValueError, match="length buckets"):
            model.logits(torch.ones(1, 4, dtype=torch.long), torch.ones(1, 4, dtype=torch.long))


@pytest.mark.parametrize("name", STACKS)
def test_greedy_decoding_takes_the_most_probable_token_of_the_full_forward_pass(name):
    """Across blocks and windows, for prompts of different lengths, with a recorded step."""
    model = make(4, **STACKS[name])
    prompts = [[1, 4, 5], [1], [1, 7, 3, 3, 8]]
    found = generate(model, prompts, Greedy(), max_new=100, end=2, banned=[2], context=160)
    for prompt, ((one,)) in zip(prompts, found, strict=True):
        whole = torch.tensor([prompt + one.ids])
        with torch.no_grad():
            logits = model.logits(whole)[0, len(prompt) - 1 : -1]
        logits[:, 2] = -torch.inf
        top = logits.max(-1).values
        chosen = logits.gather(1, whole[0, len(prompt) :, None])[:, 0]
        torch.testing.assert_close(chosen, top, atol=1e-4, rtol=0)  # but for ties


@pytest.mark.parametrize("name", ["hyena", "hybrid"])
def test_beams_have_the_scores_of_the_full_forward_pass(name):
    model = make(4, **STACKS[name])
    prompts = [[1, 4, 5], [1, 6]]
    found = generate(model, prompts, Beam(3, n_best=3), max_new=70, end=2, banned=[2], context=160)
    for prompt, several in zip(prompts, found, strict=True):
        assert len({tuple(one.ids) for one in several}) == 3
        for one in several:
            whole = torch.tensor([prompt + one.ids])
            with torch.no_grad():
                logits = model.logits(whole)[0, len(prompt) - 1 : -1]
            logits[:, 2] = -torch.inf
            logs = logits.log_softmax(-1).gather(1, whole[0, len(prompt) :, None])[:, 0]
            assert one.score == pytest.approx(float(logs.sum()), abs=1e-3)


@pytest.mark.parametrize("name", STACKS)
def test_padding_does_not_change_the_vectors_of_an_encoder(name):
    config = dataclasses.replace(encoder(4, 16), max_len=256, **{**HEADS, **STACKS[name]})
    torch.manual_seed(5)
    model = EncoderModel(9, config).double().eval()
    ids, lengths = torch.randint(9, (3, 230)), torch.tensor([230, 1, 150])
    inside = torch.arange(230) < lengths[:, None]
    with torch.no_grad():
        found = model.vectors(Inputs(ids, inside.long()))
        for row, length in enumerate(lengths.tolist()):
            one = ids[row : row + 1, :length]
            alone = model.vectors(Inputs(one, torch.ones_like(one)))
            torch.testing.assert_close(found[row : row + 1, :length], alone, atol=1e-9, rtol=0)
    x = model.encoder.embedding.weight
    x.grad = None
    model.vectors(Inputs(ids[:1], inside[:1].long()))[0, 100].sum().backward()
    used = {int(i) for i in ids[0, 104:108]}  # it looks ahead
    assert all(x.grad[i].abs().max() > 0 for i in used)


def trained(folder, *options):
    """A run of a few steps on words."""
    source = random.Random(1)
    words = ["".join(source.choices("abcd", k=source.randint(1, 9))) for _ in range(200)]
    (folder / "words.txt").write_text("\n".join(words) + "\n")
    small = ["train.steps=4", "train.batch_tokens=128", "model.n_layers=4", "model.d_model=16"]
    told = [f"--set={key}" for key in [*small, *options]]
    command = ["train", str(folder / "words.txt"), f"--out={folder / 'run'}", "--quiet", *told]
    assert regard.cli.run(command) == 0
    return folder / "run"


RUNS = {
    "hybrid": ['model.mixers=["hyena", "window", "linear", "attention"]', "model.window=3"],
    "hyena": ["model.name=hyena"],
    "striped": ["model.name=hyena", "model.preset=striped"],
    "window": ["model.window=3", "model.global_tokens=1"],
    "linear": ['model.mixers=["linear"]'],
}


@pytest.mark.parametrize(
    "name",
    [name if name == "hybrid" else pytest.param(name, marks=pytest.mark.slow) for name in RUNS],
)
def test_a_run_passes_every_check_and_shows_what_it_can(name, tmp_path):
    run = trained(tmp_path, *RUNS[name])
    report = verify(run)
    assert all(check.ok for check in report.checks), report
    names = {check.name for check in report.checks}
    assert {"cached = uncached", "beam = brute force", "resume bit-equality"} <= names
    assert ("fused = explicit" in names) == (name != "hyena")
    page = tmp_path / "look.html"
    assert regard.cli.run(["look", str(run), "abcd", f"--out={page}"]) == 0
    text = page.read_text()
    assert ("How far back" in text or "Mask and reach" in text) == (name != "hyena")
    assert ("Long filters" in text) == (name in ("hyena", "striped", "hybrid"))
    generator = regard.load(run)
    assert (generator.model.max_context is None) == (name == "hyena")
    ((one,),) = generator.generate(["ab"], Greedy(), max_new=40)
    assert 1 <= len(one.ids) <= 40 and all(value <= 0 for value in one.log_probs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hyena", "striped", "window", "linear"])
def test_a_run_that_predicts_labels_passes_every_check(name, tmp_path):
    source, rows = random.Random(2), ["text\tkind"]
    for _ in range(200):
        words, kind = source.choices("wxyz", k=source.randint(3, 20)), source.choice("ab")
        words[source.randrange(len(words))] = kind
        rows.append(f"{' '.join(words)}\t{kind}")
    (tmp_path / "kinds.tsv").write_text("\n".join(rows) + "\n")
    small = ["train.steps=10", "train.batch_tokens=256", "model.n_layers=3", "model.d_model=16"]
    told = [f"--set={key}" for key in [*small, *RUNS[name]]]
    command = ["train", str(tmp_path / "kinds.tsv"), "--input=text", "--target=kind", "--quiet"]
    assert regard.cli.run([*command, f"--out={tmp_path / 'run'}", *told]) == 0
    report = verify(tmp_path / "run")
    assert all(check.ok for check in report.checks), report
    page = tmp_path / "look.html"
    assert regard.cli.run(["look", str(tmp_path / "run"), "w x a", f"--out={page}"]) == 0
