"""Parts that every request and every kind of group needs: the state, time, topics, settings, results and events.

Belongs here: what the coordinator itself keeps or asks. Does not: members, epochs, assignments, or a kind of group.
"""
