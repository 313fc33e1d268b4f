"""Names of topic ids: heartbeats carry topic ids, and the application sees names.

At most one metadata request for missing names is in flight. An id without a name is not an error: metadata arrives
separately from assignments, and the broker that was asked may not know a new topic yet.

The reconciler and the assignor notices have one instance each: they need different ids, drop names at different times,
and only the reconciler counts a failed request as asked.

Does not own: going on without the missing names (`reconciler`, `assignor_notices`).

Rules: R74, R75 and R199 in docs/protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from kip848_client.member.core.context import Context
from kip848_client.member.core.events import MetadataUpdated, RequestFailed, RequestMetadata


class TopicNames:
    """The topic names that one part of a member knows, and its requests for missing ones.

    Args:
        failure_counts: whether an id counts as asked for when the request failed.
    """

    def __init__(self, context: Context, *, failure_counts: bool) -> None:
        self._context = context
        self._failure_counts = failure_counts
        self._names: dict[UUID, str] = {}
        self._wanted: frozenset[UUID] = frozenset()
        self.missing: frozenset[UUID] = frozenset()
        """Ids that are wanted and have no name."""
        self._asked: frozenset[UUID] = frozenset()
        """Ids for which the cluster has answered a request."""
        self._requested: frozenset[UUID] = frozenset()
        self._request: int | None = None
        self._backoff = context.new_backoff()

    def __contains__(self, topic_id: UUID) -> bool:
        """Whether the name of *topic_id* is known."""
        return topic_id in self._names

    def __getitem__(self, topic_id: UUID) -> str:
        """The name of *topic_id*."""
        return self._names[topic_id]

    @property
    def not_asked(self) -> frozenset[UUID]:
        """Ids without a name that the cluster was not asked for."""
        return self.missing - self._asked

    def want(self, topic_ids: Iterable[UUID]) -> None:
        """These names are needed now."""
        self._wanted = frozenset(topic_ids)
        self.missing = self._wanted - self._names.keys()

    def keep(self, topic_ids: frozenset[UUID]) -> None:
        """Forget the names of all but these."""
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in topic_ids}
        self._asked &= topic_ids

    def forget(self) -> None:
        """Forget all names, and the request in flight."""
        self._names.clear()
        self._asked = frozenset()
        self._context.orphan(self._request)
        self._request = None

    def ask_anew(self) -> None:
        """Ask again at once for the missing names, also for ids that the cluster was asked for before."""
        self._asked = frozenset()
        self._backoff.reset()

    def ask_soon(self) -> None:
        """Do not wait for the backoff of earlier questions."""
        self._backoff.reset()

    # --- questions

    def ask(self) -> None:
        """Ask the cluster for missing names, unless a request is in flight or failed just now."""
        if not self.missing or self._request is not None or not self._context.due(self._backoff.ready_ms):
            return
        self._requested = self.missing
        self._request = self._context.expect(None, self._failed)
        timeout_ms = self._context.lookup_timeout_ms(self._backoff.failures)
        self._context.emit(RequestMetadata(self._request, self._requested, timeout_ms))

    def update(self, event: MetadataUpdated, *, useful: frozenset[UUID]) -> None:
        """Learn names. If a name now belongs to another id, the old id loses it.

        Args:
            useful: names of other ids are not kept.
        """
        for topic_id, name in event.topic_names.items():
            if topic_id not in useful or self._names.get(topic_id) == name:
                continue
            for other in [known for known, its_name in self._names.items() if its_name == name]:
                del self._names[other]
            self._names[topic_id] = name
        self.want(self._wanted)
        if event.request_id is not None and event.request_id == self._request:
            self._ended(counts=True)

    def _failed(self, _: RequestFailed) -> None:
        self._ended(counts=self._failure_counts)

    def _ended(self, *, counts: bool) -> None:
        self._request = None
        if counts:
            self._asked |= self._requested
        if not counts or not self.not_asked:
            self._backoff.failed(self._context.now_ms)
