"""Administration of groups, offsets and transactions: `Admin`, `AsyncAdmin`, and the values that they return.

`cluster` finds the broker for each question, the other modules have the questions, and `clients` the two classes. Not
here: topics, ACLs and settings, which confluent-kafka's AdminClient administers; and anything that is a member.
"""

from kip848_client.admin.clients import Admin, AsyncAdmin
from kip848_client.admin.resets import ResetTo, read_offsets
from kip848_client.admin.results import (
    ClusterFeatures,
    GroupDescription,
    GroupLag,
    GroupListing,
    HangingTransaction,
    Listing,
    MemberDescription,
    OffsetMove,
    OpenTransaction,
    OtherGroupDescription,
    Progress,
    ResetPlan,
    Results,
    ShiftBy,
    TopicListing,
    TransactionDescription,
    TransactionListing,
    UnitDescription,
    WorkerDescription,
    WorkerGroupDescription,
)
from kip848_client.common.model import NamedPartition

__all__ = [
    "Admin",
    "AsyncAdmin",
    "ClusterFeatures",
    "WorkerGroupDescription",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "HangingTransaction",
    "Listing",
    "MemberDescription",
    "NamedPartition",
    "OffsetMove",
    "OpenTransaction",
    "OtherGroupDescription",
    "Progress",
    "ResetPlan",
    "ResetTo",
    "Results",
    "ShiftBy",
    "TopicListing",
    "TransactionDescription",
    "TransactionListing",
    "UnitDescription",
    "WorkerDescription",
    "read_offsets",
]
