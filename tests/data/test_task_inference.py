"""What files are read as where no task is given: the guess, its line, and when users are asked."""

import random

import pytest

from regard.data.task_inference import infer_task
from regard.errors import UsageError, UserError
from regard.recipe import DataRecipe

DNA = "".join(f">s{i}\nACGT{'ACGT'[i % 4] * 5}\n" for i in range(9))


def texts(count, seed):
    rng = random.Random(seed)
    words = [
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
    ]
    return "".join(" ".join(rng.choices(words, k=rng.randint(3, 15))) + "\n" for _ in range(count))


LINES = texts(200, 3).splitlines(keepends=True)


@pytest.fixture
def read(tmp_path):
    """The reading of files, of which each has a name and a content."""

    def read(files, model="", **keys):
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        keys = {"train": tuple(str(tmp_path / name) for name in files)} | keys
        return infer_task(DataRecipe(**keys), model)

    return read


@pytest.mark.parametrize(
    ("names", "task"),
    [
        (["Ecoli_prom.fa", "Ecoli_non_prom.fa"], "label"),
        (["Mouse_tata.fa", "Mouse_nonprom.fa"], "label"),
        (["pos.fa", "neg.fa", "neutral.fa"], "label"),
        (["AMP_train_common.fa", "non_AMP_train_balanced.fa"], "label"),
        (["H3K4me3.fa", "H3K27ac.fa"], "label"),
        (["chr1.fa", "chr2.fa"], "next"),
        (["prom_train.fa", "prom_test.fa"], "next"),
        (["names.fa", "names_more.fa"], "next"),
        (["a.fa", "b.fa"], "next"),
        (["one two three.fa", "four five six.fa"], "next"),
    ],
)
def test_names_that_differ_in_one_word_are_classes(read, names, task):
    found = read(dict.fromkeys(names, DNA))
    assert found.task == task
    other = "--task next" if task == "label" else "--task label"
    assert other in found.line and "\n" not in found.line
    assert ("--valid FILE" in found.line) == ("prom_test.fa" in names)


def test_two_texts_are_pairs_by_language_or_by_what_their_lines_say(read):
    content = texts(60, 1)
    shouted = content.upper().replace("THE", "LE")
    assert read({"t.en": texts(9, 1), "t.de": texts(9, 2)}).task == "target"
    pairs = read({"left.txt": content, "right.txt": shouted})
    assert pairs.task == "target"
    assert "r = " in pairs.line and "z = " in pairs.line and "--task label" in pairs.line
    classes = read({"film.pos": content, "film.neg": texts(60, 2)})
    assert classes.task == "label"
    assert "r = " in classes.line and "--task target" in classes.line
    assert read({"cats.txt": content, "dogs.txt": texts(50, 2)}).task == "label"


@pytest.mark.parametrize("names", [("foo bar.txt", "two other words.txt"), ("a.txt", "b.txt")])
def test_where_two_texts_of_as_many_lines_could_be_anything_the_user_is_asked(read, names):
    for count in (60, 5):
        with pytest.raises(UsageError, match=r"--task target .* --task label") as caught:
            read({names[0]: texts(count, 1), names[1]: texts(count, 2)})
        assert "\n" not in str(caught.value) and caught.value.exit_code == 2
    few = read({"reviews_pos.txt": texts(5, 1), "reviews_neg.txt": texts(5, 2)})
    assert few.task == "label"  # the names leave no doubt
    with pytest.raises(UsageError, match="5 lines are too few to tell"):
        read({"cats.txt": texts(5, 1), "dogs.txt": texts(5, 2)})


def test_a_model_that_has_one_task_decides(read):
    files = {"x y.txt": texts(60, 1), "p q r.txt": texts(60, 2)}
    assert read(files, "kneser-ney").task == "next"
    assert read(files, "naive-bayes").task == "label"
    with pytest.raises(UsageError):
        read(files, "transformer")


def test_prose_and_numbered_files_are_one_corpus(read):
    prose = ("It was a dark night. " * 9 + "\n\n") * 9
    found = read({"dickens.txt": prose, "austen.txt": prose + "The end.\n"})
    assert found.task == "next" and "--task label --set data.format=lines" in found.line
    assert read({"part1.txt": texts(9, 1), "part2.txt": texts(9, 2)}).task == "next"
    assert read({"names.txt": texts(9, 1)}).line == ""


def test_a_table_without_a_target_names_the_columns_it_could_be(read):
    table = "smiles,logS,mass\n" + "".join(f"C{'C' * i}O,{i}.5,{i}\n" for i in range(9))
    found = read({"t.csv": table})
    assert found.task == "next" and "--target COLUMN predicts another: logS, mass" in found.line
    assert read({"t.csv": table}, target="logS").task == "value"
    words = "text,k\n" + "".join(f"t{i},c {i}\n" for i in range(9))
    with pytest.raises(UsageError, match=r"column 'k' holds different texts .*--task label"):
        read({"u.csv": words}, target="k")


def test_labels_at_the_beginnings_of_lines_are_pointed_at(read):
    labelled = "".join(f"{'ham' if i % 3 else 'spam'} {line}" for i, line in enumerate(LINES))
    found = read({"sms.txt": labelled})
    assert found.task == "next" and "one of 2 words (spam, ham)" in found.line
    assert "--task label --set data.format=labelled" in found.line
    assert read({"sms.txt": labelled}, format="labelled").task == "label"
    assert read({"poem.txt": "".join(LINES)}).line == ""
    assert read({"names.txt": "anna\nberta\n" * 100}).line == ""  # lines of one word


def test_folders_of_classes_are_classes(read, tmp_path):
    for name in ("pos", "neg"):
        (tmp_path / "set" / name).mkdir(parents=True)
        (tmp_path / "set" / name / "cv0.txt").write_text("A film.\n\nGood.\n")
    found = read({}, train=(str(tmp_path / "set"),))
    assert found.task == "label"
    assert found.line == (
        "reading 2 folders as classes (neg, pos); --task next reads all files as one corpus"
    )
    (tmp_path / "set" / "test").mkdir()
    (tmp_path / "set" / "test" / "x.txt").write_text("x\n")
    with pytest.raises(UserError, match="holds the parts test; give"):
        read({}, train=(str(tmp_path / "set"),))
