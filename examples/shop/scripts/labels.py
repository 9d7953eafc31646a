"""Price labels, one a line."""


def label(product: str, price: float) -> str:
    return f"{product}: {price:.2f} EUR"
