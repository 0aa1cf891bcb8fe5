"""The screens Runs, Data, Train, and Lab and lectures, as they are used."""

import json

import numpy as np
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


@pytest.mark.slow
def test_training_with_held_out_files_is_planned_and_started(studio_tab):
    folder = studio_tab.studio.opened.data_folder
    lines = (folder / "names.txt").read_text().splitlines()
    (folder / "held.txt").write_text("\n".join(lines[:30]) + "\n")
    (folder / "last.txt").write_text("\n".join(lines[30:50]) + "\n")
    page = studio_tab.show("train?files=names.txt&model=bigram&out=held")
    page.click("summary:has-text('Held-out files')")
    page.fill(FIELD.format("--valid, one a line", "textarea"), "held.txt")
    page.locator("details.held-out select").nth(1).select_option("last.txt")
    page.click("summary:has-text('All settings')")
    page.fill(FIELD.format("Find a setting", "input"), "vocabulary tokens")
    page.click(".settings button:text-is('vocab_size')")
    page.fill(FIELD.format("--vocab-size", "input"), "64")
    page.fill(FIELD.format("Find a setting", "input"), "train.seed=7")
    page.keyboard.press("Enter")
    studio_tab.rest()
    shown = page.inner_text(".command code")
    assert shown == (
        "regard train names.txt --valid held.txt --test last.txt --model bigram --out runs/held "
        "--vocab-size 64 --set train.seed=7"
    )
    assert studio_tab.serious() == []
    page.click("button[aria-label='remove --vocab-size']")
    page.wait_for_selector(".command code:not(:has-text('vocab'))")
    studio_tab.rest()
    shown = page.inner_text(".command code >> nth=0")
    page.click("button:text-is('Plan it')")
    page.wait_for_selector(
        "section:has(h2:text-is('The plan')) [role=status]:has-text('done')", timeout=60_000
    )
    assert page.locator(".command code").all_inner_texts()[:2] == [shown, f"{shown} --dry-run"]
    page.click("button:text-is('Train')")
    page.wait_for_selector(
        "section:has(h2:text-is('held')) button:has-text('Its card')", timeout=60_000
    )
    job = studio_tab.studio.call("train", "jobs", screens=["train"])["jobs"][0]
    assert job["command"] == shown
    recipe = (studio_tab.studio.opened.root / "held" / "recipe.toml").read_text()
    assert f'valid = ["{folder / "held.txt"}"]' in recipe
    assert f'test = ["{folder / "last.txt"}"]' in recipe and "seed = 7" in recipe


def test_settings_of_the_data_are_at_hand(studio_tab):
    folder = studio_tab.studio.opened.data_folder
    days = np.datetime64("2024-01-01") + np.arange(200, dtype="m8[D]")
    rows = [f"{day},{i % 7}" for i, day in enumerate(days)]
    (folder / "steps.csv").write_text("\n".join(["date,steps", *rows]) + "\n")
    page = studio_tab.show("train?files=steps.csv&target=steps&model=naive")
    page.click(".own button:text-is('--horizon')")
    page.fill(FIELD.format("--horizon", "input"), "5")
    page.wait_for_selector(".command code:has-text('--horizon 5')")
    assert page.locator(".own button:text-is('--horizon')").count() == 0
    assert page.locator(".own button:text-is('--tokenizer')").count() == 0
    assert studio_tab.serious() == []
    page.click("button:text-is('Plan it')")
    plan = "section:has(h2:text-is('The plan'))"
    page.wait_for_selector(f"{plan} [role=status]:has-text('done')", timeout=60_000)
    assert page.locator(".command code").first.inner_text() == (
        "regard train steps.csv --target steps --model naive --out runs/steps-naive --horizon 5"
    )
    assert "the next 5 steps" in page.inner_text(f"{plan} .printed")


def test_data_asks_which_column_is_meant(studio_tab):
    rows = "".join(f"text {i} of it,{'ab'[i % 2]},{'xyz'[i % 3]}\n" for i in range(60))
    (studio_tab.studio.opened.data_folder / "open.csv").write_text(f"text,one,two\n{rows}")
    page = studio_tab.show("data?file=open.csv")
    page.click(".question button:has-text('two (3 classes')")
    page.wait_for_selector("h2:has-text('The data in open.csv')")
    assert page.inner_text(".command code") == "regard data open.csv --input text --target two"


def test_records_that_are_no_texts_are_pictures(studio_tab):
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (60, 10, 12), np.uint8)
    folder = studio_tab.studio.opened.data_folder
    np.savez(folder / "images.npz", images=images, labels=np.arange(60) % 2)
    days = [f"2024-{m:02d}-{d:02d}" for m in range(1, 11) for d in range(1, 29)]
    lines = [f"{day},{i % 7}" for i, day in enumerate(days)]
    (folder / "sales.csv").write_text("\n".join(["date,sales", *lines]) + "\n")
    page = studio_tab.show("data?file=images.npz&view=records")
    page.wait_for_selector(".gallery li:nth-child(24) canvas")
    records = studio_tab.studio.call("data", "records", files=["images.npz"])["records"]
    names = page.locator(".gallery [role=group]").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label'))"
    )
    assert names == [f"image {one['number'] + 1}, {one['labels'][0]}" for one in records]
    shown = page.evaluate(
        """() => { const one = document.querySelector('.gallery canvas');
        return [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data]
            .filter((_, i) => i % 4 === 0); }"""
    )
    place = int(records[0]["location"].rpartition("[")[2].rstrip("]"))
    assert shown == images[place].ravel().tolist()
    assert studio_tab.serious() == []
    page.click("button:has-text('Next')")
    page.wait_for_selector("text=25 to 48")
    page.wait_for_selector(".gallery li:nth-child(24) canvas")
    page.keyboard.press("Tab")
    page.locator(".gallery button.link >> nth=0").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("text=30 of 60")
    page = studio_tab.show("data?file=sales.csv&view=records")
    page.wait_for_selector(".gallery svg[aria-label=series] path")
    assert page.input_value("input[list]") == "sales.csv"


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
