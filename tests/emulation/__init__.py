"""Tests of emulation."""
