"""Fabrics of every builder, drawn at random and small."""

from hypothesis import strategies as st

from tests.topologies.khop_rings import khop_rings
from topologies.big_switch import big_switch_fabric
from topologies.fabric import Fabric
from topologies.fat_tree import fat_tree_fabric
from topologies.khop_ring import khop_ring_fabric
from topologies.leaf_spine import leaf_spine_fabric
from topologies.mfabric import mfabric_fabric
from topologies.parallel_ocs import parallel_ocs_fabric
from topologies.patch_panel import patch_panel_fabric
from topologies.rail import rail_fabric

few = st.integers(1, 4)
rates_bps = st.sampled_from([1e9, 25e9, 100e9, 400e9])

rails = st.builds(rail_fabric, st.integers(1, 6), few, st.integers(0, 3), rate_bps=rates_bps)
fat_trees = st.builds(
    fat_tree_fabric, st.sampled_from([2, 4, 6]), st.sampled_from([1, 1.5, 3]), rate_bps=rates_bps
) | st.builds(
    fat_tree_fabric, st.just(4), edge_nics=few, nics=few, rail_optimised=st.booleans(), rate_bps=rates_bps
)
leaf_spines = st.integers(1, 4).flatmap(
    lambda leaves: st.builds(
        leaf_spine_fabric,
        st.integers(leaves, 8),
        st.just(leaves),
        few,
        nics=few,
        gpus=few,
        rate_bps=rates_bps,
    )
)
big_switches = st.builds(big_switch_fabric, st.integers(1, 8), nics=few, gpus=few, rate_bps=rates_bps)
parallel_ocses = st.builds(
    parallel_ocs_fabric, st.integers(1, 6), few, packet_switch=st.booleans(), gpus=few, rate_bps=rates_bps
)
mfabrics = st.builds(
    lambda per_region, regions, packet_nics, circuit_nics, **options: mfabric_fabric(
        per_region * regions,
        per_region,
        nics=packet_nics + circuit_nics,
        packet_nics=packet_nics,
        **options,
    ),
    few,
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 3),
    gpus=few,
    one_packet_switch=st.booleans(),
    rate_bps=rates_bps,
)
patch_panels = st.builds(patch_panel_fabric, few, nics=few, gpus=few, rate_bps=rates_bps)
khop_fabrics = st.builds(khop_ring_fabric, khop_rings(most_nodes=9), gpu_bps=rates_bps)
plain: st.SearchStrategy[Fabric] = st.one_of(
    rails, fat_trees, leaf_spines, big_switches, parallel_ocses, mfabrics, patch_panels, khop_fabrics
)


def _impaired(fabric: Fabric, delay_s: float, loss: float) -> Fabric:
    return fabric.with_links(delay_s=delay_s, loss=loss)


fabrics = plain | st.builds(
    _impaired, plain, st.sampled_from([0.0, 1e-6, 0.25]), st.sampled_from([0.0, 1e-3, 0.5])
)
