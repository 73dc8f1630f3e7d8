"""What has to be done every second: deadlines, what could not be started before, old results, and onlookers."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from typing import TYPE_CHECKING

from kerneldojo.service import store
from kerneldojo.service.clearing import GROUP, surplus

if TYPE_CHECKING:
    from kerneldojo.service.core import Service

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0

PRUNE_EVERY = 30
"""Ticks from one deletion of old results to the next."""


async def keep_house(service: Service) -> None:
    """Never ends; a fault is logged and the round is tried again."""
    rounds = 0
    while True:
        await asyncio.sleep(TICK_SECONDS)
        rounds += 1
        try:
            for task_id in service.reader.overdue(time.time(), GROUP):
                service.expire(task_id)
            service.dispatcher.pump()
            await service.lookout.devices()  # So that the next tasks go by the slots that there are by then.
            if rounds % PRUNE_EVERY == 0:
                await prune(service)
            for viewer in {onlooker.viewer for onlooker in service.onlookers}:
                overview = await service.lookout.overview(viewer)
                for onlooker in service.onlookers:
                    if onlooker.viewer == viewer:
                        onlooker.offer("overview", overview)
        except sqlite3.Error as error:
            service.lookout.note(error)
        except Exception:
            log.exception("housekeeping failed; it is tried again")


async def prune(service: Service) -> None:
    """Delete old results, where the settings ask for it."""
    config = service.config
    deleted = 0
    if config.keep_seconds is not None:
        while number := await _prune_some(service, time.time() - config.keep_seconds, GROUP):
            deleted += number
    if config.keep_bytes is not None:
        while (size := service.reader.used_bytes()) > config.keep_bytes:
            limit = surplus(size, config.keep_bytes, service.states.total() - deleted)
            if not (number := await _prune_some(service, time.time(), limit)):
                break
            deleted += number
    if deleted:
        service.count_states()


async def _prune_some(service: Service, before: float, limit: int) -> int:
    return await service.write(lambda connection: store.prune(connection, before, limit), lambda _: None)
