"""The posterior of a transition: against the update draw by draw, and on a run's own data."""

import numpy as np
import pytest
from scipy import stats

from regard.api import train_recipe
from regard.errors import UserError
from regard.look.page import Lines, Table
from regard.look.prior_page import Transition, find_transition, marks_of, prior_page
from regard.pipelines import load
from regard.recipe import build

NAMES = ["anna", "hannah", "anton", "nana", "ana", "banana"] * 20


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "n.txt").write_text("\n".join(f"{n}{'o' * (i % 7)}" for i, n in enumerate(NAMES)))
    recipe = {"data": {"train": [str(folder / "n.txt")], "format": "lines"}}
    recipe |= {"model": {"name": "bigram"}, "output": {"tokenizer": "characters"}}
    train_recipe(build(recipe), folder / "run")
    return load(folder / "run")


def test_the_posterior_is_the_prior_times_the_likelihood_of_each_draw():
    draws = np.array([1, 0, 0, 1, 1, 0, 1])
    transition = Transition(0, 1, draws)
    x = np.linspace(0.001, 0.999, 400)
    density = np.ones_like(x)
    for n, draw in enumerate(draws, start=1):
        density = density * (x if draw == 1 else 1 - x)
        expected = density / np.trapezoid(density, x)
        assert np.allclose(transition.posterior(n).pdf(x), expected, rtol=1e-2, atol=1e-2)
    assert transition.posterior(0).interval(0.95) == pytest.approx((0.025, 0.975))
    assert marks_of(7) == [0, 1, 3, 7] and marks_of(10) == [0, 1, 3, 10]


def test_transitions_are_counted_in_the_training_data_of_the_run(generator):
    transition = find_transition(generator, "na")
    shard = (
        generator.run
        and __import__("regard.data.corpus", fromlist=["reopen"]).reopen(generator.run.path).train
    )
    text = "".join(generator.tokenizer.text(int(i)) for i in shard.ids)
    assert int(transition.successes[-1]) == text.count("na")
    assert len(transition.next) == text.count("n")
    frequent = find_transition(generator)
    counts = {letter: text.count(letter) for letter in "abhnot"}
    assert generator.tokenizer.text(frequent.previous) == max(counts, key=counts.get)
    page = prior_page(generator, "na")
    _, curve, marks, following, _ = page.components
    assert isinstance(curve, Lines) and isinstance(following, Table)
    n, s = len(transition.next), text.count("na")
    low, high = stats.beta(1 + s, 1 + n - s).interval(0.95)
    assert curve.bands["posterior mean"][0][-1] == pytest.approx(low)
    assert curve.bands["posterior mean"][1][-1] == pytest.approx(high)
    assert f"from {low:.4f} to {high:.4f}" in page.subtitle
    assert marks.rows[-1][:2] == [n, s] and following.rows[0][1] >= following.rows[1][1]


@pytest.mark.parametrize(("text", "words"), [("a", "has 1"), ("abc", "has 3"), ("xq", "")])
def test_other_than_two_symbols_are_refused(generator, text, words):
    with pytest.raises(UserError, match=words or "occur"):
        find_transition(generator, text)
