"""Tests of controller.schedulers."""
