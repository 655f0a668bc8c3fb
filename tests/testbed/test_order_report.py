"""The table of order: a row per scheme of which it is known how its packets overtook each other."""

from dataclasses import replace
from pathlib import Path

from testbed.report.order import CAPTION, order_sheets, order_text
from testbed.report.results import ResultsDirectory
from testbed.study.results_table import results_table
from testbed.trust.outcome import Outcome, summary
from tests.testbed.cases import VOID, small_outcomes, with_orders, with_verdict
from tests.testbed.test_results import RUN
from traffic.transports.host_settings import TransportSetup
from traffic.transports.reordering import Reordering

ECMP, RAILS = ["100.0 %", "0", "0", "0", "0"], ["90.0 %", "0", "4", "20", "300"]
"""What a row says of each."""


def cells_of(outcomes: list[Outcome]) -> dict[str, list[list[str]]]:
    """Return the cells of each block of the sheet."""
    (sheet,) = order_sheets(summary(outcomes))
    assert all(
        len(line.cells) == len([*sheet.words, *sheet.numbers]) for b in sheet.blocks for line in b.lines
    )
    return {block.title: [list(line.cells) for line in block.lines] for block in sheet.blocks}


def test_each_scheme_of_each_workload_has_a_row() -> None:
    rows = [["ecmp", "faithful", *ECMP], ["rails", "faithful", *RAILS]]
    assert cells_of(with_orders()) == {"Order, uniform": rows, "Order, sparse 0.4": rows}


def test_what_is_not_known_has_no_row_and_nothing_known_no_table() -> None:
    first, second, *_ = with_orders()
    assert cells_of([replace(first, order=None), second]) == {
        "Order, uniform": [["rails", "faithful", *RAILS]]
    }
    assert order_sheets(summary(small_outcomes(seeds=1))) == []
    assert order_text(summary(small_outcomes(seeds=1))) == ""


def test_void_seeds_are_left_out_unless_there_are_no_others() -> None:
    _, rails, *_ = with_orders()
    other = replace(
        rails, experiment=replace(rails.experiment, seed=1), order=Reordering({0: 1, 40: 3}, 9_000)
    )
    (mixed,) = cells_of(with_verdict([rails, other], VOID, 1))["Order, uniform"]
    assert mixed == ["rails", "void 1/2", *RAILS]
    table = summary(with_verdict([rails, other], VOID, 0, 1))
    (sheet,) = order_sheets(table)
    (line,) = sheet.blocks[0].lines
    assert (line.word, line.look) == ("void", "void")
    assert list(line.cells) == ["rails", "void", "57.5 %", "20", "22", "30", "600"]
    assert sheet.caption.startswith(f"{CAPTION} void: the machine could not keep up")


def test_several_transports_are_named() -> None:
    _, rails, *_ = with_orders()
    other = replace(rails, experiment=replace(rails.experiment, transport=TransportSetup("ideal")))
    assert cells_of([rails, other]) == {
        "Order, uniform": [["rails", "credit", "faithful", *RAILS], ["rails", "ideal", "faithful", *RAILS]]
    }


def test_below_the_printed_table_the_same_is_a_sentence() -> None:
    assert order_text(summary(with_orders())) == (
        "Packets overtaken: ecmp over credit 0.0%, 99% of all by 0 at most, any by 0, 0 kB held; "
        "rails over credit 10.0%, 99% of all by 4 at most, any by 20, 300 kB held."
    )


def test_report_and_printed_table_have_it(tmp_path: Path) -> None:
    with ResultsDirectory(RUN, root=tmp_path) as results:
        for outcome in with_orders():
            results.add(outcome)
    assert "Order, sparse 0.4" in (results.path / "report.html").read_text()
    assert str(results_table(results).caption).endswith(order_text(results.table))
