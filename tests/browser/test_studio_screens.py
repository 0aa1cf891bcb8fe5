"""The screens Runs, Data, Train, and Lab and lectures, as they are used."""

import json

import pytest
from studio_server import MARKUP

pytestmark = pytest.mark.browser
FIELD = "label:has(> span:text-is('{}')) {}"  # a control by its label


def test_runs_sorts_filters_and_shows_a_card(studio_tab):
    page = studio_tab.show("runs")
    names = lambda: page.locator("tbody tr button.link").all_inner_texts()  # noqa: E731
    assert set(names()) == {"names", "labels", MARKUP}
    page.click("th button:has-text('model')")
    assert names() == ["names", "labels", MARKUP]  # bigram, majority, unigram
    assert page.get_attribute("th:has-text('model')", "aria-sort") == "ascending"
    page.click("th button:has-text('model')")
    assert names() == [MARKUP, "labels", "names"]
    page.fill("input[type=search]", "major")
    assert names() == ["labels"]
    page.click("button.link:has-text('labels')")
    page.wait_for_selector(".card table")
    shown = studio_tab.studio.call("runs", "card", run="labels")
    assert [one[0] for one in shown["rows"]] == page.locator(".card tbody th").all_inner_texts()
    assert "regard predict" in page.inner_text(".card")


def test_curves_are_drawn_over_each_other(studio_tab):
    runs = studio_tab.studio.opened.root
    for name, shift in (("one", 0.0), ("two", 0.5)):
        (runs / name / "data").mkdir(parents=True, exist_ok=True)
        (runs / name / "recipe.toml").write_text('[task]\nname = "next"\n')
        events = [
            {"event": "valid", "step": i, "seconds": i, "metric": "bits_per_symbol", "unit": "bits",
             "value": 4 - shift - i / 10}
            for i in range(1, 9)
        ]  # fmt: skip
        (runs / name / "metrics.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    page = studio_tab.show("runs?chosen=" + json.dumps(["one", "two"]))
    page.wait_for_selector(".component.lines svg path")
    assert page.locator(".component.lines .keys button").all_inner_texts() == ["one", "two"]
    assert "bits per symbol" in page.inner_text(".component.lines h3")
    assert page.locator("tr", has_text="training").count() == 2  # metrics that were just written
    events.append({**events[-1], "step": 99, "value": 3.0})
    (runs / "two" / "metrics.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    page.wait_for_selector(".component.lines text:text-is('80')", timeout=15_000)
    page.click("button:has-text('Choose none')")
    page.wait_for_selector("text=Choose runs in the table")


def test_a_run_is_removed_after_a_question(studio_tab):
    runs = studio_tab.studio.opened.root
    (runs / "old" / "data").mkdir(parents=True)
    (runs / "old" / "recipe.toml").write_text("")
    page = studio_tab.show("runs?run=old")
    page.click("button:has-text('Remove …')")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="detached")
    assert (runs / "old").exists()
    page.click("button:has-text('Remove …')")
    page.wait_for_selector("dialog[open]")
    assert studio_tab.serious() == []
    page.click("dialog button:has-text('Remove it')")
    page.wait_for_selector(".card", state="detached")
    assert not (runs / "old").exists()
    assert (runs / "names").exists()


def test_data_shows_the_report_and_the_records(studio_tab):
    page = studio_tab.show("data")
    page.fill("input[list]", "names.txt")
    page.click("button:has-text('Look at it')")
    page.wait_for_selector("h2:has-text('The data in names.txt')")
    assert page.inner_text(".command code") == "regard data names.txt"
    page.wait_for_selector(".component.histogram svg")
    page.select_option("select", "labels")
    page.click(".toggle button:has-text('records')")
    page.wait_for_selector("td.record")
    assert "100 of 100" in page.inner_text("main")
    page.locator(FIELD.format("label", "select")).select_option("x")
    page.wait_for_selector("text=40 of 100")
    page.locator(FIELD.format("contains", "input")).fill("ada")
    page.wait_for_selector("text=13 of 100")  # ada before ten names, and after three others
    page.locator(FIELD.format("split", "select")).select_option("train")
    studio_tab.rest()
    records = studio_tab.studio.call(
        "data", "records", files=[], run="labels", label="x", text="ada", split="train"
    )
    assert page.locator("td.record").count() == records["found"]


def test_a_table_is_dropped_a_question_answered_and_a_model_trained(studio_tab):
    page = studio_tab.show("train")
    rows = "".join(f"text {i} of it,{'ab'[i % 2]},{'xyz'[i % 3]}\n" for i in range(60))
    page.set_input_files(
        "input[type=file]",
        {"name": "mine.csv", "mimeType": "text/csv", "buffer": f"text,one,two\n{rows}".encode()},
    )
    page.wait_for_selector(".question")
    assert "which column is predicted" in page.inner_text(".question")
    page.click(".question button:has-text('two (3 classes')")
    page.wait_for_selector(".question", state="detached")
    page.select_option(FIELD.format("--model", "select"), "majority")
    page.wait_for_selector(".command code:has-text('majority')")
    assert page.inner_text(".command code") == (
        "regard train runs/uploads/mine.csv --input text --target two --model majority "
        "--out runs/mine-majority"
    )
    page.click("button:text-is('Train')")
    page.wait_for_selector("button:has-text('Its card')", timeout=120_000)
    assert "accuracy" in page.inner_text(".printed")
    page.click("button:has-text('Its card')")
    page.wait_for_selector(".card h2:has-text('mine-majority')")


def test_data_asks_which_column_is_meant(studio_tab):
    rows = "".join(f"text {i} of it,{'ab'[i % 2]},{'xyz'[i % 3]}\n" for i in range(60))
    (studio_tab.studio.opened.data_folder / "open.csv").write_text(f"text,one,two\n{rows}")
    page = studio_tab.show("data?file=open.csv")
    page.click(".question button:has-text('two (3 classes')")
    page.wait_for_selector("h2:has-text('The data in open.csv')")
    assert page.inner_text(".command code") == "regard data open.csv --input text --target two"


def test_lectures_are_found_by_their_words(studio_tab):
    page = studio_tab.show("lectures")
    assert page.locator("button[aria-label='Run --quick: distance']").count() == 1
    page.fill("input[type=search]", "positional")
    page.click(".headings button >> nth=0")
    page.wait_for_selector(".card .command")
    assert page.inner_text(".card .command code").startswith("regard ")


def test_a_table_fades_where_there_is_more_and_is_a_list_on_a_phone(studio_tab):
    page = studio_tab.show("runs")
    page.set_viewport_size({"width": 390, "height": 800})
    studio_tab.settle()
    assert "more-right" in page.get_attribute("[aria-label=Runs]", "class")
    page = studio_tab.show("lectures")
    page.wait_for_selector("td button")
    row = page.locator("tbody tr").first
    tops = [row.locator("td").nth(i).bounding_box()["y"] for i in range(4)]
    assert tops == sorted(set(tops))
    assert row.get_by_role("button").bounding_box()["x"] < 390 - 60


def test_the_page_of_an_experiment_opens_apart(studio_tab):
    lab = studio_tab.studio.opened.root / "lab"
    lab.mkdir()
    (lab / "distance.html").write_text(
        "<!doctype html><title>x</title><script>document.title = origin</script>"
    )
    page = studio_tab.show("lectures?again=1")
    with page.context.expect_page() as opened:
        page.click("[aria-label='Open its page: distance']")
    opened.value.wait_for_load_state()
    assert opened.value.title() == "null"  # an origin of its own
    opened.value.close()
