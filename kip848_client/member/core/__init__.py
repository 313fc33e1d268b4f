"""What both protocols stand on: events, effects, time, states, settings, errors and the coordinator's address.

Here belongs what needs to know neither how a group rebalances nor what is committed.
"""
