"""Where things lie: the checkout, the recorded real cases beside it, goldens and data of the tests."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVALS = ROOT.parent / "shared" / "evals" / "data"
DATA = ROOT / "tests" / "data"
