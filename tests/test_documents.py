"""JSON from outside: what is wrong is one line that names the file and the key."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import UserError
from regard.storage import MAX_DEPTH, Event, Malformed, RunMetadata, parse, read_json, read_lines

plain = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text()
plain |= st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    plain, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(values, st.booleans())
def test_documents_are_read_as_the_standard_library_reads_them(value, escaped):
    source = json.dumps(value, ensure_ascii=escaped)
    assert parse(source.encode()) == json.loads(source)


BROKEN = {
    '{"a": NaN}': "a: must be a finite number",
    '{"a": {"b": [1, 1e999]}}': "a.b[1]: must be a finite number",
    '{"a": ' + "7" * 10_000 + "}": "a: must be a finite number of at most 300 digits",
    '{"a": "\\ud800"}': r"a: \ud800 is half of a pair",
    '{"a": {"\\udc00": 1}}': r"a: \udc00 is half of a pair",
    '{"a": 1, "a": 2}': "a: the key occurs twice",
    '{"a": ' * 80 + "1" + "}" * 80: f"a.a.a: nested deeper than {MAX_DEPTH} levels",
    "[" * 100_000: f"nested deeper than {MAX_DEPTH} levels",
    '{"a": 1': "it is not JSON: Expecting ',' delimiter, line 1 column 8",
    "": "it is not JSON",
    '{"a": 9223372036854775808}': "a: must be below 2^63, got 9223372036854775808",
}


@pytest.mark.parametrize("source", BROKEN, ids=range(len(BROKEN)))
def test_what_is_wrong_is_named_with_its_key(tmp_path, source):
    path = tmp_path / "regard.json"
    path.write_text(source)
    with pytest.raises(UserError) as caught:
        read_json(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is damaged: {BROKEN[source]}") and "\n" not in message


def test_pairs_of_surrogates_are_characters():
    assert parse(r'{"a": "\ud83d\ude00"}') == {"a": "😀"}


def test_more_objects_than_memory_should_hold_are_not_parsed():
    with pytest.raises(Malformed, match="more than 4,194,304 objects"):
        parse(b"[" + b"[]," * (4 << 20) + b"[]]")


FACTS: dict[str, tuple[Any, str]] = {
    "list": ([], "valid dictionary"),
    "steps": ({"steps": "many"}, "steps: input should be a valid integer, got 'many'"),
    "share": ({"measured": {"valid": 2}}, "measured.valid: input should be less than or equal"),
    "value": ({"metrics": {"test": {"f1": {"value": "a"}}}}, "metrics.test: f1.value: input"),
    "each": ({"metrics": {"test": {"targets": {"value": {"f1": 1}}}}}, "metrics.test: value.f1: "),
    "targets": ({"data": {"targets": {"task": "label"}}}, "data.targets.names: is missing"),
    "heads": ({"alignment": {"per_head": [[0.5, None]], "links": 1}}, "alignment.per_head[0][1]"),
}


@pytest.mark.parametrize("name", FACTS)
def test_facts_of_the_wrong_type_are_named_with_their_key(tmp_path, name):
    value, message = FACTS[name]
    path = tmp_path / "regard.json"
    path.write_text(json.dumps(value))
    with pytest.raises(UserError) as caught:
        read_json(path, RunMetadata)
    assert f"{path} is damaged: " in str(caught.value) and message in str(caught.value)


def test_lines_are_numbered_and_the_last_may_be_unfinished(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"event": "valid", "seconds": 1}\n\n{"event": "va')
    assert list(read_lines(path, Event)) == [{"event": "valid", "seconds": 1}]
    path.write_text('{"event": "valid"}\n{"step": 3}\n')
    with pytest.raises(UserError, match=r"metrics.jsonl:2 is damaged: event: is missing"):
        list(read_lines(path, Event))
