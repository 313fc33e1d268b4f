"""Simulations over many seeds, on Spark.

Here belongs what plays and sums up runs. Not here: the simulation (`kip848_client.testing.simulation`).
"""
