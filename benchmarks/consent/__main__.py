"""X25: what would ask, and what would run unasked: `python -m benchmarks.consent` prints the figures and every case."""

from benchmarks.consent import agentdojo, airline

if __name__ == "__main__":
    print(agentdojo.section())
    print()
    print(airline.section())
