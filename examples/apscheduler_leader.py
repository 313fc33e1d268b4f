"""APScheduler in several replicas: each has all jobs, and exactly one fires them.

    python examples/apscheduler_leader.py BOOTSTRAP [SECONDS BETWEEN JOBS]

Start it several times. End the one that fires with Ctrl-C, or kill it: another one fires.
"""

from __future__ import annotations

import sys

from apscheduler.schedulers.background import BackgroundScheduler

from kip848_client import LeaderElection

conf = {"bootstrap.servers": sys.argv[1], "group.id": "reminders"}
pause_s = float(sys.argv[2]) if len(sys.argv) > 2 else 5.0
election = LeaderElection(conf, name="scheduler")


@election.leader_only  # elsewhere the job does nothing
def send_reminders() -> None:
    print("fired with token", election.token, flush=True)


scheduler = BackgroundScheduler()
scheduler.add_job(send_reminders, "interval", seconds=pause_s)
with election:
    scheduler.start()
    try:
        election.wait()
    except KeyboardInterrupt:
        election.hand_over(10)  # the others hear of it before this one stops
    finally:
        scheduler.shutdown()
