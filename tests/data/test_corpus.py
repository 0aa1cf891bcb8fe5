"""Files to shards: what is stored is what the tokenizer gives for the text, with its targets."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from regard.data import corpus, formats
from regard.data import corpus as encoding
from regard.data.corpus import prepare, reopen
from regard.data.sources import SourceChunk
from regard.errors import UserError
from regard.recipe import build
from regard.registry import MODALITIES, TASKS, TOKENIZERS

TEXT = "".join(
    f"The {i}th  line, of words\tand  spaces;\n\n  x{i % 7} é😀 <S> don't\n" for i in range(60)
)


def recipe_for(path, task="next", tokenizer="characters", **data):
    """Return a recipe with one tokenizer for all that the task encodes."""
    tables = {role: {"tokenizer": tokenizer} for role in TASKS[task].roles.encoded}
    return build({"task": {"name": task}, "data": {"train": [str(path)], **data}, **tables})


TEXT_TOKENIZERS = [
    name for name in TOKENIZERS if MODALITIES[TOKENIZERS[name].modality].kind == "tokens"
]


@pytest.mark.parametrize("kind", TEXT_TOKENIZERS)
@pytest.mark.parametrize("block", [16, 57, 4 << 20])
def test_a_text_read_in_blocks_is_stored_as_if_it_were_encoded_whole(
    kind, block, tmp_path, monkeypatch
):
    """Words that met the end of a block were once encoded as two."""
    (tmp_path / "a.txt").write_text(TEXT)
    monkeypatch.setattr(formats, "BLOCK", block)
    recipe = recipe_for(tmp_path / "a.txt", tokenizer=kind, format="text", test_fraction=0.0)
    found = corpus.prepare(recipe, tmp_path / "run", print)
    cut = len(TEXT) - round(0.05 * len(TEXT))
    for shard, part in ((found.train, TEXT[:cut]), (found.valid, TEXT[cut:])):
        ids = shard.record(0)
        assert (ids[0], ids[-1]) == (found.tokenizer.start, found.tokenizer.end)
        assert np.array_equal(ids[1:-1], found.tokenizer.encode(part))


def test_a_text_without_spaces_is_not_held_back(tmp_path, monkeypatch):
    monkeypatch.setattr(encoding, "LONGEST_WORD", 10)
    pieces = [SourceChunk(0, (), begins=True), SourceChunk(0, ["acgt" * 9])]
    pieces += [SourceChunk(0, ["acgt ac"]), SourceChunk(0, (), ends=True)]
    cut = TOKENIZERS["words"].train(["a"]).cut
    texts = ["".join(piece.texts) for piece in encoding.at_borders(pieces, cut, 0)]
    assert texts == ["", "acgt" * 9, "acgt", " ac", ""]


@pytest.mark.parametrize(
    ("name", "content", "task", "needed"),
    [
        ("a.txt", "only one\n", "next", "holds one record: training needs at least two"),
        ("a.fa", ">x\nACGT\n", "next", "--set data.format=text reads one long sequence"),
        ("a.txt", "  \n \n\t\n", "next", "holds nothing but blanks"),
        ("a.txt", "\n\n", "next", "nothing to read (2 blank records)"),
        ("a.csv", "text,y\na,x\n", "label", "holds one record"),
        ("a.csv", "text,y\na,x\nb,x\n", "label", "all 2 training records are 'x' under 'y'"),
        ("a.csv", "text,y\na,3\nb,3\nc,3\n", "value", "at least two classes or values"),
        ("a.csv", "text,y\nabc,HHH\nabd,HHH\n", "position-label", "nothing to tell apart"),
    ],
)
def test_too_little_to_learn_from_is_refused_with_what_is_needed(
    tmp_path, name, content, task, needed
):
    (tmp_path / name).write_text(content)
    target = {"target": "y"} if name.endswith("csv") else {}
    recipe = recipe_for(tmp_path / name, task, valid_fraction=0, test_fraction=0, **target)
    with pytest.raises(UserError) as caught:
        prepare(recipe, tmp_path / "run", print)
    assert needed in str(caught.value) and name in str(caught.value) + name
    assert "\n" not in str(caught.value)


def test_records_longer_than_the_context_are_counted(tmp_path):
    rows = [("a" * 30, "x"), ("b" * 5, "y"), ("c" * 31, "x"), ("d" * 8, "y")]
    (tmp_path / "t.csv").write_text("text,y\n" + "".join(f"{a},{b}\n" for a, b in rows))
    recipe = recipe_for(tmp_path / "t.csv", "label", target="y", valid_fraction=0)
    corpus = prepare(recipe, tmp_path / "run", print)
    assert corpus.truncation_warnings(33) == [] and corpus.truncation_warnings(0) == []
    assert corpus.truncation_warnings(32) == [  # a start and an end belong to every record
        "1 of 4 records are longer than model.max_len = 32 tokens and were cut to their first 32; "
        "--set model.max_len=33 reads all of the longest"
    ]
    assert corpus.truncation_warnings(16)[0].startswith("2 of 4 records")
    plain = recipe_for(tmp_path / "t.csv", input="text", valid_fraction=0)
    windows = prepare(plain, tmp_path / "other", print)
    assert windows.truncation_warnings(4) == []


SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def labelled(path, task, tokenizer, **data):
    tables = {"task": {"name": task}, "input": {"tokenizer": tokenizer}}
    return build({**tables, "data": {"train": [str(path)], **data}})


@pytest.fixture
def build_corpus(tmp_path):
    """Prepare a table for a task; what was said is kept."""

    def build_corpus(text, task, kind="characters", name="t.csv", **keys):
        path = tmp_path / name
        path.write_text(text)
        recipe = labelled(path, task, kind, **{"target": "y", **keys})
        said = []
        corpus = prepare(recipe, tmp_path / "run", said.append)
        return corpus, [*said, *corpus.warnings]

    return build_corpus


def text_of(corpus, shard, number):
    return corpus.tokenizer.decode(shard.record(number)[1:-1])


SPLIT = "text,y,z,s\nab,no,1,train\nba,yes,,train\nb,no,3,train\naa,maybe,4,test\nab,yes,2,valid\n"


def test_labels_are_classes_of_training_and_others_are_unseen(build_corpus):
    corpus, _ = build_corpus(SPLIT, "label", split="s")
    said = corpus.warnings
    assert corpus.targets.classes == (("no", "yes"),)
    texts = [text_of(corpus, corpus.train, i) for i in range(3)]
    found = dict(zip(texts, corpus.train.targets.tolist(), strict=True))
    assert found == {"ab": 0, "ba": 1, "b": 0}
    assert corpus.test.targets.tolist() == [-1]
    assert corpus.valid.targets.tolist() == [1]
    unseen = r"unseen in test: maybe \(\S+:5\) × 1: training .+"
    assert any(re.fullmatch(unseen, line) for line in said)
    assert any(re.fullmatch(r"one example: maybe \(\S+:5\)", line) for line in said)
    assert any(
        line.startswith("conflicts: 1 inputs come with different targets: 'ab'") for line in said
    )
    labels = corpus.facts["labels"]
    assert labels["classes"]["y"]["yes"] == {"train": 1, "valid": 1}
    assert labels["leaks"]["valid"]["records"] == 1
    assert json.loads(json.dumps(corpus.facts, allow_nan=False)) == corpus.facts


def test_values_keep_their_gaps(build_corpus):
    corpus, _ = build_corpus(SPLIT, "value", split="s", target="z,z")
    expected = np.array([[1, 1], [3, 3]], np.float32)  # a record without any target is left out
    assert np.array_equal(np.sort(corpus.train.targets, axis=0), expected)
    text = "text,y,z\n" + "".join(f"a{i},{i},\n" for i in range(3)) + "b,,7\n"
    corpus, _ = build_corpus(text, "value", target="y,z", valid_fraction=0, test_fraction=0)
    wanted = {"a0": [0, None], "a1": [1, None], "a2": [2, None], "b": [None, 7]}
    for i, row in enumerate(corpus.train.targets.tolist()):
        known = [None if math.isnan(cell) else cell for cell in row]
        assert known == wanted.pop(text_of(corpus, corpus.train, i))
    assert not wanted
    assert (corpus.valid, corpus.test) == (None, None)
    assert corpus.facts["labels"]["gaps"] == {"y": 1, "z": 3}


def test_several_labels_are_zero_one_or_open(build_corpus):
    text = "text,y,z\na,0,no\nb,1,\nc,,yes\n"
    corpus, _ = build_corpus(text, "labels", target="y,z", valid_fraction=0, test_fraction=0)
    texts = [text_of(corpus, corpus.train, i) for i in range(3)]
    found = dict(zip(texts, corpus.train.targets.tolist(), strict=True))
    assert found == {"a": [0, 0], "b": [1, -1], "c": [-1, 1]}
    assert corpus.train.targets.dtype == np.int8


def test_labels_of_positions_lie_beside_their_tokens(build_corpus):
    text = "text,y\nabc,HEE\nba,CH\n"
    keys = {"valid_fraction": 0, "test_fraction": 0}
    corpus, _ = build_corpus(text, "position-label", **keys)
    assert corpus.targets.classes == (("C", "E", "H"),)
    shard = corpus.train
    assert shard.targets.tolist() == [-1, 2, 1, 1, -1, -1, 0, 2, -1]
    for i in range(shard.records):
        inside = slice(shard.offsets[i] + 1, shard.offsets[i + 1] - 1)
        letters = "".join(corpus.targets.classes[0][c] for c in shard.targets[inside])
        assert letters == ["HEE", "CH"][i]
    with pytest.raises(
        UserError, match=r"t\.csv:2: 3 labels of positions, but 1 tokens.*characters"
    ):
        build_corpus(text, "position-label", kind="words", **keys)
    with pytest.raises(UserError, match="manifest"):  # nothing half-made is left to be opened
        reopen(Path(shard.path).parents[1])


def test_two_texts_stand_side_by_side(build_corpus):
    text = "a,b,y\nxx,z,1\ny,zz,0\n"
    corpus, _ = build_corpus(text, "label", input="a,b", valid_fraction=0, test_fraction=0)
    assert [text_of(corpus, corpus.train, i) for i in range(2)] == ["xx", "y"]
    assert [text_of(corpus, corpus.train.source, i) for i in range(2)] == ["z", "zz"]
    assert corpus.train.targets.tolist() == [1, 0]


def test_a_corpus_is_used_again_and_damage_is_found(build_corpus, tmp_path):
    first, said = build_corpus(SPLIT, "label", split="s")
    stamp = (tmp_path / "run/data/train.targets.bin").stat().st_mtime_ns
    again, _ = build_again(tmp_path, said)
    assert again.targets == first.targets
    assert (tmp_path / "run/data/train.targets.bin").stat().st_mtime_ns == stamp
    file = tmp_path / "run/data/train.targets.bin"
    raw = bytearray(file.read_bytes())
    raw[0] ^= 1
    file.write_bytes(raw)
    with pytest.raises(UserError, match=r"train\.targets\.bin is damaged: its checksum"):
        reopen(tmp_path / "run", verify=True)
    file.write_bytes(raw[:-1])
    with pytest.raises(UserError, match=r"train\.targets\.bin is damaged: it must hold 12 bytes"):
        reopen(tmp_path / "run")
    facts = tmp_path / "run/data/train.targets.json"
    for content, message in (
        ("{", "it is not JSON"),
        ("[]", "valid dictionary"),
        ('{"task": "label", "blake2b": ""}', "shape: is missing"),
        (None, "cannot read"),
    ):
        facts.unlink() if content is None else facts.write_text(content)
        with pytest.raises(UserError, match=message):
            reopen(tmp_path / "run")
    facts.write_text('{"task": "label", "shape": [9], "blake2b": ""}')
    with pytest.raises(UserError, match=r"its shape must begin with 3, got \[9\]"):
        reopen(tmp_path / "run")


def build_again(tmp_path, said):
    recipe = labelled(tmp_path / "t.csv", "label", "characters", target="y", split="s")
    return prepare(recipe, tmp_path / "run", said.append), said


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data folder is not here")
def test_promoters_become_a_corpus(tmp_path):
    path = SHARED / "dna/uci_promoters/promoters.data"
    data = {"format": "csv", "input": "3", "target": "1", "split": "stratified"}
    corpus = prepare(labelled(path, "label", "nucleotides", **data), tmp_path, print)
    counts = [np.bincount(corpus.split(s).targets).tolist() for s in ("train", "valid", "test")]
    assert np.sum(counts, axis=0).tolist() == [53, 53]
    assert all(abs(a - b) <= 1 for a, b in counts)
    assert corpus.train.tokens == corpus.train.records * 59


def corpus_of(path, run, fraction, **options):
    data = {"train": [str(path)], "train_fraction": fraction, **options}
    run.mkdir()
    return prepare(build({"data": data, "output": {"tokenizer": "characters"}}), run, print)


def texts_of(corpus, shard):
    return [corpus.tokenizer.decode(shard.record(i)[1:-1]) for i in range(shard.records)]


def test_fractions_of_records_lie_in_one_another_and_share_all_else(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"word{i}\n" for i in range(2000)) + "rareé\n")
    found = {f: corpus_of(path, tmp_path / f"run{f}", f, format="lines") for f in (0.25, 0.5, 1.0)}
    train = {f: set(texts_of(c, c.train)) for f, c in found.items()}
    assert train[0.25] < train[0.5] < train[1.0]
    for f, words in train.items():
        assert len(words) == pytest.approx(f * len(train[1.0]), rel=0.1)
    for split in ("valid", "test"):
        held = {tuple(texts_of(c, c.split(split))) for c in found.values()}
        assert len(held) == 1
    assert len({c.tokenizer.vocab_size for c in found.values()}) == 1  # é is known to all


def test_a_fraction_of_running_text_is_its_beginning(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("abcdefghij" * 1000)
    whole = corpus_of(path, tmp_path / "whole", 1.0, format="text")
    half = corpus_of(path, tmp_path / "half", 0.5, format="text")
    assert texts_of(half, half.train)[0] == texts_of(whole, whole.train)[0][:4500]
    for split in ("valid", "test"):
        assert texts_of(half, half.split(split)) == texts_of(whole, whole.split(split))


class Stopped(BaseException):
    """Ctrl-C, or the signal of a launcher."""


def stop_after(pieces):
    """A progress that stops the process once so many pieces were encoded."""
    seen = []

    def progress(activity, *rest):
        if activity == "encoding":
            seen.append(rest)
            if len(seen) == pieces:
                raise Stopped

    return progress


def stored(run):
    """Every file of encoded data, and of its tokenizers."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name != "manifest.json"]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


RECORDS = [f"{'abcdefgh'[i % 7 :]}\t{'xyz'[i % 3 :]} {i}" for i in range(200)]
KINDS = {
    "records": ("next", "characters", {"format": "lines"}),
    "running text": ("next", "bpe", {"format": "text"}),
    "pairs": ("target", "characters", {"format": "tsv", "input": "1", "target": "2"}),
    "labelled": ("position-label", "characters", {"format": "tsv", "input": "a", "target": "b"}),
}


@pytest.mark.parametrize("pieces", [1, 5, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_encoding_that_was_stopped_goes_on_and_gives_the_same_bytes(
    kind, pieces, tmp_path, monkeypatch
):
    task, tokenizer, data = KINDS[kind]
    paths = [tmp_path / f"{i:02}.tsv" for i in range(20)]
    for i, path in enumerate(paths):
        rows = RECORDS[10 * i : 10 * i + 10]
        if kind == "labelled":
            rows = ["a\tb", *(f"{x[:5]}\t{'HE'[len(x) % 2] * len(x[:5])}" for x in rows)]
        path.write_text("\n".join(rows) + "\n")
    files = [str(path) for path in paths]
    recipe = recipe_for("", task, tokenizer, **data | {"train": files})
    prepare(recipe, tmp_path / "straight", print)
    monkeypatch.setattr(encoding, "SAVE_SECONDS", -1.0)  # after each piece
    run, lines = tmp_path / "stopped", []
    with pytest.raises(Stopped):
        prepare(recipe, run, print, progress=stop_after(pieces))
    (record,) = (run / "data").glob("partial.json")
    done = json.loads(record.read_text())["chunks"]
    assert done >= pieces
    encoded = []
    add = encoding.ShardTokenizer.add
    monkeypatch.setattr(
        encoding.ShardTokenizer, "add", lambda *args: (encoded.append(args[1]), add(*args))[1]
    )
    again = prepare(recipe, run, lines.append)
    assert lines[0] == "encoding goes on where it was stopped"
    assert stored(run) == stored(tmp_path / "straight")
    assert again.facts == reopen(tmp_path / "straight").facts
    rest = len(encoded)
    encoded.clear()
    prepare(recipe, tmp_path / "third", print)
    shards = 2 if kind == "pairs" else 1
    assert rest + done * shards == len(encoded)  # nothing was encoded twice


def test_encoding_starts_again_if_the_files_have_changed(tmp_path, monkeypatch):
    path, run = tmp_path / "a.txt", tmp_path / "run"
    path.write_text("\n".join(RECORDS) + "\n")
    monkeypatch.setattr(encoding, "SAVE_SECONDS", -1.0)
    with pytest.raises(Stopped):
        prepare(recipe_for(path, format="lines"), run, print, progress=stop_after(1))
    path.write_text("abc\n" * 50)
    found = prepare(recipe_for(path, format="lines"), run, print)
    assert found.tokenizer.decode(found.train.record(0)) == "abc"
    assert not list((run / "data").glob(".*")) and not list((run / "data").glob("partial*"))


KILL = """
import os, signal, sys
from pathlib import Path
from regard.data import corpus, formats
from regard.recipe import build

formats.BLOCK = formats.OPENING = 100
corpus.SAVE_SECONDS = -1.0
calls = []

def progress(activity, *rest):
    calls.extend([1] * (activity == "encoding"))
    if len(calls) == 9:
        os.kill(os.getpid(), signal.SIGKILL)

tables = {"task": {"name": "next"}, "output": {"tokenizer": "characters"}}
recipe = build({**tables, "data": {"train": [sys.argv[1]], "format": "lines"}})
corpus.prepare(recipe, Path(sys.argv[2]), print, progress=progress)
"""


def test_encoding_that_was_killed_goes_on(tmp_path, monkeypatch):
    """A gigabyte that was killed after ten minutes was once encoded from the beginning again."""
    path, run = tmp_path / "a.txt", tmp_path / "killed"
    path.write_text("\n".join(RECORDS) + "\n")
    ended = subprocess.run([sys.executable, "-c", KILL, path, run], capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert json.loads((run / "data" / "partial.json").read_text())["chunks"] >= 8
    monkeypatch.setattr(formats, "BLOCK", 100)
    monkeypatch.setattr(formats, "OPENING", 100)
    lines = []
    recipe = recipe_for(path, format="lines")
    prepare(recipe, run, lines.append)
    prepare(recipe, tmp_path / "straight", print)
    assert lines[0] == "encoding goes on where it was stopped"
    assert stored(run) == stored(tmp_path / "straight")
