"""A criterion, as a plan or the settings say it: a text, and optionally a check or a judge that decides it."""

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from donewhen.state.criteria.expect import Check


def _not_blank(text: str) -> str:
    if not (trimmed := text.strip()):
        raise ValueError("is blank")
    return trimmed


NotBlank = Annotated[str, AfterValidator(_not_blank)]


class Criterion(BaseModel):
    """One thing that must hold when the step is done, and optionally the check that decides it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", defer_build=True)

    text: NotBlank
    check: Check | None = Field(
        default=None, description="read-only tool call that the runtime makes to decide this criterion"
    )
    judge: bool = Field(default=False, description="let a second model decide this criterion from the evidence")


def _criteria(value: Any) -> Any:
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    return [{"text": item} if isinstance(item, str) else item for item in items]


Criteria = Annotated[list[Criterion], BeforeValidator(_criteria)]
