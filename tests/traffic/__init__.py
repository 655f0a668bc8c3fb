"""Tests of traffic."""
