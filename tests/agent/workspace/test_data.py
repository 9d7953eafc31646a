"""Data files as tables: what describe_data says of them, and what query_data may and may not do."""

from collections.abc import Callable
from pathlib import Path

import pytest
from langchain_core.tools import ToolException

from donewhen.agent.workspace import workspace_tools

Ask = Callable[[str], str]


@pytest.fixture
def describe(tmp_path: Path) -> Ask:
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    return lambda path: str(tools["describe_data"].invoke({"path": path}))


@pytest.fixture
def query(tmp_path: Path) -> Ask:
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    return lambda sql: str(tools["query_data"].invoke({"sql": sql}))


def shop(root: Path) -> None:
    (root / "orders.csv").write_text(
        "order_id,customer,date,net\n"
        "O1,C1,2025-07-01,100.10\nO2,C2,2025-09-30,200.20\nO3,C1,2025-06-30,999.00\n"
        "O4,C3,2025-08-15,0.30\nO5,C3,2025-10-01,50.00\n"
    )
    (root / "returns.csv").write_text(
        'order_id;amount;reason\nO1;"20,10";late\nO2;"0,20";"damaged; wet"\nO3;"9,00";x\n'
    )
    (root / "regions.csv").write_bytes("customer\tregion\nC1\tWest\nC2\tSüd\nC3\tWest\n".encode("utf-16"))


def test_net_revenue_per_region_after_returns_takes_two_queries(tmp_path: Path, query: Ask) -> None:
    """D1: joins, a date range and exact sums over three files, written in three ways."""
    shop(tmp_path)
    with pytest.raises(ToolException) as refused:
        query(
            "SELECT g.region, sum(o.net) - sum(r.amount) AS net FROM 'orders.csv' o JOIN 'regions.csv' g "
            "USING (customer) "
            "LEFT JOIN 'returns.csv' r USING (order_id) WHERE o.date BETWEEN '2025-07-01' AND '2025-09-30' GROUP BY ALL"
        )
    assert 'returns.csv: "amount" looks like numbers' in str(refused.value)
    assert """CAST(replace(regexp_replace("amount", '[^0-9,-]', '', 'g'), ',', '.') AS DECIMAL(18,2))""" in str(
        refused.value
    )
    assert query(
        "SELECT g.region, sum(o.net) - coalesce(sum(CAST(replace(r.amount, ',', '.') AS DECIMAL(18,2))), 0) AS net "
        "FROM 'orders.csv' o JOIN 'regions.csv' g USING (customer) LEFT JOIN 'returns.csv' r USING (order_id) "
        "WHERE o.date BETWEEN '2025-07-01' AND '2025-09-30' GROUP BY ALL ORDER BY net DESC"
    ) == ("region | net\nSüd | 200.00\nWest | 80.30\n(2 rows)")
