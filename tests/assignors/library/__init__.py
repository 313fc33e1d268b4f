"""Tests of the ready-made client-side assignors."""
