"""Sparse MoE all-to-all over a rail fabric: RailS against ECMP (RailS, section VI-C)."""

import _checkout  # first: runs this file under the checkout's Python

from testbed.study.study_options import run_file

if __name__ == "__main__":
    run_file(__file__)
