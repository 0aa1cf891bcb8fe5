"""The file of a live page: complete in itself, safe, small enough, and honest about rounding."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import numpy as np
import pytest
import torch
from live_scripts import packed, read_texts, run_script
from typer.testing import CliRunner

from regard import api, cli
from regard.errors import UsageError, UserError
from regard.live import LivePart, live_part, register_live
from regard.live import page as live
from regard.live.page import live_page
from regard.models.decoder import Decoder, modern
from regard.models.mlp import MLP
from regard.models.ngrams import Bigram, CountConfig
from regard.planning import plan_recipe
from regard.registry import LIVE
from regard.run import weights as weights_of
from regard.run import write_config
from regard.storage import write_tensors
from regard.tokenizers import Characters

TOKENIZER = Characters.train(["abc </script><img src=x onerror=alert(1)>&amp;"])


def run_folder(folder, model, name):
    folder.mkdir()
    TOKENIZER.save(folder / "tokenizer.json")
    write_config(folder, name, model)
    write_tensors(folder / "model.safetensors", weights_of(model))
    return folder


def decoder(n_layers=2, d_model=32):
    torch.manual_seed(0)
    return Decoder(TOKENIZER.vocab_size, modern(n_layers, d_model)).eval()


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    return run_folder(tmp_path_factory.mktemp("runs") / "run", decoder(), "transformer")


@pytest.fixture(scope="module")
def counted_run(tmp_path_factory):
    """A run that holds its data."""
    folder = tmp_path_factory.mktemp("counted")
    names = [a + b + c for a in "abcd" for b in "aeiou" for c in "lmnrs"]
    (folder / "names.txt").write_text("\n".join(names) + "\n")
    recipe, _ = plan_recipe([folder / "names.txt"], model={"name": "bigram"})
    return api.train_recipe(recipe, folder / "run").run


@pytest.fixture
def look():
    if not cli.app.registered_commands:
        cli._fill()
    return lambda *arguments: CliRunner().invoke(cli.app, ["look", *map(str, arguments)])


def test_the_policy_allows_the_one_script_of_the_page_and_no_request(small_run):
    html = live_page(small_run, "abc").render()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    blocks = html.count('<script type="application/json">')
    assert len(scripts) == 1 and html.count("<script") == 1 + blocks  # the others are data
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy
    assert "connect-src" not in policy and "unsafe-eval" not in policy
    outside = re.sub(r"http://www\.w3\.org/2000/svg", "", scripts[0])
    assert not re.search(r"https?://|\bfetch\(|XMLHttpRequest|\beval\(|new Function", outside)
    assert "onerror=alert" not in re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)


def test_the_data_in_the_page_is_what_the_scripts_run(small_run):
    """The page's own JSON, run in Node, gives the logits of Python's rounded model."""
    html = live_page(small_run, "abc").render()
    block, *_ = re.findall(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    data = json.loads(block)
    component = live_page(small_run, "abc").components[0]
    body = """
    const { model, reader, screen } = given.data;
    const session = makeSession(programs[model.program](model.config, openTensors(model.tensors)));
    const ids = [...screen.config.begin, ...readers[reader.program](reader.config).encode("cab")];
    session.read(ids);
    return Array.from(session.logits(ids.length - 1));
    """
    got = run_script([*component.model.scripts, *component.reader.scripts], body, {"data": data})
    stored = live.store(api.load(small_run), None)
    with torch.inference_mode():
        ids = torch.tensor([stored.pipeline.prompt_ids("cab")])
        wanted = stored.pipeline.model.logits(ids)[0, -1]
    assert got == pytest.approx(wanted.tolist(), abs=1e-4)
    assert screen_text(data) == "abc"


def screen_text(data):
    return data["screen"]["config"]["start"]


def test_a_file_gives_the_text_that_a_page_starts_with(small_run, tmp_path):
    (tmp_path / "names.txt").write_text("cabba\nabc\n")
    component = live_page(small_run, str(tmp_path / "names.txt")).components[0]
    assert screen_text(component.data()) == "cabba"


def test_two_million_parameters_fit_and_more_are_refused_in_one_line(tmp_path, monkeypatch):
    run = run_folder(tmp_path / "run", decoder(5, 192), "transformer")
    count = sum(p.numel() for p in api.load(run).model.parameters())
    assert 2.0e6 < count < 2.6e6
    assert len(live_page(run, "abc").render().encode()) <= live.MOST_BYTES == 4_000_000
    monkeypatch.setattr(live, "MOST_BYTES", 3_000_000)
    with pytest.raises(UserError, match=r"MB of weights, and a live page holds .*smaller") as error:
        live_page(run, "abc")
    assert "\n" not in str(error.value)
    monkeypatch.setattr(live, "MOST_PARAMETERS", count - 1)
    with pytest.raises(UserError, match=rf"has {count:,} parameters"):
        live_page(run, "abc")


def test_what_rounding_costs_is_measured_on_the_validation_split_and_told(counted_run):
    page = live_page(counted_run).render()
    metrics = api.load(counted_run)
    shard = live.validation(counted_run)
    bits = metrics.measure(shard).metrics()["bits_per_symbol"].value
    assert "What rounding the weights cost" in page and f"{bits:.4f}" in page
    stored = live.store(metrics, shard)
    (cost,) = stored.costs
    assert cost.before == pytest.approx(bits) and abs(cost.difference) < 1e-4


def test_an_infinite_loss_stays_infinite_at_no_cost():
    """A bigram may hold a symbol of the validation split impossible."""
    cost = live.QuantizationCost("bits per symbol", float("inf"), float("inf"))
    assert list(map(live.four_digits, cost.values)) == ["∞", "∞", "0.0000"]
    assert live.four_digits(-1e-5) == "0.0000" and live.four_digits(-0.5) == "−0.5000"


def test_a_run_without_data_says_that_the_cost_was_not_measured(small_run):
    assert "was not measured" in live_page(small_run, "abc").render()


def test_sixteen_bits_are_taken_where_eight_cost_too_much(counted_run, monkeypatch):
    pipeline = api.load(counted_run)
    pipeline.model = decoder_for(pipeline)
    shard = live.validation(counted_run)
    small = live.store(pipeline, shard)
    assert small.bits == 8
    monkeypatch.setattr(live, "TOLERATED", -1.0)
    assert live.store(pipeline, shard).bits == 16
    monkeypatch.setattr(live, "MOST_BYTES", live.SCRIPT_BYTES + live.size_of(small))
    assert live.store(pipeline, shard).bits == 8  # sixteen do not fit


def decoder_for(pipeline):
    torch.manual_seed(0)
    return Decoder(pipeline.tokenizer.vocab_size, modern(1, 32)).eval()


def test_the_command_writes_the_page_and_refuses_figures(look, small_run, tmp_path):
    out = tmp_path / "live.html"
    result = look(small_run, "abc", "--live", "--out", out)
    assert result.exit_code == 0 and result.stdout.strip() == str(out), result.output
    result = look(small_run, "abc", "--live", "--out", out, "--png", tmp_path / "figures")
    assert isinstance(result.exception, UsageError) and "leave out --png" in str(result.exception)


def test_families_without_a_script_are_refused_in_one_line(tmp_path):
    model = MLP(TOKENIZER.vocab_size, next(iter(MLP.PRESETS.values()))(1, 8))
    run = run_folder(tmp_path / "run", model, "mlp")
    with pytest.raises(
        UserError, match=r"do not support mlp for this task: .* kneser-ney or .* leave"
    ) as e:
        live_page(run, "abc")
    assert "\n" not in str(e.value) and "cnn" not in str(e.value)


OWN = """programs.own = (config, tensors) => ({
  causal: true, vocab: config.size, longest: Infinity, heads: [], hidden: [],
  run(trace, ids, from) {
    const logits = trace.rows("logits", config.size, ids.length);
    const row = tensors("p").data.map(Math.log);
    for (let t = from; t < ids.length; t++) logits.set(row, t * config.size);
  },
});
"""


def test_a_family_of_another_package_brings_a_script_of_its_own(monkeypatch, tmp_path):
    assets = tmp_path / "own_package" / "assets"
    assets.mkdir(parents=True)
    (assets / "own.js").write_text(OWN)
    (assets.parent / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(LIVE, "_targets", dict(LIVE._targets))

    class Own(Bigram):
        """A third party's model."""

    model = Own(TOKENIZER.vocab_size, CountConfig())
    assert live_part(model).program == "ngrams"  # that of its base

    @register_live(Own)
    def own_part(model):
        size = model.vocab_size
        p = torch.full((size,), 1 / size)
        return LivePart("own", {"size": size}, (("own_package", "own.js"),), arrays={"p": p})

    _, part, given = packed(model)
    (got,) = read_texts(part, given, [{"ids": [1, 2]}])
    size = model.vocab_size
    assert got["logits"][1] == pytest.approx([-np.log(size)] * size)
