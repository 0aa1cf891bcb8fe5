"""Pairs from files: line by line or column by column, split without leaks."""

import csv
import dataclasses
import gzip
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data import formats
from regard.data.corpus import prepare, reopen
from regard.data.sources import DataSource
from regard.data.text_files import Pairs, correlation, looks_paired
from regard.errors import UsageError, UserError
from regard.recipe import SPLITS, DataRecipe, build, tables
from regard.registry import TASKS

PAIRS = [("a dog", "ein Hund"), ("two", "zwei"), ("ünï 😀", "x,\t'y'"), (" lead", "trail ")]


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path

    return write


def lines(texts):
    return "".join(f"{text}\n" for text in texts)


def read(pairs):
    return [pair for c in pairs.records() for pair in zip(c.sources, c.texts, strict=True)]


@pytest.mark.parametrize("end", ["", ".gz"])
def test_two_files_are_read_in_parallel(write, end):
    one, two = (
        write(f"t.en{end}", lines(s for s, _ in PAIRS)),
        write("t.de", lines(t for _, t in PAIRS)),
    )
    pairs = Pairs([one, two])
    assert read(pairs) == PAIRS
    assert (pairs.format, pairs.why, pairs.blank, pairs.skipped) == (
        "lines",
        "two files, line by line",
        0,
        0,
    )
    assert pairs.size == one.stat().st_size + two.stat().st_size
    swapped = Pairs([two, one])
    assert read(swapped) == [(t, s) for s, t in PAIRS]
    assert swapped.hashes() != pairs.hashes()


def test_the_columns_of_tables_are_read_in_one_pass(write, tmp_path):
    for name, dialect in (("t.csv", "excel"), ("u.tsv", "excel-tab")):
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            rows = [(t, i, s) for i, (s, t) in enumerate(PAIRS)]
            csv.writer(file, dialect).writerows([("de", "n", "en"), *rows])
        assert read(Pairs([tmp_path / name], columns=("en", "de"))) == PAIRS
        assert read(Pairs([tmp_path / name], columns=("3", "de"))) == PAIRS
    objects = [json.dumps({"q": s, "n": 1, "a": t}) for s, t in PAIRS]
    path = write("v.jsonl.gz", lines(objects))
    pairs = Pairs([path], columns=("q", "a"))
    assert read(pairs) == PAIRS
    assert pairs.why == "by the name, text under 'q' and 'a'"
    plain = write("w.tsv", "one\teins\ntwo\tzwei\n")  # no header: columns by number
    assert read(Pairs([plain], columns=("2", "1"))) == [("eins", "one"), ("zwei", "two")]
    assert read(Pairs([plain, plain], columns=("1", "2"))) == [("one", "eins"), ("two", "zwei")] * 2


LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=4))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(one=LINES, two=LINES, block=st.integers(2, 40))
def test_lines_stay_aligned_wherever_blocks_end(tmp_path, one, two, block):
    count = min(len(one), len(two))
    texts = [("first", "erste"), *zip(one[:count], two[:count], strict=True)]
    files = []
    for name, column in zip(("x.en", "x.de"), zip(*texts, strict=True), strict=True):
        files.append(tmp_path / name)
        files[-1].write_text(lines(column), newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "BLOCK", block)
        patch.setattr(formats, "OPENING", block)
        patch.setattr(formats, "refuse_binary", lambda path, sample: None)
        pairs = Pairs(files)
        assert read(pairs) == [(s, t) for s, t in texts if s.strip() and t.strip()]
    assert pairs.blank == sum(not s.strip() and not t.strip() for s, t in texts)
    assert pairs.skipped == sum(bool(s.strip()) != bool(t.strip()) for s, t in texts)


@pytest.mark.parametrize("longer", [0, 1])
def test_files_of_unequal_length_are_named_with_the_line_left_over(write, longer):
    files = [write("t.en", "a\n" * 1200), write("t.de", "b\n" * 1200)]
    files[longer].write_text("c\n" * 1203)
    sizes = ["1,200", "1,200"]
    sizes[longer] = "1,203"
    with pytest.raises(UserError) as error:
        read(Pairs(files))
    assert str(error.value) == (
        f"{files[0]} has {sizes[0]} lines, {files[1]} {sizes[1]}: line 1,201 of {files[longer]} "
        "has no partner; line n of one file must belong to line n of the other"
    )


def test_half_pairs_and_bad_bytes_are_skipped_and_named(write):
    one = write("t.en", b"a\n\nc\nd\xff\n\n f \ng\xfe\nh\n")
    two = write("t.de", b"A\nB\n \t\nD\n\nF\nG\xfd\nH")
    pairs = Pairs([one, two])
    assert read(pairs) == [("a", "A"), (" f ", "F"), ("h", "H")]
    assert (pairs.blank, pairs.skipped) == (1, 4)
    assert [problem.split("; if")[0] for problem in sorted(pairs.problems)] == [
        f"{two}:3: is empty, but line 3 of {one} is not",
        f"{one}:2: is empty, but line 2 of {two} is not",
        f"{one}:4: invalid UTF-8, byte 0xff at offset 1 of the line",
        f"{one}:7: invalid UTF-8, byte 0xfe at offset 1 of the line",
    ]
    with pytest.raises(UserError, match=r"t\.en:4: invalid UTF-8"):
        read(Pairs([one, two], strict=True))
    table = write("t.csv", "en,de\na,A\n,B\nc,\n,\n")
    pairs = Pairs([table], columns=("en", "de"))
    assert read(pairs) == [("a", "A")]
    assert pairs.blank == 1
    assert pairs.problems == [
        f"{table}:3: 'en' is empty, but 'de' is not",
        f"{table}:4: 'de' is empty, but 'en' is not",
    ]
    with pytest.raises(UserError, match=r"t\.csv:3: 'en' is empty, but 'de' is not$"):
        read(Pairs([table], columns=("en", "de"), strict=True))
    with pytest.raises(UserError, match=r"all 1 records are damaged; first: .*b\.de:1: is empty"):
        read(Pairs([write("b.en", "a\n"), write("b.de", "\n")]))


def test_missing_columns_are_named(write):
    path, rows = write("t.csv", "en,de,n\na,b,1\n"), write("t.jsonl", '{"en": "a", "de": "b"}\n')
    plain = write("t.txt", "a\nb\n")
    which = "which hold the pairs? say --input {0} --target {0} (data.input, data.target); it has "
    hint = "did you mean 'de'? it has en, de, n"
    for files, columns, message in (
        ([path], ("", ""), f"{path}: {which.format('COLUMN')}en, de, n"),
        ([path], ("en", ""), f"{path}: {which.format('COLUMN')}en, de, n"),
        ([rows], ("", "de"), f"{rows}: {which.format('KEY')}en, de"),
        ([path], ("en", "dee"), f"{path}: has no column 'dee' (--target); {hint}"),
        ([path], ("9", "de"), f"{path}: has no column 9 (--input); it has 3 columns"),
        (
            [plain, plain],
            ("", "de"),
            f"data.target = 'de' names a column, but {plain} is read as lines (two files, line by "
            "line); --set data.format=csv, tsv, jsonl or parquet has columns",
        ),
        (
            [plain],
            ("", ""),
            "pairs need two files, the sources and the targets line by line, or a table with "
            f"--input and --target; got 1, the first {plain}",
        ),
    ):
        with pytest.raises(UsageError) as error:
            Pairs(files, columns=columns)
        assert str(error.value) == message
    with pytest.raises(
        UsageError, match="'text' has no pairs; choose one of lines, csv, tsv, jsonl or parquet"
    ):
        Pairs([plain, plain], format="text")
    with pytest.raises(UserError, match=r"all 1 records are damaged.*no key 'fr'; it has en, de"):
        read(Pairs([rows], columns=("en", "fr")))


@pytest.mark.parametrize(
    ("one", "two", "languages"),
    [
        ("train.en", "train.de", "en and de"),
        ("train.en.gz", "train.de", "en and de"),
        ("src-train.txt", "tgt-train.txt", "src and tgt"),
        ("europarl.de-en.de", "europarl.de-en.en", "de and en"),
        ("dev.eng_Latn", "dev.deu_Latn", "eng and deu"),
        ("rt-polarity.pos", "rt-polarity.neg", ""),
        ("cats.txt", "dogs.txt", ""),
        ("train.pt-BR", "train.en", "pt-BR and en"),
        ("en/train.txt", "de/train.txt", "en and de"),
        ("part1.txt", "part2.txt", ""),
        ("train.txt", "valid.txt", ""),
        ("xaa", "xab", ""),
        ("train.en", "test.de", ""),
        ("a.csv", "b.csv", ""),
    ],
)
def test_sources_and_targets_are_recognized_by_names_and_lines(tmp_path, one, two, languages):
    for name in (one, two):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        data = b"x y\n\nz"
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    reason = looks_paired([tmp_path / one, tmp_path / two])
    assert reason == (f"two files of 3 lines, {languages}, line by line" if languages else None)
    (tmp_path / two).write_text("x\n" * 4)
    files = [tmp_path / one, tmp_path / two]
    if languages:  # a line was lost, and this is not another task
        with pytest.raises(UserError) as error:
            looks_paired(files)
        assert f"{files[0]} has 3 lines, {files[1]} 4: line 4 of {files[1]}" in str(error.value)
        assert "--task next" in str(error.value)
    else:
        assert looks_paired(files) is None
    assert looks_paired([tmp_path / one]) is None
    assert looks_paired([tmp_path / one, tmp_path / "none.de"]) is None


WORDS = [
    "the",
    "a",
    "dog",
    "cat",
    "house",
    "runs",
    "sees",
    "blue",
    "old",
    "tree",
    "river",
    "and",
    "with",
    "of",
    "under",
    "small",
]


def sentences(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(3, 20))) for _ in range(count)]


def translated(text):
    """Return the words in another alphabet, so that only meaning is shared."""
    return " ".join(chr(0x4E00 + 37 * WORDS.index(word)) * 2 for word in text.split())


def correlate(write, one, two):
    return correlation([write("one", lines(one)), write("two", lines(two))])


def test_parallel_lines_correlate_in_length_and_vocabulary(write):
    texts = sentences(300)
    relation = correlate(write, texts, [translated(text) for text in texts])
    expected = np.corrcoef(
        *(np.log1p([len(t) for t in x]) for x in (texts, [translated(t) for t in texts]))
    )
    assert relation.related and relation.lines == 300
    assert relation.lengths == pytest.approx(expected[0, 1], abs=0.05)
    assert relation.vocabulary > 20
    assert "r = " in relation.words and "z = " in relation.words and "300 lines" in relation.words


@pytest.mark.parametrize("order", [None, str, len])
def test_unrelated_lines_do_not(write, order):
    """Not even where both files are sorted in the same way."""
    one, two = sentences(400, 1), sentences(400, 2)
    if order is not None:
        one, two = sorted(one, key=order), sorted(two, key=order)
    assert correlate(write, one, two).related is False


def test_few_lines_and_weak_relations_are_undecided(write):
    texts = sentences(300)
    assert correlate(write, texts[:19], [translated(t) for t in texts[:19]]).related is None
    other = sentences(300, 9)
    mixed = [translated(texts[i]) if i % 5 == 0 else other[i] for i in range(300)]
    assert correlate(write, texts, mixed).related is None


def stored(corpus, name):
    """Return the pairs of a split, decoded from its two shards."""
    shard = corpus.split(name)
    return [
        tuple(
            tokenizer.decode(x.record(r)[1:-1])
            for x, tokenizer in (
                (shard.source, corpus.source_tokenizer),
                (shard, corpus.tokenizer),
            )
        )
        for r in range(shard.records)
    ]


def prepared(run, data, log=print, **task):
    run.mkdir(exist_ok=True)
    values = {"task": {"name": "target", **task}, "data": dataclasses.asdict(data)}
    encoded = {role: {"tokenizer": "characters"} for role in ("input", "output")}
    return prepare(build(values | encoded), run, log)


@pytest.mark.parametrize("shared", [True, False])
def test_a_corpus_holds_every_pair_in_the_split_of_its_source(write, tmp_path, shared):
    random = np.random.default_rng(0)
    sources = [f"s{i}" for i in random.integers(0, 150, 400)]  # most come more than once
    targets = [f"ü{i}" for i in range(400)]
    paths = str(write("t.en", lines(sources))), str(write("t.de", lines(targets)))
    data = DataRecipe(train=paths, valid_fraction=0.2, test_fraction=0.1)
    corpus = prepared(tmp_path / "run", data, shared_vocab=shared)
    splits = {name: stored(corpus, name) for name in SPLITS}
    every = list(zip(sources, targets, strict=True))
    assert sorted(x for split in splits.values() for x in split) == sorted(every)
    order = {pair: i for i, pair in enumerate(every)}
    owners: dict[str, set[str]] = {}
    for name, split in splits.items():
        assert split and [order[x] for x in split] == sorted(order[x] for x in split)
        for source, _ in split:
            owners.setdefault(source, set()).add(name)
    assert all(len(names) == 1 for names in owners.values())
    facts = corpus.facts["splits"]["train"]
    assert facts["records"] == len(splits["train"])
    for prefix, index in (("source_", 0), ("", 1)):
        characters = sum(len(pair[index]) for pair in splits["train"])
        assert facts[prefix + "symbols"] == characters + len(splits["train"])
        assert facts[prefix + "tokens"] == characters + 2 * len(splits["train"])
    assert (corpus.source_tokenizer is corpus.tokenizer) == shared
    assert (tmp_path / "run" / "source_tokenizer.json").exists() != shared
    assert (
        "ü" in [corpus.source_tokenizer.text(i) for i in range(corpus.source_tokenizer.vocab_size)]
    ) == shared
    again = reopen(tmp_path / "run", verify=True)
    assert {name: stored(again, name) for name in SPLITS} == splits


def test_unknown_symbols_are_counted_in_sources_and_targets(write, tmp_path):
    train = str(write("t.en", "ab\n")), str(write("t.de", "cd\n"))
    valid = str(write("v.en", "abcx\n")), str(write("v.de", "cdy\n"))
    data = DataRecipe(train=train, valid=valid, test_fraction=0)
    for shared, unknown in ((True, 1), (False, 2)):
        corpus = prepared(tmp_path / f"run{shared}", data, shared_vocab=shared)
        facts = corpus.facts["splits"]["valid"]
        assert (facts["source_unknown"], facts["unknown"]) == (unknown, 1)


def test_leaks_are_sources_that_occur_in_training(write, tmp_path):
    train = str(write("t.en", "a\nb\nc\n")), str(write("t.de", "A\nB\nC\n"))
    valid = str(write("v.en", "b\nx\na\n")), str(write("v.de", "B2\nA\n\n"))
    corpus = prepared(tmp_path / "run", DataRecipe(train=train, valid=valid, test_fraction=0))
    assert corpus.facts["leaks"] == {"valid": {"records": 1, "examples": ["b"]}}
    assert corpus.facts["skipped"] == 1  # of valid, named too
    assert corpus.facts["problems"] == [f"{valid[1]}:3: is empty, but line 3 of {valid[0]} is not"]
    assert corpus.test is None


def test_what_is_stored_is_used_again_until_task_or_tokens_change(write, tmp_path):
    paths = [str(write("t.en", lines("abcdefgh"))), str(write("t.de", lines("ABCDEFGH")))]
    data = DataRecipe(train=tuple(paths), valid_fraction=0, test_fraction=0, format="lines")
    first = prepared(tmp_path / "run", data, shared_vocab=False)
    made = (tmp_path / "run" / "data" / "train.json").stat().st_mtime_ns
    assert prepared(tmp_path / "run", data, shared_vocab=False).train.source.records == 8
    assert (tmp_path / "run" / "data" / "train.json").stat().st_mtime_ns == made
    shared = prepared(tmp_path / "run", data)
    assert shared.source_tokenizer is shared.tokenizer
    assert shared.tokenizer.vocab_size > first.tokenizer.vocab_size
    tables_of_texts = {"data": dataclasses.asdict(data), "output": {"tokenizer": "characters"}}
    plain = prepare(build(tables_of_texts), tmp_path / "run", print)
    assert plain.train.source is None and plain.source_tokenizer is None
    assert plain.train.records == 16  # two files of single records
    other = tmp_path / "run" / "data" / "train-source.json"
    corpus = prepared(tmp_path / "run", data)
    assert corpus.train.source.records == 8
    other.unlink()
    messages = []
    prepared(tmp_path / "run", data, messages.append)
    assert "train-source.json" in messages[0]  # and it was built again
    assert other.exists()


def test_a_fraction_of_training_goes_by_the_source_too(write, tmp_path):
    sources = [f"s{i // 3}" for i in range(600)]
    paths = str(write("t.en", lines(sources))), str(write("t.de", lines(map(str, range(600)))))
    data = DataRecipe(train=paths, train_fraction=0.5)
    kept_sources = {source for source, _ in stored(prepared(tmp_path / "run", data), "train")}
    everything = DataSource(DataRecipe(train=paths), TASKS["target"].roles)
    for chunk in everything.chunks():
        if chunk.split == 0:
            share = np.mean([source in kept_sources for source in chunk.sources])
            assert 0.35 < share < 0.65
    assert len(stored(reopen(tmp_path / "run"), "train")) == 3 * len(kept_sources)


def test_recipes_know_the_keys_of_pairs():
    assert build({"task": {"name": "target"}}).task.name == "target"
    apart = build({"task": {"name": "target", "shared_vocab": False}})
    assert tables(apart)["task"]["shared_vocab"] is False
    wrong = r"task\.name: unknown task 'targets'; did you mean 'target'"
    with pytest.raises(UsageError, match=wrong):
        build({"task": {"name": "targets"}})
    with pytest.raises(UsageError, match=r"task\.name: unknown task"):
        build({"task": {"name": ["next"]}})
    with pytest.raises(UsageError, match=r"max_ratio must be 0 \(none\) or at least 1, got 0\.5"):
        build({"task": {"name": "target", "max_ratio": 0.5}})
