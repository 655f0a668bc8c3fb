"""Mixtral 8x7B over a rail fabric: all-to-alls and compute of an iteration, in four phases (RailS, VI-F)."""

import _checkout  # first: runs this file under the checkout's Python

from testbed.study.study_options import run_file

if __name__ == "__main__":
    run_file(__file__)
