"""Workers on the classic protocol: what their JoinGroup says, the leader's plan, fencing tokens, the connections.

Not here: the rules of a worker on any protocol (`core`), and its thread (`host`).
"""
