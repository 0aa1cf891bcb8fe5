"""What a notebook shows of a result."""

from regard.notebook import html_table


def test_a_table_shows_texts_as_they_are():
    page = html_table(("a", "<b>"), [("1 & 2", 3)], title="T < U", notes=["n", ""])
    assert '<th style="text-align:left">&lt;b&gt;</th>' in page and "<b>T &lt; U</b>" in page
    assert ">1 &amp; 2<" in page and ">3<" in page and page.count("<p>") == 2
    assert "<thead>" not in html_table(("", ""), [("a", "b")])
