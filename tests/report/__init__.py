"""Tests of the pictures and numbers made from event logs."""
