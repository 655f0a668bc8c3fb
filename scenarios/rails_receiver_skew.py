"""Receiver skew over a rail fabric: hot NICs that a scheme may relieve or not (RailS, VI-E)."""

import _checkout  # first: runs this file under the checkout's Python

from testbed.study.study_options import run_file

if __name__ == "__main__":
    run_file(__file__)
