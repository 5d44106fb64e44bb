"""Three Ray nodes on this machine, one killed while another joins: the same files as by one process."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from rows import write_shards

from empathy_judge.data.storage import find_source
from empathy_judge.judge.base import load_judge
from empathy_judge.judge.ray_engine import QUIET, ROOT, own_token, score_ray
from empathy_judge.judge.scoring import ScoringRequest, score_file

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A head that judges nothing and two nodes with a core each, as three machines would be."""
    # Ray reads the last one when it is imported, for all tests of this process: listen on the loopback alone.
    local = {"PYTHONPATH": str(ROOT), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    for name, value in {**QUIET, **own_token(), **local}.items():
        monkeypatch.setenv(name, value)
    import ray
    from ray.cluster_utils import Cluster

    # Nodes of one machine are children of this process: without the dashboard's, which listen elsewhere.
    head = {**NODE, "num_cpus": 0, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        nodes.add_node(**NODE)
    ray.init(address=nodes.address, logging_level="ERROR", log_to_driver=False)
    yield nodes
    ray.shutdown()
    nodes.shutdown()


def has_judge(node: Any) -> bool:
    """Whether a process that judges runs on a node."""
    (raylet,) = node.all_processes["raylet"]
    children = psutil.Process(raylet.process.pid).children(recursive=True)
    return any(child.name().startswith("ray::Worker") for child in children)


def test_a_node_is_killed_and_another_joins(cluster: Any, tmp_path: Path) -> None:
    folder = write_shards(tmp_path / "night", {f"part-{number}.jsonl": 4000 for number in range(5)})
    judge, killed = load_judge("length"), list[Any]()

    def disturb(done: int, total: int) -> None:
        if done >= 2000 and not killed:
            (node, *_) = [node for node in cluster.worker_nodes if has_judge(node)]
            cluster.remove_node(node, allow_graceful=False)
            killed.append(node)
            cluster.add_node(**NODE)

    source = find_source(str(folder))
    request = ScoringRequest(source=source, judge=judge, out=tmp_path / "one", calibration="none")
    score_file(request)
    by_ray = replace(request, out=tmp_path / "many", engine=partial(score_ray, workers=2))
    scored = score_file(by_ray, on_progress=disturb)
    assert scored.asked == 20_000
    assert killed
    for name in ("judgments.jsonl", "summary.json", "plan.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes(), name
