"""The report: well-formed, on its own, and naming every void."""

import base64
from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser

import pytest

from scenarios._rails.claims_rails import rails_claims
from testbed.experiment.experiment import Experiment
from testbed.report.claims import arithmetic
from testbed.report.collective_report import collective_page, links_text, sentence
from testbed.report.images import image_of
from testbed.report.page import Page as ReportPage
from testbed.report.report_html import report_html
from testbed.report.run_json import RunRecord
from testbed.trust.outcome import Outcome, Verdict, summary
from tests.blank import blank
from tests.hostile_names import NAMES, raw
from tests.testbed.cases import (
    STRAINED,
    VOID,
    experiment_of,
    outcome_of,
    small_fabric,
    small_outcomes,
    with_verdict,
)
from topologies.printable import printable
from traffic.collectives.point_to_point import PointToPoint
from traffic.collectives.ring import Ring
from traffic.demand import Demand
from traffic.job import Collective, Job
from traffic.workloads.synthetic import uniform

EMPTY = {"meta", "img", "br", "link", "hr"}
RUN = RunRecord(
    scenario="rails_sparse",
    title="RailS under sparse load",
    command=["python", "scenarios/rails_sparse.py", "--out", "a b"],
    started=datetime(2026, 1, 2, 3, 4),
    settings={"mtu": 9000, "queue": {"bytes": 2 << 20}},
    calibration={"aggregate_bps": 1.25e9},
)


class Page(HTMLParser):
    """A page that was read: its text, its references, and whether its elements nest."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    @property
    def text(self) -> str:
        """All that a reader sees, in one line."""
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where an element points to."""
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Check that the innermost element ends."""
        assert self._open, f"</{tag}> without a beginning"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note the text, but for the style sheet."""
        if "style" not in self._open:
            self.words.append(data)


def page_of(outcomes: list[Outcome]) -> ReportPage:
    table = summary(outcomes)
    return collective_page(RUN, outcomes, table, rails_claims(table))


def html_of(outcomes: list[Outcome]) -> str:
    """Return a report whose plots are blank."""
    page = page_of(outcomes)
    return report_html(page, blank(page.plots)["png"], 0)


@pytest.fixture(scope="module")
def html() -> str:
    """Return a report with a void and a strained point, and with its plots."""
    page = page_of(with_verdict(with_verdict(small_outcomes(seeds=2), VOID, 2, 6), STRAINED, 5))
    return report_html(page, {plot.name: image_of(plot.draw(), "png") for plot in page.plots}, 3)


def test_the_page_nests_and_refers_to_nothing_outside(html: str) -> None:
    page = Page(html)
    assert len(page.references) == 10
    for reference in page.references:
        kind, _, image = reference.partition(",")
        assert kind == "data:image/png;base64"
        assert base64.b64decode(image, validate=True).startswith(b"\x89PNG")
    assert not any(word in html for word in ("http://", "https://", "url(", "@import", "<script"))


def test_arithmetic_has_a_chip_of_its_own_and_is_not_counted() -> None:
    page = page_of(small_outcomes(seeds=1))
    sums = arithmetic("a tenth of 5 is 0.5", "A", (0.5, 0.5), 0.5, "5 / 10", "{:.1f}")
    page = replace(page, claims=[sums], plots=[])
    html = report_html(page, {}, 0)
    assert '0.5<br><span class="chip arithmetic">arithmetic</span>' in html
    assert "is arithmetic, and not counted. lightrail's own claims are counted apart. arithmetic: 1" in (
        Page(html).text
    )


def test_the_banner_names_every_point_that_is_not_faithful_and_what_to_do(html: str) -> None:
    text = Page(html).text
    assert "2 points void , 1 point strained , 5 points faithful ." in text
    assert f"void ecmp over credit, sparse 0.4, seed 0, 1: {VOID.reasons[0]} To do: {VOID.advice}." in text
    said = f"{STRAINED.reasons[0]} To do: {STRAINED.advice}."
    assert f"strained rails over credit, uniform, seed 1: {said}" in text
    assert "The run was stopped: 3 more experiments have no result." in text


def test_tables_say_void_where_a_number_is(html: str) -> None:
    text = Page(html).text
    assert "ecmp void 4.19 4.19 4.19 ±47% 1.00 0.000 0.500 1.04 1.04 1.56 4.03" in text
    assert "rails faithful 2.75 2.79 2.79 void 0.000" in text
    assert "sparse 0.4 ecmp credit 1 void 3 (0.01 %) 2 0 0 / 0 / 0 2 % 0.50 20 % 1 20 / 20 1" in text
    assert (
        "RailS, VI-C, top k per token, sparse 0.4 RailS has the highest busbw >= 0.98 - not comparable"
        in text
    )


def test_it_says_how_to_repeat_it_and_what_was_in_effect(html: str) -> None:
    text = Page(html).text
    for said in (
        "python scenarios/rails_sparse.py --out 'a b'",
        "Seeds: 0, 1.",
        "mtu 9000 queue.bytes 2097152",
        "aggregate_bps 1.25e+09",
        f"python {RUN.versions['python']}",
        "synthetic: the same for every pair",
    ):
        assert said in text


def test_a_model_only_report_says_so() -> None:
    outcome = outcome_of(experiment_of(small_fabric(), uniform(4), "rails"))
    text = Page(html_of([outcome])).text
    assert "1 point model ." in text
    assert "Nothing was emulated" in text
    assert "Can it be believed?" not in text


def test_names_are_text_and_not_markup() -> None:
    demand = Demand("<script>alert(1)</script>", uniform(4).matrix)
    html = html_of([outcome_of(experiment_of(small_fabric(), demand, "ecmp"))])
    assert "<script>alert" not in html
    assert "<script>alert(1)</script>" in Page(html).text


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_nothing_of_a_name_is_obeyed_by_a_browser_or_an_editor(name: str) -> None:
    html = html_of([outcome_of(experiment_of(small_fabric(), Demand(name, uniform(4).matrix), "ecmp"))])
    assert not raw(html)
    assert " ".join(printable(name, keep="\n").split()) in " ".join(Page(html).text.split())


def test_the_sentence_says_what_was_run() -> None:
    assert sentence(small_outcomes(seeds=1)) == (
        "2 workloads (uniform, sparse 0.4) under 2 schemes (ecmp, rails), 1 seed, over a rail fabric of "
        "2 servers with 2 NICs of 100 Gbit/s each and 2 spines. Emulated with real packets: rates × 0.001, "
        "bytes × 0.01, so times × 10. All numbers below are at real scale. Transport credit: each NIC "
        "grants what it can take, a packet at a time, round robin over the queue pairs that announced bytes "
        "to it; it knows no more than that, and datagrams carry what was granted."
    )


def test_the_sentence_names_switches_that_route() -> None:
    outcomes = [
        replace(each, experiment=replace(each.experiment, hashing="kernel"))
        for each in small_outcomes(seeds=1)
    ]
    assert "real packets over switches that route (--datapath route): " in sentence(outcomes)


@pytest.mark.parametrize(
    ("delay_s", "loss", "said"),
    [
        (0.0, 0.0, ""),
        (2.5e-6, 0.0, "Each link has a delay of 2.5 µs one way."),
        (0.0, 1e-3, "Each link has a loss of 0.1 % of the emulation's packets in each direction."),
        (1e-6, 0.5, "Each link has a delay of 1 µs one way and a loss of 50 % of the emulation's packets"),
    ],
)
def test_the_sentence_says_what_links_do(delay_s: float, loss: float, said: str) -> None:
    fabric = small_fabric().with_links(delay_s=delay_s, loss=loss)
    assert links_text(fabric).startswith(said)
    assert bool(links_text(fabric)) is fabric.impaired
    assert links_text(fabric) in sentence([outcome_of(experiment_of(fabric, uniform(4), "ecmp"))])


def test_the_report_says_where_the_time_went_of_what_disagrees() -> None:
    apart = outcome_of(experiment_of(small_fabric(), uniform(4), "rails"), Verdict("faithful"), slower=1.6)
    text = Page(html_of([apart])).text
    assert "rails over credit, uniform, seed 0: it took 1.60 times the prediction; " in text
    assert "the busiest NIC was idle" in text
    assert "1.60 !" in text
    assert "Where the time went" not in Page(html_of(small_outcomes(seeds=1))).text


def test_a_job_of_several_kinds_has_a_busbw_of_each_and_no_single_one() -> None:
    """Rings of 12.5 GB/s on GPUs 0 and 2, a send of 12.5 GB/s between GPUs 1 and 3, both at once."""
    fabric = small_fabric()
    nodes = (
        Collective("sum", Ring(((0, 2),), 80_000_000)),
        Collective("send", PointToPoint(((1, 3, 8_000_000),))),
    )
    job = Job("kinds", fabric.gpus, nodes)
    page = page_of([outcome_of(Experiment(fabric, job, "ecmp"))])
    (sheet,) = page.more
    cells = [line.cells for block in sheet.blocks for line in block.lines]
    assert cells == [
        ["point to point", "ecmp", "credit", "12.5"],
        ["ring all-reduce", "ecmp", "credit", "12.5"],
    ]
    assert page.table["busbw_gbytes_s"].isna().all()
    assert "No single busbw for kinds: collectives of several kinds" in page.results.caption
    assert "was not run" not in page.results.caption
    assert "busbw" not in [plot.name for plot in page.plots]
    assert not page_of(small_outcomes(seeds=1)).more
