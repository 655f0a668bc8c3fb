"""A study of the rail scenarios: points at real scale, with what RailS claims of rail fabrics."""

from collections.abc import Iterable

from scenarios._rails.claims_rails import rails_claims
from testbed.study.study import PointOf, Study, no_claims
from topologies.fabric import Fabric


def rail_study(name: str, title: str, fabric: Fabric, points: Iterable[PointOf]) -> Study:
    """Return a study of points over one fabric; a fabric of the user's own is held against no claim."""
    return Study.of(name, title, fabric, points, rails_claims if fabric.name == "rail" else no_claims)
