"""Questions about one group of workers: who runs what, once it is at rest; and draining workers, on any Kafka.

To drain workers of a classic group the administrator joins it for one round, and says in JoinGroup which ones. The
leader takes their units away in that round and tells them; from then on they say so themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kip848_client.admin.cluster import TIMEOUT_S_DEFAULT, AskedBroker, Cluster, refusal
from kip848_client.admin.groups import describe
from kip848_client.admin.results import Results, WorkerGroupDescription, split
from kip848_client.common.error_codes import ErrorCode
from kip848_client.errors import ConfigError, Kip848Error, RequestTimeoutError, UnsupportedByBrokerError
from kip848_client.wire.api_keys import ApiKey
from kip848_client.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kip848_client.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kip848_client.wire.messages.sync_group import SyncGroupRequest
from kip848_client.worker.classic.classic_messages import PROTOCOL_TYPE, Claim

_SESSION_MS: Final = 10_000
_PAUSE_S: Final = 0.1
_NAMED_MEMBERS: Final = 3
"""First version of LeaveGroup that names several members."""


async def describe_workers(
    cluster: Cluster, group_id: str, *, timeout_s: float = TIMEOUT_S_DEFAULT
) -> WorkerGroupDescription:
    """Describe a group of workers, if it rebalances when that is over: until then brokers tell nothing of its units.

    Raises:
        ConfigError: it is a group of another kind.
        Kip848Error: there is no such group, or no broker answers.
    """
    ends_s = time.monotonic() + timeout_s
    while True:
        found = (await describe(cluster, [group_id], timeout_s=timeout_s))[group_id]
        if not isinstance(found, WorkerGroupDescription):
            raise ConfigError(f"group {group_id!r} is not one of workers, but {found.type}: see kip848 groups describe")
        if not found.state.endswith("Rebalance") or time.monotonic() + _PAUSE_S > ends_s:
            return found
        await asyncio.sleep(_PAUSE_S)


async def drain_workers(
    cluster: Cluster, group_id: str, worker_ids: Iterable[str], *, timeout_s: float = TIMEOUT_S_DEFAULT
) -> Results[str, None]:
    """Have workers give their units to the others, and take none any more; their processes go on without units.

    Waits until they run nothing. Each unit goes on where it runs until another worker is ready for it.

    Returns:
        By worker id; for one that is not in the group, or still runs units when the time is over, the error. Then it
        has been told all the same, and will stop them.

    Raises:
        ConfigError: no worker is named.
        UnsupportedByBrokerError: it is a connect group, in which only the workers themselves can ask for it.
        Kip848Error: there is no such group of workers, or no broker answers.
    """
    wanted = list(dict.fromkeys(worker_ids))
    if not wanted:
        raise ConfigError("name the workers to drain; kip848 workers describe lists them")
    ends_s = time.monotonic() + timeout_s
    group = await describe_workers(cluster, group_id, timeout_s=timeout_s)
    if group.type != "classic":
        raise UnsupportedByBrokerError(
            f"group {group_id!r} is a connect group, in which a worker can be drained only by its own process: call "
            "worker.drain() there"
        )
    known = sorted({worker.worker_id for worker in group.workers})
    answers: dict[str, Kip848Error | None] = {}
    for name in wanted:
        unknown = f"worker {name!r} is not in group {group_id!r}; there are: {', '.join(known) or 'none'}"
        answers[name] = None if name in known else ConfigError(unknown)
    told = unheard = [name for name, answer in answers.items() if answer is None]

    async def ask(node: AskedBroker, _: Sequence[str]) -> Mapping[str, Kip848Error | None]:
        return {group_id: await _tell(node, group_id, group.assignor, unheard)}

    while told:
        if unheard:  # also again: when we leave, a new round begins, and a worker may not have heard of this one
            call = cluster.call(max(0.1, ends_s - time.monotonic()))
            split(await call.at_coordinators([group_id], ask, once=True))[group_id]
        group = await describe_workers(cluster, group_id, timeout_s=max(0.1, ends_s - time.monotonic()))
        unheard = [worker.worker_id for worker in group.workers if worker.worker_id in told and not worker.state]
        running = {unit.owner for unit in group.units}
        told = [name for name in told if name in running or name in unheard]
        if told and time.monotonic() >= ends_s:
            late = "told to drain, and still runs units; it stops them when other workers are ready for them"
            answers |= {name: RequestTimeoutError(f"worker {name!r} was {late}") for name in told}
            break
        if told:
            await asyncio.sleep(_PAUSE_S)
    return split(answers)


async def _tell(node: AskedBroker, group_id: str, assignor: str, worker_ids: Sequence[str]) -> Kip848Error | None:
    """Take part in one round as a member that gets no units."""
    claim = msgspec.msgpack.encode(Claim("administrator", drain=list(worker_ids)))
    member_id = ""
    try:
        while True:
            joined = await node.send(
                JoinGroupRequest(
                    group_id=group_id,
                    session_timeout_ms=_SESSION_MS,
                    rebalance_timeout_ms=_SESSION_MS,
                    member_id=member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocols=(JoinGroupRequestProtocol(assignor, claim),),
                    reason="an administrator drains workers",
                )
            )
            if joined.error_code in {0, ErrorCode.MEMBER_ID_REQUIRED}:
                member_id = joined.member_id
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            if joined.error_code:
                return refusal(joined.error_code, f"group {group_id!r} cannot be joined to drain its workers")
            if joined.leader == member_id:
                what = f"group {group_id!r} lost its leader, or all its workers, at that moment"
                return refusal(ErrorCode.REBALANCE_IN_PROGRESS, what, advice="try again")
            synced = await node.send(
                SyncGroupRequest(
                    group_id=group_id,
                    generation_id=joined.generation_id,
                    member_id=member_id,
                    protocol_type=PROTOCOL_TYPE,
                    protocol_name=joined.protocol_name,
                )
            )
            if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            if synced.error_code:
                return refusal(synced.error_code, f"the workers of group {group_id!r} were not told")
            return None
    finally:
        if member_id:
            leaving = LeaveGroupRequest(group_id=group_id, member_id=member_id)
            if node.highest(ApiKey.LEAVE_GROUP) >= _NAMED_MEMBERS:
                members = (MemberIdentity(member_id, reason="the workers were told to drain"),)
                leaving = LeaveGroupRequest(group_id=group_id, members=members)
            with contextlib.suppress(Kip848Error):  # else its session ends
                await node.send(leaving)
