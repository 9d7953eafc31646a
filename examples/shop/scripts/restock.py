"""Which products to order again. TODO: read the stock from the till."""

LOW = 5


def to_order(stock: dict[str, int]) -> list[str]:
    return [product for product, left in stock.items() if left < LOW]
