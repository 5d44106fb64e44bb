"""What Prometheus may know of the server: counts and times, and no word of any text."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from data.tables import Row

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120)


class Metrics:
    """A registry of its own: two servers in one process do not count for each other."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "empathy_requests", "Requests answered.", ["path", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "empathy_request_seconds",
            "Time to answer a request.",
            ["path"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._judgments = Counter("empathy_judgments", "Judgments made.", ["label"], registry=self._registry)
        self._held = Gauge(
            "empathy_queue_judgments", "Judgments promised and not yet made.", registry=self._registry
        )

    def watch(self, held: Callable[[], int]) -> None:
        """Where the length of the queue is found."""
        self._held.set_function(held)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """After every request; `path` is a route's, never what a client made up."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def count_judgment(self, row: Row) -> None:
        """After every judgment."""
        self._judgments.labels(row["label"] or "unscored").inc()

    def write(self) -> bytes:
        """In the format that Prometheus reads."""
        return generate_latest(self._registry)
