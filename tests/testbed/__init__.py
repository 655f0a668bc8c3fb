"""Tests of testbed."""
