"""Replicas of a service that elect one leader: python examples/leader_election.py BOOTSTRAP [SECONDS BETWEEN JOBS]"""

import sys
import time

from kip848_client import LeaderElection

conf = {"bootstrap.servers": sys.argv[1], "group.id": "jobs"}
pause_s = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
with LeaderElection(conf, name="scheduler") as election:
    while election.wait_for_leadership():
        print("leading with token", election.token, flush=True)
        while election.is_leader:
            time.sleep(pause_s)  # the jobs; hand them election.token
        print("not the leader any more", flush=True)
