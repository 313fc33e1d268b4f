"""The base of both protocols: events, effects, time, states, settings, errors and the coordinator's address.

Here belongs code that knows neither rebalances nor commits.
"""
