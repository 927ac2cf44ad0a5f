"""The search for settings where the telemetry is elsewhere: whoever has it replays candidates over hosts."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, List, Optional

from . import _lowtide

#: The results of some hosts under policies of a file's text.
Replays = Callable[[List[str], str], List[str]]


def search(
    hosts: List[str],
    replays: Replays,
    policy: str,
    *,
    rate: float,
    tries: int,
    seed: int,
    swap_cost: float,
    file_cost: float,
    kept: float,
    price: Optional[float],
) -> Dict[str, Any]:
    """The best settings, judged on one half of the hosts and reported for the other, as on one machine."""
    held_out = len(hosts) >= _lowtide.ENOUGH_HOSTS
    judges = [host for host in hosts if not held_out or _lowtide.is_judge(host)]
    others = [host for host in hosts if not held_out or not _lowtide.is_judge(host)]
    search = _lowtide.Search(policy, rate, seed, swap_cost, file_cost)
    while search.tried() < tries:
        candidates = search.ask(min(_lowtide.AT_A_TIME, tries - search.tried()))
        search.report(replays(judges, candidates))
    best = search.best()
    if best is None:
        raise ValueError("no candidate stays within the limit")
    result = json.loads(search.result(replays(others, best), held_out, kept, price))
    return {**result["result"], "tuned": result["tuned"]}
