"""The virtual machine room of a run: time, network, cluster, processes, and the numbers of scenarios.

Here belongs what would be the same without any consumer. Not here: what clients do (`actors`), and what is checked.
"""
