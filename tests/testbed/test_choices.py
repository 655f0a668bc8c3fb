"""What is said below a table of what reactive schemes did."""

from math import nan

import pandas as pd

from testbed.report.transports import choices_text


def test_shares_what_was_sent_without_a_grant_and_what_could_not_act_are_said() -> None:
    rows = [
        {"name": "rails", "marked": nan, "recycled": nan, "moved": nan, "sent_over_granted": 1.0},
        {
            "name": "plb",
            "marked": 0.7,
            "recycled": nan,
            "moved": 0.1,
            "sent_over_granted": 1.2,
            "inert": "A: b",
        },
        {
            "name": "plb",
            "marked": 0.9,
            "recycled": nan,
            "moved": 0.2,
            "sent_over_granted": 1.4,
            "inert": "A: b",
        },
    ]
    table = pd.DataFrame([{"transport": "credit", "inert": "", **row} for row in rows])
    said = "plb over credit: marked 80%, moved 15%, sent 1.30 times what was granted. Inert: A: b."
    assert choices_text(table) == said
    assert not choices_text(table[:1])
