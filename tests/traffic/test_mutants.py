"""Mutants by hand of the fluid network and of spraying: the unit test named beside each catches it.

A mutant is a function with one piece of its text changed. Those made by machine are tried by
`tests.traffic.mutate`.
"""

import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType

import pytest
from hypothesis import Phase, is_hypothesis_test, settings
from hypothesis.errors import HypothesisException

from tests.traffic import test_fluid_network as fluid
from tests.traffic import test_reactive as reactive
from tests.traffic import test_spray as sprayed
from tests.traffic import test_spraying as spraying
from traffic.fluid.network import FluidNetwork
from traffic.spraying import connections, entropies, policy, rails
from traffic.spraying.minrtt import MinRtt
from traffic.spraying.optimal import Optimal
from traffic.spraying.plb import Plb
from traffic.spraying.pxn import Pxn
from traffic.spraying.rails import Rails
from traffic.spraying.reps import Reps, _Connection, _Ring
from traffic.spraying.spray import Spray
from traffic.spraying.subflows import Subflows


@dataclass(frozen=True)
class Mutant:
    """Which text of which function becomes which, and the test that fails then."""

    function: Callable[..., object]
    text: str
    becomes: str
    caught_by: Callable[[], None]


MUTANTS = {
    "set_path: the old links as well": Mutant(
        FluidNetwork.set_path,
        "old, self._paths[flow] = self._paths[flow].copy(), row",
        "old = self._paths[flow].copy(); both = np.union1d(old[old >= 0], row[row >= 0]); "
        "self._widen(len(both)); self._paths[flow] = -1; self._paths[flow, : len(both)] = both",
        fluid.test_rates_are_max_min_fair_wherever_flows_are_led,
    ),
    "set_path: the old links alone": Mutant(
        FluidNetwork.set_path,
        "old, self._paths[flow] = self._paths[flow].copy(), row",
        "old = self._paths[flow]",
        fluid.test_rates_are_max_min_fair_wherever_flows_are_led,
    ),
    "set_path: others where it was get no more": Mutant(
        FluidNetwork.set_path,
        "(*old.tolist(), *row.tolist())",
        "row.tolist()",
        fluid.test_rates_are_max_min_fair_wherever_flows_are_led,
    ),
    "set_path: others where it goes get no less": Mutant(
        FluidNetwork.set_path,
        "self._regrouped = True",
        "pass",
        fluid.test_rates_are_max_min_fair_wherever_flows_are_led,
    ),
    "set_path: any links": Mutant(
        FluidNetwork.set_path, "_check_paths", "len", fluid.test_a_path_of_no_link_is_refused
    ),
    "set_rates: nobody takes notice": Mutant(
        FluidNetwork.set_rates,
        "self._touched_links.update",
        "set().update",
        fluid.test_rates_are_max_min_fair_at_every_event,
    ),
    "what left at the rates before counts at those after": Mutant(
        FluidNetwork._settle,
        "self._bring_up(pools)",
        "pass",
        fluid.test_parcels_arrive_when_small_steps_of_time_say,
    ),
    "withdraw: others get no more": Mutant(
        FluidNetwork.withdraw,
        "self._touched_pools.add(pool)",
        "pass",
        fluid.test_rates_are_max_min_fair_wherever_flows_are_led,
    ),
    "withdraw: bytes stay": Mutant(
        FluidNetwork.withdraw,
        "self._left[pool] = gone, 0.0",
        "_ = gone, 0.0",
        fluid.test_what_was_posted_was_delivered_or_is_left,
    ),
    "withdraw: what left meanwhile as well": Mutant(
        FluidNetwork.withdraw,
        "self._bring_up(np.array([pool]))",
        "pass",
        fluid.test_what_was_posted_was_delivered_or_is_left,
    ),
    "withdraw: messages stay": Mutant(
        FluidNetwork.withdraw,
        "self._holding.discard(pool)",
        "pass",
        fluid.test_what_was_posted_was_delivered_or_is_left,
    ),
    "weigh: rates stay": Mutant(
        FluidNetwork.weigh,
        "self._touched_pools.add(int(self._pool[flow]))",
        "pass",
        fluid.test_coupled_flows_weigh_what_they_are_given,
    ),
    "uses: flows without bytes as well": Mutant(
        FluidNetwork.uses,
        "self._left[self._pool] > 0",
        "self._left[self._pool] >= 0",
        fluid.test_rates_are_max_min_fair_at_every_event,
    ),
    "add_flows: a component of its own": Mutant(
        FluidNetwork._join_components,
        "met[1:]",
        "()",
        fluid.test_rates_are_max_min_fair_wherever_flows_are_led,
    ),
    "coupled flows over other links keep their rates": Mutant(
        FluidNetwork._find_components,
        "links + coupled]",
        "links + 0 * coupled]",
        fluid.test_rates_of_coupled_flows_are_max_min_fair_as_links_change,
    ),
    "coupled flows go on without one in the dark": Mutant(
        FluidNetwork._shares,
        "lit = (np.bincount(together, ~lit) == 0).take(together)",
        "pass",
        fluid.test_coupled_flows_stand_while_one_of_them_is_in_the_dark,
    ),
    "each flow of a queue pair weighs as a whole one": Mutant(
        FluidNetwork._shares,
        "weights = weights / sharing",
        "pass",
        fluid.test_a_queue_pair_of_many_pools_counts_as_one_on_a_link,
    ),
    "coupled flows weigh alike whatever they hold": Mutant(
        FluidNetwork._weigh_coupled,
        " * (left[mine] / most[together[mine]])",
        "",
        fluid.test_coupled_flows_end_together_when_the_slowest_could,
    ),
    "what is lost counts as delivered": Mutant(
        FluidNetwork._good_bps, " * self._delivered[flows]", "", fluid.test_what_is_lost_is_sent_again
    ),
    "a pool's delay is none": Mutant(
        FluidNetwork._leave,
        "if delay_ps:",
        "if False:",
        fluid.test_parcels_of_a_pool_leave_in_order_and_arrive_later_by_its_delay,
    ),
    "lend: links stay as fast": Mutant(
        FluidNetwork.lend,
        "self.set_rates(every, rates_bps)",
        "pass",
        fluid.test_each_bucket_lends_what_it_holds,
    ),
    "lend: time passes": Mutant(
        FluidNetwork.lend,
        "self.now_ps, self._first_end_ps = began_ps, None",
        "self._first_end_ps = None",
        fluid.test_a_message_arrives_earlier_by_what_was_lent,
    ),
    "lpt_among: empty bins": Mutant(
        rails.lpt_among,
        "if start is None else start.copy()",
        "",
        spraying.test_lpt_among_some_bins_keeps_to_them_and_takes_the_least_loaded,
    ),
    "lpt_among: fills the caller's bins": Mutant(
        rails.lpt_among,
        "start.copy()",
        "start",
        spraying.test_lpt_among_some_bins_keeps_to_them_and_takes_the_least_loaded,
    ),
    "lpt_among: shortest first": Mutant(
        rails.lpt_among, "-weights", "weights", spraying.test_lpt_among_all_bins_is_lpt
    ),
    "lpt: empty bins": Mutant(
        rails.lpt,
        "if start is None else start.tolist()",
        "",
        spraying.test_lpt_goes_on_from_what_is_in_the_bins,
    ),
    "lpt: a long run on a lower level": Mutant(
        rails._run_into_least,
        "+ 1, 0)",
        ", 0)",
        spraying.test_lpt_chooses_what_the_plain_heap_chooses_over_long_runs,
    ),
    "rails: over NICs that have failed": Mutant(
        rails.rails_between,
        "rail_rates(fabric) > 0",
        "rail_rates(fabric) >= 0",
        spraying.test_rails_puts_chunks_longest_first_where_least_is_left_of_what_works,
    ),
    "rails: forgets what is left beside failed NICs": Mutant(
        Rails.assign,
        "towards[mine]], loads)",
        "towards[mine]])",
        spraying.test_rails_puts_chunks_longest_first_where_least_is_left_of_what_works,
    ),
    "rails: message by message, not GPU by GPU": Mutant(
        Rails.assign,
        'mine = mine[np.argsort(gpu[mine], kind="stable")]',
        "pass",
        spraying.test_rails_puts_chunks_longest_first_where_least_is_left_of_what_works,
    ),
    "rails: remembers the collective before": Mutant(
        Rails.assign,
        "self._backlog_bytes = self._backlog_bytes, None",
        "_ = self._backlog_bytes, None",
        spraying.test_rails_goes_on_from_a_backlog_once,
    ),
    "connections: one queue pair for all chunks": Mutant(
        connections.round_queue_pairs,
        "_turns(connection, order)",
        "0",
        spraying.test_chunks_of_a_connection_go_round_its_queue_pairs,
    ),
    "chunks are posted message by message": Mutant(
        connections.taking_turns,
        "turn = np.arange(len(chunks)) - first",
        "turn = np.arange(len(chunks))",
        spraying.test_messages_take_turns_on_a_queue_pair,
    ),
    "entropies: two alike": Mutant(
        entropies.distinct_entropies,
        "while",
        "while False and",
        spraying.test_many_entropies_are_all_distinct,
    ),
    "entropies: those that were drawn before may come again": Mutant(
        entropies.KeptEntropies.one_each,
        "rng, np.array(taken, dtype=np.int64)",
        "rng",
        spraying.test_entropies_stay_and_are_all_distinct_between_two_nics,
    ),
    "optimal: who has received too much gets more": Mutant(
        Optimal.assign,
        "- received[destination]",
        "+ received[destination]",
        spraying.test_the_optimum_splits_every_pair_evenly_where_rails_are_alike,
    ),
    "policy: entropies of a pair of NICs alone": Mutant(
        policy.entropies_between,
        "len(each.sources) * len(each.destinations)",
        "1",
        reactive.test_queue_pairs_between_nics_and_their_entropies_are_all_lanes,
    ),
    "pxn: on the rail of the GPU that sends": Mutant(
        Pxn.connections,
        "nic is None",
        "True",
        spraying.test_pxn_leaves_on_the_destinations_rail_by_one_connection_to_a_gpu,
    ),
    "subflows: two alike": Mutant(
        Subflows._entropies,
        "replace=False",
        "replace=True",
        reactive.test_entropies_are_different_ones_of_those_that_there_are,
    ),
    "minrtt: over lanes without room": Mutant(
        MinRtt.choose, "state.room and", "", reactive.test_minrtt_takes_the_shortest_that_has_room
    ),
    "plb: moves though it is not idle": Mutant(
        Plb.choose, "and not states[path.lane].backlog_bytes", "", reactive.test_plb_moves_by_its_rule
    ),
    "plb: congested rounds need not follow each other": Mutant(
        Plb.acknowledged,
        "if congested else 0",
        "if congested else path.congested_rounds",
        reactive.test_plb_forgets_congestion_that_has_passed,
    ),
    "reps: recycles what met congestion": Mutant(
        Reps.acknowledged, "if not marked", "if True", reactive.test_reps_does_not_recycle_what_met_congestion
    ),
    "reps: counts what arrived as in flight": Mutant(
        _Connection.settled,
        "mine[lane] -= 1",
        "pass",
        reactive.test_reps_counts_nothing_of_a_message_that_has_arrived,
    ),
    "reps: what was silent stays unused": Mutant(
        _Connection.heard_of,
        "self.failed.discard(lane)",
        "pass",
        reactive.test_reps_uses_again_what_was_silent_and_answers,
    ),
    "reps: uses one again and again": Mutant(
        _Ring.earliest_fresh,
        "self.is_fresh[place] = False",
        "pass",
        reactive.test_reps_recycles_as_counted_by_hand,
    ),
    "reps: keeps its ring as it thaws": Mutant(
        _Connection.thaw,
        "self.ring = _Ring(self.ring.places)",
        "pass",
        reactive.test_reps_freezes_and_explores_as_counted_by_hand,
    ),
    "spray: by one NIC": Mutant(
        Spray.choose,
        "connection.turn = (nic + 1) % nics",
        "pass",
        sprayed.test_each_cycle_has_each_entropy_once_and_nics_take_turns,
    ),
}


def mutated(mutant: Mutant) -> FunctionType:
    """Return the changed function."""
    function = mutant.function
    assert isinstance(function, FunctionType)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(mutant.text) == 1, f"{mutant.text!r} is not once in {function.__qualname__}"
    found: dict[str, FunctionType] = {}
    exec(source.replace(mutant.text, mutant.becomes), vars(sys.modules[function.__module__]), found)
    return found[function.__name__]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    monkeypatch.setattr(mutant.function, "__code__", mutated(mutant).__code__)
    if is_hypothesis_test(mutant.caught_by):  # the first failure will do, and the same one each time
        quick = settings(derandomize=True, max_examples=400, phases=(Phase.generate,), deadline=None)
        monkeypatch.setattr(mutant.caught_by, "_hypothesis_internal_use_settings", quick)
    with pytest.raises(Exception) as caught:  # noqa: PT011  # of any kind but hypothesis' own
        mutant.caught_by()
    assert not isinstance(caught.value, HypothesisException)
