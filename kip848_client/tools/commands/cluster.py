"""``kip848 cluster``: which nodes there are, which one controls, and which features are on.

::

    kip848 cluster --bootstrap 127.0.0.1:9092
    kip848 cluster --json --bootstrap 127.0.0.1:9092
"""

from __future__ import annotations

import argparse

from kip848_client.admin import Admin
from kip848_client.cli.shared.options import add_question_arguments
from kip848_client.cli.shared.properties import read_properties
from kip848_client.cli.shared.tables import table
from kip848_client.common.json_text import to_json
from kip848_client.common.plain_text import printable
from kip848_client.tools.shared.admin_client import admin_client, asked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_question_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Describe the cluster.

    Raises:
        Kip848Error: no broker answers, or one refuses.
    """
    with Admin(read_properties(arguments)) as admin:
        features = admin.features(timeout_s=arguments.timeout)
    client = admin_client(arguments)
    found = asked("the cluster", lambda: client.describe_cluster(request_timeout=arguments.timeout).result())
    controller = None if found.controller is None else found.controller.id
    nodes = sorted(found.nodes, key=lambda node: node.id)
    if arguments.json:
        rows = [{"node": node.id, "host": node.host, "port": node.port, "rack": node.rack} for node in nodes]
        print(to_json({"cluster_id": found.cluster_id, "controller": controller, "nodes": rows, "features": features}))
        return 0
    print(f"cluster {printable(found.cluster_id)}\n")
    print(
        table(
            ("NODE", "ADDRESS", "RACK", "ROLE"),
            [
                (str(node.id), f"{node.host}:{node.port}", node.rack or "", "controller" * (node.id == controller))
                for node in nodes
            ],
        )
    )
    if features.supported:
        rows_of = [
            (name, str(features.finalized.get(name, 0)), f"{lowest} to {highest}")
            for name, (lowest, highest) in sorted(features.supported.items())
        ]
        print(f"\n{table(('FEATURE', 'VERSION', 'SUPPORTED'), rows_of)}")
    return 0
