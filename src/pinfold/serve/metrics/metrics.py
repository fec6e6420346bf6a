"""Metrics of a node for a scraper: counters from events, gauges from the present State."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold import __version__
from pinfold.formats.openmetrics import Family, MetricKind, Sample, choose
from pinfold.serve.metrics import table as rows
from pinfold.serve.metrics.gauges import Gauges, cache_values, process_values, score_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pinfold.core.snapshot import Snapshot
    from pinfold.formats.openmetrics import Distribution
    from pinfold.serve.metrics.counters import Counters


class Metrics:
    """Everything there is to scrape.

    >>> from pinfold.core.config import Config, Reservation
    >>> from pinfold.core.machine.cpuset import CPUSet
    >>> from pinfold.core.machine.presets import preset
    >>> from pinfold.core.snapshot import Snapshot
    >>> from pinfold.core.state import State
    >>> from pinfold.serve.metrics.counters import Counters
    >>> machine = preset("laptop-4")
    >>> admitter = Config("static", reserved=Reservation.of(CPUSet.of(0))).build(machine)
    >>> node = Snapshot(machine, admitter.policy, admitter.policy.start(State.new()))
    >>> kind, text = Metrics(lambda: node, Counters(admitter, now=0.0)).scrape("text/plain")
    >>> [line for line in text.decode().splitlines() if line.startswith("kubelet_cpu_manager_shared")]
    ['kubelet_cpu_manager_shared_pool_size_millicores 3000']
    """

    def __init__(
        self,
        read: Callable[[], Snapshot],
        counters: Counters,
        *,
        prefix: str = rows.KUBELET,
        process: Callable[[], Mapping[str, float]] = process_values,
    ) -> None:
        """Use *read* to get a Snapshot; *prefix* begins the names that the kubelet has too."""
        self._read = read
        self._counters = counters
        self._process = process
        self._gauges = Gauges()
        self._written: dict[tuple[str, str], tuple[object, str]] = {}
        """The last samples of each metric, and their text, in each format that was asked for."""
        self._names = [(metric, metric.full_name(rows.check_prefix(prefix))) for metric in rows.TABLE]

    def scrape(self, accept: str = "") -> tuple[str, bytes]:
        """Return the content type and all metrics, in the format that an Accept header asks for."""
        kind, formatted = choose(accept)
        end = formatted([])
        texts = [self._text(family, kind, lambda one: formatted([one]).removesuffix(end)) for family in self.families()]
        return kind, "".join([*texts, end]).encode(errors="replace")

    def _text(self, family: Family, kind: str, write: Callable[[Family], str]) -> str:
        """Return a metric as text; between two scrapes most of them have not changed."""
        samples, text = self._written.get((kind, family.name), (None, ""))
        if samples is not family.samples:
            text = write(family)
            self._written[kind, family.name] = family.samples, text
        return text

    def families(self) -> Iterator[Family]:
        """Yield all metrics in the order of the table; leave out those without a value."""
        snapshot = self._read()
        now = {**self._gauges.measure(snapshot), **self._others(snapshot)}
        for metric, name in self._names:
            samples: Sequence[Sample | Distribution] | None = now.get(metric.name)
            if samples is None and metric.kind is not MetricKind.GAUGE:
                samples = self._counters.tally.samples(metric)
            if samples:
                yield Family(name, metric.kind, metric.help, samples)

    def _others(self, snapshot: Snapshot) -> Mapping[str, Sequence[Sample]]:
        told = {
            rows.DRIFT_LEFT.name: Sample((), self._counters.drift_left),
            rows.WAITING.name: Sample((), snapshot.waiting),
            rows.CONNECTED.name: Sample((("runtime", snapshot.runtime),), int(snapshot.connected)),
            rows.WATCH_ONLY.name: Sample((), int(bool(snapshot.about.get("read_only")))),
            rows.JOURNAL_DROPS.name: Sample((), snapshot.figures.journal_drops),
            rows.BUILD.name: Sample((("version", __version__), ("policy", snapshot.policy.name)), 1),
        }
        process = {name: [Sample((), value)] for name, value in self._process().items()}
        return (
            {name: [sample] for name, sample in told.items()}
            | process
            | cache_values(snapshot)
            | score_values(snapshot)
        )
