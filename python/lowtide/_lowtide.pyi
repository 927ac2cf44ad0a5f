from typing import Iterable, List, Optional, Tuple

__version__: str
ENOUGH_HOSTS: int
AT_A_TIME: int
TRIES: int

def summary(record: str) -> str: ...
def curve(record: str) -> str: ...
def budget(record: str, slowdown: float, swap: bool) -> str: ...
def replay_folder(
    dir: str,
    policy: Optional[str],
    swap_cost: float,
    file_cost: float,
    kept: float,
    price: Optional[float],
    by: Optional[str],
    threads: Optional[int],
) -> str: ...
def replay_host(host: str, stream: bytes, policy: Optional[str], swap_cost: float, file_cost: float, by: Optional[str]) -> str: ...
def replay_files(
    host: str,
    files: Iterable[Tuple[str, Optional[bytes], str]],
    policy: Optional[str],
    swap_cost: float,
    file_cost: float,
    by: Optional[str],
) -> str: ...
def combine(hosts: List[str], policy: Optional[str], kept: float, price: Optional[float], by: Optional[str]) -> str: ...
def is_judge(host: str) -> bool: ...
def tune_folder(
    dir: str,
    policy: str,
    rate: float,
    tries: int,
    seed: int,
    swap_cost: float,
    file_cost: float,
    kept: float,
    price: Optional[float],
    threads: Optional[int],
) -> str: ...

class Search:
    def __init__(self, policy: str, rate: float, seed: int, swap_cost: float, file_cost: float) -> None: ...
    def ask(self, count: int) -> str: ...
    def report(self, hosts: List[str]) -> None: ...
    def tried(self) -> int: ...
    def best(self) -> Optional[str]: ...
    def result(self, hosts: List[str], held_out: bool, kept: float, price: Optional[float]) -> str: ...
