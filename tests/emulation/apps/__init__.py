"""Tests of applications on emulated hosts."""
