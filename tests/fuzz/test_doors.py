"""A few damaged files at every door: one short line and an exit code, never a traceback.

`make fuzz` tries twenty thousand.
"""

import json
import zlib

import pytest
import torch
from cases import attempt, call, command, seeded
from doors import DOORS, Door, Material
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.planning import plan_recipe
from regard.recipe import build, override
from regard.run import METADATA, Run

CASES = 3  # of each door
BY_NAME = {door.name: door for door in DOORS if not door.slow}
often = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=9), inner)
)


@pytest.fixture(scope="session")
def material(tmp_path_factory):
    """Sound files and small runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Material(tmp_path_factory.mktemp("fuzz") / "material")
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def narrow(monkeypatch):
    """As wide as a terminal."""
    monkeypatch.setenv("COLUMNS", "100")


@pytest.mark.parametrize("name", [name for name, door in BY_NAME.items() if isinstance(door, Door)])
def test_sound_files_are_read(name, material, tmp_path):
    actions = BY_NAME[name].sound(material, tmp_path)
    found = attempt(actions[zlib.crc32(name.encode()) % len(actions)])
    asked = "it holds" in found.printed or "did you mean" in found.printed  # of an archive
    assert found.code == 0 or asked, (found.printed, found.detail)
    assert not found.problem, found.detail


@pytest.mark.parametrize("name", BY_NAME)
def test_damaged_files_are_one_line(name, material, tmp_path):
    for number in range(CASES):
        scratch = tmp_path / str(number)
        scratch.mkdir()
        found = attempt(BY_NAME[name].case(material, scratch, seeded(name, number)))
        assert not found.problem, (number, found.problem, found.detail)


@often
@given(key=st.sampled_from(["steps", "data", "metrics", "measured", "outcome"]), value=documents)
def test_any_value_in_regard_json_is_refused_or_read(material, tmp_path, key, value):
    facts = json.loads((material.language_run / METADATA).read_text()) | {key: value}
    path = tmp_path / METADATA
    path.write_text(json.dumps(facts), encoding="utf-8", errors="surrogatepass")
    assert not (found := attempt(call(lambda: Run(tmp_path).metadata))).problem, found.detail


@often
@given(
    section=st.sampled_from(["data", "input", "output", "model", "augment", "train", "task", ""]),
    key=st.sampled_from(["train", "tokenizer", "name", "preset", "lr", "size", "steps", "x", ""]),
    value=st.text(max_size=40) | documents.map(str),
)
def test_any_value_of_set_is_refused_or_taken(section, key, value):
    assignment = f"{section}.{key}={value}"
    found = attempt(call(lambda: build(override({}, [assignment]))))
    assert not found.problem, found.detail


@often
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_read(material, tmp_path, source):
    path = tmp_path / "any"
    path.write_bytes(source)
    for action in (command("data", path), call(lambda: plan_recipe([path]))):
        assert not (found := attempt(action)).problem, found.detail
