"""Views of a dry run: a sentence, the next three places, the rest folded."""

from __future__ import annotations

from dataclasses import replace

from bs4 import BeautifulSoup

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.interfaces.widgets.dry_run import DryRun

OFFERS = [
    Offer("aws", f"r{n}", "g4dn.xlarge", 4, 16, price=0.5 + n / 10, source="a list", date="2026-07")
    for n in range(9)
]


def shown() -> DryRun:
    made = plan(cpus="4", nodes=2, offers=OFFERS, tracked=False)
    told = made.alternatives()[:3]
    return DryRun(
        replace(made, alternatives_=told), "x 8 bytes", ("on cluster train, which is up",)
    )


def test_sentence_has_place_price_and_time() -> None:
    said = shown().sentence
    for part in (
        "--cpus 4",
        "2 x aws r0 g4dn.xlarge",
        "4 vCPUs, 16 GiB",
        "$1.00/h",
        "$1.03 for an",
    ):
        assert part in said, part
    assert "(est.)" in said and "ready after 2:00" in said


def test_text_is_short_and_html_folds_details() -> None:
    text, html = str(shown()), shown()._repr_html_()
    assert len(text.splitlines()) <= 12
    assert "on cluster train, which is up; would be copied: x 8 bytes; nothing was launched" in text
    soup = BeautifulSoup(html, "html.parser")
    rows = soup.select("tbody tr")
    assert [row.find("th").text for row in rows] == ["chosen", *["next best"] * 3]  # type: ignore[union-attr]
    assert [row.find_all("td")[0].text for row in rows][:2] == [
        "2 x aws r0 g4dn.xlarge",
        "2 x aws r1 g4dn.xlarge",
    ]
    (fold,) = soup.select("details")
    assert "re-checked" in fold.text and "re-checked" not in soup.text.replace(fold.text, "")
    assert "prices: a list, Jul 2026" in soup.text


def test_old_prices_are_said_first() -> None:
    from datetime import date

    from jupyter_sky.interfaces.widgets.plan import old_prices

    (one,) = shown().plan.tasks
    dated = replace(one, offer=replace(one.offer, date="2026-05-01"))
    plan = replace(shown().plan, tasks=(dated,))
    said = "prices are up to 61 days old: %sky catalog refresh aws"
    assert old_prices(plan, date(2026, 7, 1)) == said
    assert old_prices(plan, date(2026, 5, 20)) == ""
    assert str(DryRun(plan)).startswith("prices are ")
    assert "prices are " in DryRun(plan)._repr_html_()
