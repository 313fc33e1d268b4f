"""``AsyncShareConsumer.process``: handlers run as tasks of asyncio or trio."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from kip848_client.common.callables import check_finished
from kip848_client.share.core import ShareCore
from kip848_client.share.message import ShareMessage
from kip848_client.share.processing import QueueProcessor, RecordJob
from kip848_client.share.settings import QueueSettings


class TaskQueueProcessor(QueueProcessor):
    """Handlers in tasks, which are cancelled when they are too late or their locks have ended.

    Args:
        wait: waits for a change of the consumer, at most some seconds.
        wake: ends that wait, in the event loop; *wake_soon* does it from any thread.
    """

    def __init__(
        self,
        core: ShareCore,
        wait: Callable[[float], Awaitable[object]],
        handler: Callable[[ShareMessage[Any, Any]], Awaitable[object]],
        settings: QueueSettings,
        *,
        wake: Callable[[], object],
        wake_soon: Callable[[], object],
    ) -> None:
        super().__init__(core, settings, wake_soon)
        self._wait: Final = wait
        self._wake: Final = wake
        self._handler: Final = handler
        self._scopes: Final[dict[RecordJob, anyio.CancelScope]] = {}
        self._tasks: TaskGroup | None = None

    async def run(self) -> None:
        """Handle records until the consumer is closed or hands over."""
        self.begin()
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as self._tasks:
                try:
                    while (wait_s := self.step()) is not None:
                        if not self._ends:
                            await self._wait(wait_s)
                except Exception as error:  # noqa: BLE001  raised below: the task group would wrap it
                    failure = error
                    self.release_all()
                self._tasks.cancel_scope.cancel()
            if failure is not None:
                raise failure
        except BaseException:
            self.release_all()
            raise
        finally:
            self.end()

    def start(self, job: RecordJob) -> None:
        """Run the handler in a task."""
        assert self._tasks is not None
        scope = self._scopes[job] = anyio.CancelScope()
        self.context_of(job).run(self._tasks.start_soon, self._handle, job, scope)

    def cancel(self, job: RecordJob) -> None:
        """Cancel the task."""
        scope = self._scopes.pop(job, None)
        if scope is not None:
            scope.cancel()

    async def _handle(self, job: RecordJob, scope: anyio.CancelScope) -> None:
        error: BaseException | None = None
        with scope:
            try:
                check_finished(await self._handler(job.message), instead="await it in the handler")
            except Exception as raised:  # noqa: BLE001  the handler's, whatever it is
                error = raised
        self._scopes.pop(job, None)
        self._ends.append((job, error))
        self._wake()
