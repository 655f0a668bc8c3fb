"""Tests of `testbed.apps`."""
