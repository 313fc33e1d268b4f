"""The clients of a run: production cores in simulated processes, and the applications around them.

Here belongs what acts by itself. Not here: the plan of a run, and what is checked.
"""
