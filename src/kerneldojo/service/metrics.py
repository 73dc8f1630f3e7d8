"""`/metrics` in Prometheus' format. Figures are read off the service when they are asked for; nothing is kept twice."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kerneldojo.service.core import Service
from kerneldojo.service.viewer import Viewer

ACKNOWLEDGE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Metrics:
    """One registry for one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._registry = CollectorRegistry()
        self._registry.register(self)  # type: ignore[arg-type]
        self.requests = Counter("dojo_requests", "Requests.", ("method", "code"), registry=self._registry)
        self.acknowledge = Histogram(
            "dojo_acknowledge_seconds",
            "From a parsed submission to its acknowledgement, the flush to disk included.",
            registry=self._registry,
            buckets=ACKNOWLEDGE_BUCKETS,
        )

    def render(self, viewer: Viewer) -> bytes:
        """The text that Prometheus reads, with the figures of those clients that `viewer` may see."""
        theirs = CollectorRegistry()
        theirs.register(_ByClient(self._service, viewer))  # type: ignore[arg-type]
        return generate_latest(self._registry) + generate_latest(theirs)

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand: the figures exist once the service runs."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """What the service knows of itself now."""
        service = self._service
        queue = service.lookout.queue_state()
        yield GaugeMetricFamily("dojo_queue_tasks", "Waiting tasks.", queue.queued)
        yield GaugeMetricFamily("dojo_queue_bytes", "Bytes of waiting jobs.", queue.queued_bytes)
        yield GaugeMetricFamily("dojo_running_tasks", "Tasks with the executor.", queue.running)
        yield GaugeMetricFamily("dojo_slots", "Jobs that the executor holds at once.", queue.slots)
        yield GaugeMetricFamily("dojo_waiting_requests", "Requests that wait for results.", len(service.waiters))
        yield GaugeMetricFamily("dojo_journal_writes", "Writes that wait for the disk.", len(service.journal))
        yield GaugeMetricFamily("dojo_store_bytes", "Size of the store.", service.reader.used_bytes())
        yield CounterMetricFamily("dojo_ended", "Tasks ended since the start.", service.tally.total)
        tasks = GaugeMetricFamily("dojo_tasks", "Tasks in the store.", labels=["state"])
        for state, number in service.states.items():
            tasks.add_metric([state], number)
        yield tasks
        verdicts = GaugeMetricFamily("dojo_verdicts", "Ended tasks in the store by verdict.", labels=["status"])
        for status, number in service.statuses.items():
            verdicts.add_metric([status], number)
        yield verdicts
        healthy = GaugeMetricFamily("dojo_device_healthy", "Whether a device takes jobs.", labels=["device"])
        done = CounterMetricFamily("dojo_device_jobs", "Jobs that a device has finished.", labels=["device"])
        for device in service.lookout.known_devices:
            healthy.add_metric([device.name], float(device.is_healthy))
            done.add_metric([device.name], device.num_done)
        yield healthy
        yield done


class _ByClient:
    """What waits, runs and has ended of each client: that others are there is not everybody's to know."""

    def __init__(self, service: Service, viewer: Viewer) -> None:
        self._service, self._viewer = service, viewer

    def describe(self) -> Iterable[Metric]:
        """See `Metrics.describe`."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """As `Metrics.collect`."""
        clients, dispatcher = self._service.clients, self._service.dispatcher
        tasks = GaugeMetricFamily("dojo_client_tasks", "Tasks that wait or run.", labels=["client", "state"])
        for state, numbers in (("queued", dispatcher.queue.clients()), ("running", dispatcher.running_clients())):
            for label, number in clients.labelled(numbers).items():
                if self._viewer.sees(label):
                    tasks.add_metric([label, state], number)
        yield tasks
        ended = CounterMetricFamily("dojo_client_ended", "Tasks ended since the start.", labels=["client"])
        for label, number in clients.ended.items():
            if self._viewer.sees(label):
                ended.add_metric([label], number)
        yield ended
