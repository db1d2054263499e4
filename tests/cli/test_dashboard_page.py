"""The dashboard's page in a real browser: every view, live updates, actions, and hostile names.

Screenshots are saved below `.cache/screenshots/`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelock as tl
from testkit.browser import Page
from tests.cli.dashboards import TOKEN, dashboard
from tests.cli.scene import HOST, OPTIONS, PARTITION, TABLE_NAME, Scene, rows, scene
from tests.cli.timelines import long_timeline

pytestmark = [pytest.mark.servers, pytest.mark.xdist_group("browser")]

PICTURES = Path(__file__).parents[2] / ".cache" / "screenshots"


@pytest.fixture
def page(browser_page: Page) -> Iterator[Page]:
    browser_page.errors.clear()
    browser_page.resize(1440, 900)
    browser_page.prefer("light")
    yield browser_page
    # No script in a name ran, and nothing was blocked or failed.
    assert browser_page.run("window.hacked ?? null") is None
    assert browser_page.errors == []


@pytest.fixture(scope="module")
def busy_table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("scene") / "orders", commits=12) as found:
        yield found


@pytest.fixture(scope="module")
def url(busy_table: Scene) -> Iterator[str]:
    with dashboard(busy_table.uri) as found:
        yield found


def open_view(page: Page, url: str, view: str = "overview") -> None:
    page.open(f"{url}#/0/{view}")
    page.until("document.querySelectorAll('main .panel').length > 0")


def assert_shows(page: Page, selector: str, *texts: str) -> None:
    """Wait for texts in an element; `Page.until` raises if one does not appear."""
    for text in texts:
        page.until(f"document.querySelector({selector!r})?.innerText.includes({text!r})")


def test_overview_summarizes_the_table(page: Page, url: str, busy_table: Scene) -> None:
    open_view(page, url)
    assert_shows(page, ".head", TABLE_NAME, "merge-on-read", "key id", "partitioned by day")
    assert_shows(page, ".tiles", "Live writers", "1 without a heartbeat", "held", "Plans pending")
    assert_shows(
        page, "[aria-label='Live writers']", "writer-1", "alive", "writer-2", "no heartbeat", HOST
    )
    assert_shows(page, "[aria-label='Table lock']", "held", "Token", "Waiting", "none known")
    assert_shows(
        page, "[aria-label='Pending services']", busy_table.clustering, busy_table.compaction
    )
    assert_shows(page, "[aria-label='Ledger tail']", "plan", "clustering, 2 file groups")
    assert_shows(page, "main [aria-label='Conflicts']", "rebased and committed")
    page.until("document.querySelectorAll('[aria-label=\"Throughput\"] rect').length > 3")
    dots = "[...document.querySelectorAll('[aria-label=\"Commit latency\"] .dots')]"
    page.until(f"{dots}.map((path) => path.getAttribute('d')).join('').split('M').length > 4")
    for scheme in ("light", "dark"):
        page.prefer(scheme)
        page.screenshot(PICTURES / f"overview-{scheme}.png")


def test_timeline_lists_instants_and_shows_details_of_one(
    page: Page, url: str, busy_table: Scene
) -> None:
    open_view(page, url, "timeline")
    page.until(
        f"!!document.querySelector('[data-instant=\"{busy_table.running.instant}\"].s-inflight')"
    )
    page.until(
        f"!!document.querySelector('[data-instant=\"{busy_table.clustering}\"].s-requested')"
    )
    page.until("!!document.querySelector('.bar-row.s-undone')")
    # Writers with a stale heartbeat are distinguished from active ones.
    page.until(f"!!document.querySelector('[data-instant=\"{busy_table.dead}\"].lost')")
    assert page.run("document.querySelectorAll('.bar-row.lost').length") == 1
    page.screenshot(PICTURES / "timeline.png")
    page.click("input[type=search]")
    page.type("writer-2")
    page.until("document.querySelectorAll('.bar-row').length === 1")
    page.click(f"[data-instant='{busy_table.dead}']")
    assert_shows(
        page, "#drawer", busy_table.dead, "Heartbeat", HOST, "On the timeline", ".requested"
    )
    page.screenshot(PICTURES / "instant.png")
    page.press("Escape")
    page.until("document.getElementById('drawer').hidden")


def test_link_to_an_instant_shows_its_details(page: Page, url: str, busy_table: Scene) -> None:
    page.open(f"{url}#/0/timeline/{busy_table.dead}")
    assert_shows(
        page, "#drawer", "State", "inflight", "Operation", "insert", "Requested", "not yet"
    )
    assert_shows(page, "#drawer header", busy_table.dead, "deltacommit")


def test_committed_instant_lists_its_written_files(page: Page, url: str) -> None:
    open_view(page, url, "conflicts")
    page.click("main tbody tr")
    assert_shows(page, "#drawer", "Conflicts", "In the ledger", "rolled back")
    page.run(
        "location.hash = location.hash.replace(/\\d+$/, "
        "document.querySelector('main tbody td:nth-child(6)').textContent)"
    )
    assert_shows(page, "#drawer", "Wrote", "On the timeline", "completed", "1 time")


def test_services_view_shows_what_plans_block(page: Page, url: str, busy_table: Scene) -> None:
    open_view(page, url, "services")
    assert_shows(
        page, "main", busy_table.clustering, busy_table.compaction, "can be executed by any process"
    )
    assert_shows(page, "main", "excluded from other plans", PARTITION, "No waiting writers.")
    assert_shows(page, "main", "Sign in with a token")
    assert page.run("document.querySelectorAll('main button.danger').length") == 0
    page.screenshot(PICTURES / "services.png")


def test_conflicts_view_shows_both_writers_and_the_outcome(page: Page, url: str) -> None:
    open_view(page, url, "conflicts")
    assert_shows(page, "main", "rebased and committed", "both changed these file groups")
    page.until("document.querySelectorAll('main .plot rect').length === 1")
    page.screenshot(PICTURES / "conflicts.png")


def test_files_view_shows_size_and_depth_per_partition(page: Page, url: str) -> None:
    open_view(page, url, "files")
    assert_shows(
        page, "main", PARTITION, "d1", "d2", "Log files per file group", "Bytes by partition"
    )
    page.click("th[data-sort=in_plans]")
    page.until("document.querySelector('main tbody td').innerText === 'd2'")
    page.screenshot(PICTURES / "files.png")


def test_ledger_view_shows_past_entries(page: Page, url: str) -> None:
    open_view(page, url, "ledger")
    assert_shows(page, "main", "commit", "rollback", "plan")
    page.until("document.querySelectorAll('main tbody tr').length > 15")
    page.screenshot(PICTURES / "ledger.png")


def test_narrow_window_shows_the_same_content(page: Page, url: str) -> None:
    page.resize(420, 900)
    open_view(page, url)
    assert_shows(page, ".tiles", "Live writers")
    assert page.run("document.documentElement.scrollWidth") <= 420
    page.screenshot(PICTURES / "narrow.png")


def test_names_are_escaped(page: Page, url: str) -> None:
    open_view(page, url)
    assert_shows(page, ".head", TABLE_NAME)
    for view in ("overview", "services", "files"):
        page.run(f"location.hash = '#/0/{view}'")
        page.until("document.querySelectorAll('main .panel').length > 0")
        assert page.run("document.querySelectorAll('main img, main script, main b').length") == 0
    page.until("window.hacked === undefined")


def test_changes_appear_without_reload(page: Page, url: str, busy_table: Scene) -> None:
    open_view(page, url)
    page.run("window.same = true")
    with tl.Table.open(busy_table.uri, options=OPTIONS) as table:
        instant = table.upsert(rows(5, ts=99, day="d3")).instant
    page.until(f"!!document.querySelector('[data-instant=\"{instant}\"].s-completed')")
    assert page.run("window.same") is True


def test_theme_toggle_is_remembered(page: Page, url: str) -> None:
    open_view(page, url)
    color = "getComputedStyle(document.body).backgroundColor"
    before = page.run(color)
    page.click("#theme")
    page.until(f"{color} !== {before!r}")
    page.reload()
    page.until(f"{color} !== {before!r}")
    assert page.run(color) != before
    page.run("localStorage.clear()")


def test_operator_signs_in_confirms_and_cancels_a_plan(page: Page, tmp_path: Path) -> None:
    with scene(tmp_path / "t", commits=2) as found, dashboard(found.uri, acts=True) as url:
        open_view(page, url, "services")
        page.click("#who button")
        page.until("document.getElementById('dialog').open")
        page.type(TOKEN)
        page.press("Enter")
        assert_shows(page, "#who", "operator")
        page.click("main button.danger")
        page.until("document.getElementById('dialog').open")
        page.screenshot(PICTURES / "confirm.png")
        assert page.run("document.querySelector('#dialog [type=submit]').disabled") is True
        page.type(found.clustering)
        page.click("#dialog [type=submit]")
        page.until(f"!document.querySelector('main').innerText.includes('{found.clustering}')")
        page.open("about:blank")


def test_five_thousand_instants_load_and_scroll(page: Page, tmp_path: Path) -> None:
    long_timeline(tmp_path / "t", 5_000)
    with dashboard(str(tmp_path / "t")) as url:
        began = time.monotonic()
        page.open(f"{url}#/0/timeline")
        assert_shows(page, "main", "5,000 of 5,000 instants")
        page.until("document.querySelectorAll('.bar-row').length > 10")
        took_s = time.monotonic() - began
        assert page.run("document.querySelectorAll('.bar-row').length") < 100
        page.run("document.querySelector('.gantt').scrollTop = 60000")
        page.until(
            "[...document.querySelectorAll('.bar-row')].every("
            "row => row.dataset.instant < '20260101015000000')"
        )
        page.screenshot(PICTURES / "timeline-5000.png")
        (PICTURES / "timeline-5000.txt").write_text(f"loaded in {took_s:.2f} s\n")
        page.open("about:blank")
