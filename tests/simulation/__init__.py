"""Tests of the simulation, and by the simulation."""
