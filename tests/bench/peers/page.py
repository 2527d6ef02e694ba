"""stub"""
from pathlib import Path
from tests.bench.peers.results import Results
from tests.bench.peers.sizes import Sizes
def write_page(results: Results, sizes: Sizes, form: str, page: Path) -> None: ...
