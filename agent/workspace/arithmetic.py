"""Evaluate arithmetic that a model writes. It is parsed and never run as code, exact where possible, and bounded."""

import ast
import math
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from typing import Annotated

from langchain_core.tools import ToolException
from pydantic import Field

MAX_CHARS = 1_000
MAX_BITS = 10_000
PRECISE = Context(prec=17)
SIGNS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "（": "(", "）": ")"})
CONSTANTS = {"pi": Fraction(math.pi), "e": Fraction(math.e)}

Number = Fraction


def _square_root(value: Number) -> Number:
    if value < 0:
        raise ValueError("the square root of a negative number")
    exact = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
    return exact if exact * exact == value else Fraction(math.sqrt(value))


def _round(value: Number, digits: Number = Fraction(0)) -> Number:
    if digits.denominator != 1 or abs(digits) > 300:
        raise ValueError("round takes a whole number of digits")
    return Fraction(round(value, int(digits)))


FUNCTIONS: dict[str, tuple[int, int, Callable[..., Number]]] = {
    "abs": (1, 1, lambda value: abs(value)),
    "round": (1, 2, _round),
    "min": (1, 100, lambda *values: min(values)),
    "max": (1, 100, lambda *values: max(values)),
    "sum": (1, 100, lambda *values: sum(values, Fraction(0))),
    "sqrt": (1, 1, _square_root),
    "floor": (1, 1, lambda value: Fraction(math.floor(value))),
    "ceil": (1, 1, lambda value: Fraction(math.ceil(value))),
    "exp": (1, 1, lambda value: Fraction(math.exp(value))),
    "log": (1, 2, lambda *values: Fraction(math.log(*values))),
    "log10": (1, 1, lambda value: Fraction(math.log10(value))),
    "sin": (1, 1, lambda value: Fraction(math.sin(value))),
    "cos": (1, 1, lambda value: Fraction(math.cos(value))),
    "tan": (1, 1, lambda value: Fraction(math.tan(value))),
}


def calculate(
    expression: Annotated[str, Field(description="e.g. '(1200 * 3 + 45.5) / 7' or 'round(sqrt(2), 3)'")],
) -> str:
    """Calculate + - * / // % ** with pi, e, abs, round, min, max, sum, sqrt, floor, ceil, exp, log, sin, cos, tan.

    Exact for decimals (0.1 + 0.2 is 0.3); the answer is the number. No thousands separators.
    """
    if len(expression) > MAX_CHARS:
        raise ToolException(f"An expression has at most {MAX_CHARS} characters; split it.")
    if "\0" in expression:
        raise ToolException(f"{expression[:100]!r} is not arithmetic: it holds a NUL character.")
    source = expression.translate(SIGNS).replace("^", "**").strip().removesuffix("=").strip()
    try:
        tree = ast.parse(source, mode="eval")
        return _format(_evaluate(tree.body, source))
    except SyntaxError:
        raise ToolException(f"{expression[:100]!r} is not arithmetic. Write it like '(1200 * 3 + 45.5) / 7'.") from None
    except ZeroDivisionError:
        raise ToolException(f"{expression[:100]!r} divides by zero.") from None
    except (OverflowError, RecursionError, MemoryError):
        raise ToolException(f"{expression[:100]!r} is too large or too deep to calculate; split it.") from None
    except (ValueError, TypeError) as error:
        raise ToolException(f"{expression[:100]!r} has no result: {error}.") from None


def _evaluate(node: ast.expr, source: str) -> Number:
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("true and false are no numbers")
        case ast.Constant(value=int(whole)):
            value = Fraction(whole)
        case ast.Constant(value=float(binary)) if math.isfinite(binary):
            value = Fraction(repr(binary))
        case ast.Name(id=name) if name in CONSTANTS:
            value = CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = -_evaluate(operand, source)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            value = _evaluate(operand, source)
        case ast.BinOp(left=left, op=operator, right=right):
            value = _combine(operator, _evaluate(left, source), _evaluate(right, source))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            low, high, function = FUNCTIONS[name]
            if not low <= len(arguments) <= high:
                raise ValueError(f"{name} takes {low} to {high} numbers")
            value = function(*[_evaluate(argument, source) for argument in arguments])
        case ast.Tuple():
            raise ValueError("a comma; write numbers without thousands separators")
        case _:
            raise ValueError(f"{(ast.get_source_segment(source, node) or '')[:40]!r} is not arithmetic")
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise OverflowError
    return value


def _combine(operator: ast.operator, left: Number, right: Number) -> Number:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return Fraction(left // right)
        case ast.Mod():
            return left % right
        case ast.Pow():
            return _raise_to_power(left, right)
    raise ValueError(f"{type(operator).__name__} is not arithmetic")


def _raise_to_power(left: Number, right: Number) -> Number:
    if right.denominator == 1:
        bits = max(left.numerator.bit_length(), left.denominator.bit_length())
        if left not in (-1, 0, 1) and bits * abs(right) > MAX_BITS:
            raise OverflowError
        return Fraction(left ** int(right))
    if left < 0:
        raise ValueError("a fractional power of a negative number")
    root = _square_root(left) if right == Fraction(1, 2) else None
    return root if root is not None else Fraction(float(left) ** float(right))


def _format(value: Number) -> str:
    """Return a whole number with all digits, any other with as many as a float has."""
    if value.denominator == 1:
        return str(value.numerator)
    try:
        return repr(float(value))
    except OverflowError:
        return str(PRECISE.divide(Decimal(value.numerator), Decimal(value.denominator)))
