"""A user's mistake is one clear line, exit 1 or 2, and nothing half-written."""

import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from regard.recipe import SPLITS
from regard.training import checkpoint

SMALL = ["--set=model.n_layers=1", "--set=model.d_model=8", "--set=train.batch_tokens=64"]
QUICK = [*SMALL, "--set=train.steps=2"]


def refused(found, code=1):
    """The one line of an error."""
    assert found.code == code and found.out == ""
    (line,) = [x for x in found.err.splitlines() if x.startswith("error: ")]
    assert found.err.splitlines()[-1] == line
    return line


BROKEN = {
    "empty": (b"", "is empty"),
    "blank": (b"\n\n\n", "nothing to read (3 blank records)"),
    "binary": (bytes(range(256)) * 40, "binary file"),
    "utf16": ("names\n".encode("utf-16"), "UTF-16"),
    "truncated.gz": (gzip.compress(b"anna\nbob\n" * 500)[:-40], "truncated"),
    "corrupt.gz": (b"\x1f\x8b\x08\x00" + b"x" * 40, "data is corrupt"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("verb", ["train", "data"])
def test_a_file_that_cannot_be_read_is_named(cli, tmp_path, name, verb):
    contents, said = BROKEN[name]
    path = tmp_path / name
    path.write_bytes(contents)
    out = ["--out", "runs/deep/run"] if verb == "train" else []
    line = refused(cli(verb, path, *(QUICK if verb == "train" else []), *out))
    assert said in line and name in line
    assert [p.name for p in tmp_path.iterdir()] == [name]  # not even runs/


def test_a_missing_file_is_named_with_the_one_that_was_meant(cli, words):
    line = refused(cli("train", words.with_name("wrods.txt"), "--out", "run"))
    assert "no such file" in line and "did you mean 'words.txt'?" in line


def test_bytes_that_are_no_utf8_are_named_by_file_and_line(cli, tmp_path):
    lines = [b"anna"] * 50
    lines[41] = b"mar\xeda"
    path = tmp_path / "latin.txt"
    path.write_bytes(b"\n".join(lines) + b"\n")
    found = cli("train", path, *QUICK, "--out", "run")
    assert found.code == 0
    assert f"warning: damaged records left out: 1; first: {path}:42: invalid UTF-8" in found.err
    line = refused(cli("train", path, "--strict", *QUICK, "--out", "strict"))
    assert f"{path}:42: invalid UTF-8, byte 0xed" in line
    assert not (tmp_path / "strict").exists()


def test_one_record_is_refused_with_what_is_needed(cli, tmp_path):
    for word in ("anna", "bob", "q"):  # whatever side their hashes fall on
        path = tmp_path / f"{word}.txt"
        path.write_text(word + "\n")
        line = refused(cli("train", path, *QUICK, "--out", word))
        assert f"{word}.txt holds one record: training needs at least two" in line
        assert not (tmp_path / word).exists()


def test_an_unknown_model_task_kind_or_format_is_a_matter_of_usage(cli, words, tmp_path):
    assert "did you mean 'transformer'" in refused(cli("train", words, "--model", "tranformer"), 2)
    assert "choose one of" in refused(cli("train", words, "--model", "xyz"), 2)
    assert "unknown task 'lable'" in refused(cli("train", words, "--task", "lable"), 2)
    assert "output: tokenizer 'letters'" in refused(
        cli("train", words, "--tokenizer", "letters"), 2
    )
    assert "linse" in refused(cli("data", words, "--format", "linse"), 2)
    assert not list(tmp_path.iterdir())


def test_wrong_types_missing_arguments_and_unknown_verbs_are_a_matter_of_usage(cli, words):
    assert "--minutes" in refused(cli("train", words, "--minutes", "soon"), 2)
    assert "minutes must be positive" in refused(cli("train", words, "--minutes", "0"), 2)
    assert "FILE_OR_RECIPE" in refused(cli("train"), 2)
    assert "--modle" in refused(cli("train", words, "--modle", "lstm"), 2)
    assert "train" in refused(cli("trian", words), 2)
    assert "--seed" in refused(cli("generate", words, "--seed", "x"), 2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_said_before_anything_is_written(cli, words, tmp_path):
    line = refused(cli("train", words, "--set", "train.device=cuda", *QUICK, "--out", "run"))
    assert "this machine has 0 CUDA devices" in line
    assert "not a device" in refused(
        cli("train", words, "--set", "train.device=gpu", "--out", "run")
    )
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named(cli, words, tmp_path):
    (tmp_path / "file").write_text("")
    assert "file is a file" in refused(cli("train", words, *QUICK, "--out", "file"))
    assert "cannot create file/run" in refused(cli("train", words, *QUICK, "--out", "file/run"))
    assert (tmp_path / "file").read_text() == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_missing_permission_is_named(cli, words, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert "Permission denied" in refused(cli("train", words, *QUICK, "--out", "locked/run"))


def test_a_recipe_that_is_damaged_or_not_alone_is_named(cli, words, tmp_path):
    (tmp_path / "bad.toml").write_text("[train\nsteps = 3\n")
    assert "bad.toml is not valid TOML" in refused(cli("train", "bad.toml"))
    (tmp_path / "wrong.toml").write_text("model = 3\n")
    assert "model must be a table" in refused(cli("train", "wrong.toml"), 2)
    (tmp_path / "empty.toml").write_text("")
    assert "no file" in refused(cli("train", "empty.toml"))
    assert "no recipe at none.toml" in refused(cli("train", "none.toml"))
    assert "bad.toml is not valid TOML" in refused(cli("train", "bad.toml", words))
    line = refused(cli("train", "bad.toml", words, "wrong.toml"), 2)
    assert "give one recipe.toml, got bad.toml and wrong.toml" in line
    (tmp_path / "folder.toml").mkdir()
    assert "cannot read folder.toml" in refused(cli("train", "folder.toml"))


def test_what_is_no_run_folder_is_said_to_be_none(cli, words, tmp_path):
    for verb, rest in (("evaluate", []), ("generate", []), ("score", [words])):
        assert "no run folder at nowhere" in refused(cli(verb, "nowhere", *rest))
        assert "is a file; a run folder was expected" in refused(cli(verb, words, *rest))
        assert "has no config.json" in refused(cli(verb, tmp_path, *rest))


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("family", ["bigram", "transformer"])
def test_every_damaged_file_of_a_run_is_named(cli, request, words, tmp_path, family, name):
    run = tmp_path / "run"
    shutil.copytree(request.getfixturevalue(family), run)
    path = run / name
    whole = path.read_bytes()
    damages = {
        "gone": None,
        "empty": b"",
        "cut": whole[: len(whole) // 2],
        "torn": whole[:-1] if name == "model.safetensors" else whole[:-3],
        "noise": bytes((b * 7 + 13) % 256 for b in whole),
    }
    if name == "model.safetensors":
        damages["flipped"] = whole[:-2] + bytes([whole[-2] ^ 4]) + whole[-1:]
    for damage, contents in damages.items():
        path.unlink(missing_ok=True)
        if contents is not None:
            path.write_bytes(contents)
        for verb, rest in (("score", [words]), ("generate", ["--num", 1])):
            assert name in refused(cli(verb, run, *rest)), damage
    path.unlink(missing_ok=True)
    os.mkfifo(path)  # would be waited for forever
    assert name in refused(cli("score", run, words))


def test_a_tokenizer_of_another_run_is_refused(cli, words, tmp_path, transformer):
    run = tmp_path / "run"
    shutil.copytree(transformer, run)
    (tmp_path / "other.txt").write_text("xyz\nzzy\n" * 20)
    assert cli("train", "other.txt", "--model", "bigram", "--out", "other").code == 0
    shutil.copy(tmp_path / "other" / "tokenizer.json", run)
    assert "tokenizer.json has 7 tokens, config.json says 9" in refused(cli("score", run, words))


def test_damaged_side_files_do_not_keep_a_model_from_being_used(cli, words, tmp_path, transformer):
    run = tmp_path / "run"
    shutil.copytree(transformer, run)
    for name in ("metrics.jsonl", "README.md"):
        (run / name).write_bytes(b"\xff\x00")
    shutil.rmtree(run / "data")
    assert cli("score", run, words).code == 0
    assert cli("evaluate", run).code == 0  # its data are encoded again
    (run / "regard.json").write_text("{")
    assert "regard.json is damaged" in refused(cli("generate", run))


@pytest.mark.parametrize("name", ["manifest.json", "test.json", "test.ids.bin", "test.offsets.bin"])
def test_damaged_data_of_a_run_is_named_by_evaluate_and_rebuilt_by_resume(
    cli, words, tmp_path, transformer, name
):
    run = tmp_path / "run"
    shutil.copytree(transformer, run)
    path = run / "data" / name
    path.write_bytes(path.read_bytes()[:-9])
    assert name in refused(cli("evaluate", run))
    before = (transformer / "data" / name).read_bytes()
    assert cli("train", words, "--out", run, "--resume").code == 0
    if name != "manifest.json":  # that one holds times
        assert path.read_bytes() == before
    assert cli("evaluate", run).code == 0


def test_data_that_changed_under_a_checkpoint_is_refused(cli, words, tmp_path):
    data = tmp_path / "data.txt"
    shutil.copy(words, data)
    assert cli("train", data, *QUICK, "--out", "run").code == 0
    os.utime(data, (1, 1))  # touched only: the bytes are the same
    assert cli("train", data, "--out", "run", "--resume").code == 0
    data.write_text(data.read_text() + "abc\n")
    assert "has changed since its checkpoint" in refused(
        cli("train", data, "--out", "run", "--resume")
    )


def test_a_run_is_no_data_but_can_be_gone_on_with(cli, words, tmp_path):
    assert cli("train", words, *QUICK, "--out", "run").code == 0
    assert "run is a run: --resume goes on with it" in refused(cli("train", "run"))
    found = cli("train", "run", "--resume")
    assert found.code == 0 and "from step 2" in found.err and "→ run" in found.out


WORDS = ["ab cd", "ef", "fa be", "cc", "d a", "bb ee"] * 10


@pytest.fixture
def sides(tmp_path):
    """Two files of pairs, with what is asked for in place of some lines of the second."""

    def write(changes=None, *, cut=0, name="some.de"):
        lines = [word.upper().encode() for word in WORDS[: len(WORDS) - cut]]
        for line, text in (changes or {}).items():
            lines[line - 1] = text
        (tmp_path / "some.en").write_text("\n".join(WORDS) + "\n")
        (tmp_path / name).write_bytes(b"\n".join(lines) + b"\n" * bool(lines))
        return tmp_path / "some.en", tmp_path / name

    return write


@pytest.mark.parametrize("verb", ["train", "compare", "data"])
def test_sides_of_unequal_length_are_refused_with_both_counts(cli, sides, verb):
    """Once they were taken as two texts, and a language model was trained on both."""
    one, two = sides(cut=7)
    line = refused(cli(verb, one, two))
    assert f"{one} has 60 lines, {two} 53: line 54 of {one} has no partner" in line
    assert "line n of one file must belong to line n of the other" in line
    assert "--task next" in line


def test_files_that_are_no_pairs_may_have_unequal_lengths(cli, sides):
    found = cli("train", *sides(cut=7), "--task", "next", "--model", "bigram", "--out", "run")
    assert found.code == 0 and "task next" in found.err


def test_an_empty_side_is_named(cli, sides, tmp_path):
    one, two = sides(cut=60)
    told = f"{one} has 60 lines, {two} 0: line 1 of {one} has no partner"
    assert told in refused(cli("train", one, two, "--out", "run"))
    assert f"{two}: is empty" in refused(cli("train", one, two, "--task", "target"))
    one, two = sides(dict.fromkeys(range(1, 61), b""))
    line = refused(cli("train", one, two, *QUICK, "--out", "run"))
    assert "all 60 records are damaged" in line
    assert f"first: {two}:1: is empty, but line 1 of {one} is not" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("line", "text", "told"),
    [
        (17, b"", "is empty, but line 17 of "),
        (42, b"GR\xdcN", "invalid UTF-8, byte 0xdc at offset 2 of the line"),
    ],
)
def test_a_pair_of_which_a_side_is_damaged_is_named_by_file_and_line(cli, sides, line, text, told):
    one, two = sides({line: text})
    found = cli("train", one, two, *QUICK, "--out", "run")
    told = f"{two}:{line}: {told}"
    assert found.code == 0
    assert f"warning: damaged records left out: 1; first: {told}" in found.err
    assert told in refused(cli("train", one, two, "--strict", *QUICK, "--out", "strict"))


def test_a_line_of_ten_thousand_words_does_not_train_and_that_is_said(cli, sides):
    one, two = sides({8: b"word " * 10_000})
    found = cli("train", one, two, *QUICK, "--out", "run")
    assert found.code == 0 and "warning: 1 pairs do not train: they are longer than" in found.err
    line = refused(cli("train", one, two, *QUICK, "--strict", "--out", "strict"))
    assert "1 pairs are longer than model.max_len" in line and "data.strict" in line


def test_a_name_that_promises_gzip_must_keep_it(cli, sides):
    one, two = sides(name="some.de.gz")
    line = refused(cli("train", one, two, "--out", "run"))
    assert f"{two}: is no gzip data" in line and "fetch it again" in line


def test_a_side_that_is_not_there_is_named_with_the_one_that_was_meant(cli, sides):
    one, two = sides()
    line = refused(cli("train", one, two.with_name("sone.de"), "--out", "run"))
    assert "sone.de: no such file" in line and "did you mean 'some.de'?" in line


@pytest.mark.parametrize("verb", ["train", "compare"])
def test_a_column_that_is_not_there_is_named_with_the_one_that_was_meant(cli, tmp_path, verb):
    rows = [f"{word}\t{word.upper()}\t{word[::-1]}" for word in WORDS]
    (tmp_path / "some.tsv").write_text("\n".join(["source\ttarget\tother", *rows]) + "\n")
    line = refused(cli(verb, "some.tsv", "--input", "sorce", "--target", "target"), 2)
    assert "some.tsv: has no column 'sorce' (--input); did you mean 'source'?" in line
    line = refused(cli(verb, "some.tsv", "--input", "source", "--target", "xyz"), 2)
    assert "no column 'xyz' (--target); it has source, target, other" in line
    line = refused(cli(verb, "some.tsv", "--target", "target"), 2)
    assert "say --input COLUMN" in line and "source" in line


def limited(bytes_: int):
    """Before a process starts: no file may grow beyond this, as on a full disk."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))

    return limit


def train_limited(words, tmp_path, most: int):
    command = [sys.executable, "-m", "regard", "train", str(words), "--out", "run", "--quiet"]
    return subprocess.run(
        [*command, *SMALL, "--set=train.steps=400", "--set=train.checkpoint_every=50"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        preexec_fn=limited(most),
        capture_output=True,
        text=True,
        timeout=90,
    )


@pytest.mark.slow
def test_a_disk_that_fills_up_is_one_line_and_leaves_only_whole_files(cli, words, tmp_path):
    """No file may pass 9,000 bytes: metrics.jsonl does after the first checkpoints."""
    found = train_limited(words, tmp_path, 9_000)
    run = tmp_path / "run"
    assert found.returncode == 1 and len(found.stderr.splitlines()) == 1
    assert found.stderr.startswith(f"error: cannot write {run.name}/metrics.jsonl: File too large")
    assert not [p for p in run.rglob("*") if p.suffix in (".tmp", ".part")]
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] > 50
    last = max(checkpoint.steps(run))
    assert checkpoint.load(last)[1]["step"] == int(last.name.removeprefix("step-"))
    again = cli("train", words, "--out", run, "--resume")  # there is space again
    assert again.code == 0 and "from step" in again.err


def test_a_disk_already_full_leaves_no_folder(words, tmp_path):
    found = train_limited(words, tmp_path, 100)
    assert found.returncode == 1 and found.stderr.startswith("error: cannot write ")
    assert not (tmp_path / "run").exists()


def test_a_recipe_serves_other_files_that_are_given_beside_it(cli, tmp_path):
    """Another pair of languages: the recipe as it is, only the names of files are others."""
    sizes = "n_layers = 1\nd_model = 16\nmax_len = 32"
    (tmp_path / "en_de.toml").write_text(
        '[task]\nname = "target"\n[data]\ntrain = ["train.en", "train.de"]\n'
        'valid = ["v.en", "v.de"]\n'
        'test = ["t.en", "t.de"]\n[input]\ntokenizer = "characters"\n'
        '[output]\ntokenizer = "characters"\n'
        f'[model]\npreset = "vaswani"\n{sizes}\n[train]\nsteps = 2\nbatch_tokens = 256\n'
    )
    files = {"a.fr": "abcdef", "b.cs": "uvwxyz", "c.fr": "fedcba", "d.cs": "zyxwvu"}
    for name, letters in files.items():
        lines = [letters[i % 5 :: 1 + i % 3] + letters[: i % 4] + "?" * (i % 7) for i in range(60)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    assert "train.en: no such file" in refused(cli("train", "en_de.toml", "--out", "run"))
    given = ["--test", "c.fr", "--test", "d.cs", "--quiet"]
    found = cli("train", "en_de.toml", "a.fr", "b.cs", *given, "--out", "run")
    assert found.code == 0, found.err
    recipe = tomllib.loads((tmp_path / "run" / "recipe.toml").read_text())
    names = {side: [Path(p).name for p in recipe["data"][side]] for side in SPLITS}
    assert names == {"train": ["a.fr", "b.cs"], "valid": [], "test": ["c.fr", "d.cs"]}
    assert recipe["model"]["preset"] == "vaswani" and recipe["train"]["steps"] == 2
    facts = json.loads((tmp_path / "run" / "regard.json").read_text())
    assert set(facts["metrics"]) == {"valid", "test"}  # held out of what was given, and given
    made = json.loads((tmp_path / "run" / "translations.json").read_text())["sentences"]
    assert [one["source"] for one in made] == (tmp_path / "c.fr").read_text().splitlines()


def test_targets_that_cannot_be_learned_from_are_named_by_file_and_line(cli, tmp_path):
    """A label of one record, one that training lacks, a number that is none, a single class."""
    train = "text,y,n\na b,x,1.5\nc d,y,n.a.\ne f,x,2.5\ng h,x,3.5\ni j,x,4.5\nk l,x,5.5\n"
    (tmp_path / "t.csv").write_text(train)
    (tmp_path / "u.csv").write_text("text,y\na c,z\nb d,x\n")
    columns = ["--input", "text", "--set", "train.steps=1", "--set", "data.valid_fraction=0"]
    one = cli("train", "t.csv", "--target", "y", "--test", "u.csv", *columns, "--out", "a")
    assert "one example: y (" in one.err and "t.csv:3)" in one.err
    assert "unseen in test: z (" in one.err and "u.csv:2) × 1: training has no" in one.err
    number = cli("train", "t.csv", "--target", "n", *columns, "--out", "b")
    assert "task value" in number.err and "t.csv:3 has 'n.a.'" in number.err
    (tmp_path / "s.csv").write_text("text,y\na b,x\nc d,x\ne f,x\n")
    alone = cli("train", "s.csv", "--target", "y", "--task", "label", *columns, "--out", "c")
    assert alone.code == 1 and "all 3 training records are 'x' under 'y'" in alone.err
