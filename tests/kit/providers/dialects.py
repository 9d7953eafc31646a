"""Tool calls as text, in the forms that models are trained on, as servers without a parser for them hand them on."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Calls = Sequence[tuple[str, Mapping[str, Any]]]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _python(calls: Calls, between: str) -> str:
    return between.join(
        f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})" for name, given in calls
    )


def _tags(calls: Calls, call: str, argument: str, end: str, between: str = "") -> str:
    """Write calls with tags for the arguments; the three forms have `{name}`, and `{key}`, `{value}` and `{text}`."""
    return between.join(
        call.format(name=name)
        + "".join(
            argument.format(key=key, value=_text(value), text=str(isinstance(value, str)).lower())
            for key, value in given.items()
        )
        + end.format(name=name)
        for name, given in calls
    )


def _objects(calls: Calls, name: str = "name", given: str = "arguments", **more: str) -> list[dict[str, Any]]:
    return [{**more, name: called, given: dict(arguments)} for called, arguments in calls]


def _each(calls: Calls, form: str) -> str:
    """Write calls by a form with `{n}` for the number, `{name}` and `{given}`."""
    return "".join(form.format(n=n, name=name, given=_json(dict(given))) for n, (name, given) in enumerate(calls))


QWEN = (
    "<tool_call>\n<function={name}>\n",
    "<parameter={key}>\n{value}\n</parameter>\n",
    "</function>\n</tool_call>",
    "\n",
)
INVOKE = ('<invoke name="{name}">\n', '<parameter name="{key}">{value}</parameter>\n', "</invoke>\n")
DSML = (
    '<｜DSML｜invoke name="{name}">\n',
    '<｜DSML｜parameter name="{key}" string="{text}">{value}</｜DSML｜parameter>\n',
    "</｜DSML｜invoke>\n",
)
STEP = (
    '<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">',
    '<steptml:parameter name="{key}">{value}</steptml:parameter>',
    "</steptml:invoke><｜tool_call_end｜>",
)
GLM = ("<tool_call>{name}\n", "<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n", "</tool_call>", "\n")
DEEPSEEK = "<｜tool▁call▁begin｜>{form}<｜tool▁call▁end｜>"

ONE: dict[str, Callable[[Calls], str]] = {
    "hermes_unclosed": lambda c: "<tool_call>\n" + _json(_objects(c)[0]),
    "llama_json": lambda c: _json(_objects(c, given="parameters")[0]),
    "llama_type_function": lambda c: _json(_objects(c, given="parameters", type="function")[0]),
    "llama_python_tag": lambda c: "<|python_tag|>" + _json(_objects(c, given="parameters")[0]) + "<|eom_id|>",
    "llama_function_tag": lambda c: _each(c[:1], "<function={name}>{given}</function>"),
    "harmony": lambda c: _each(
        c[:1], "<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{given}<|call|>"
    ),
    "harmony_stripped": lambda c: _each(c[:1], "commentary to=functions.{name} json{given}"),
    "react": lambda c: _each(c[:1], "Thought: I need this.\nAction: {name}\nAction Input: {given}"),
    "xml_direct": lambda c: _tags(c[:1], "<{name}>\n", "<{key}>{value}</{key}>\n", "</{name}>"),
    "tool_use": lambda c: _json(_objects(c, given="input", type="tool_use", id="toolu_1")[0]),
    "fenced": lambda c: "I'll call the tool.\n```json\n" + _json(_objects(c)[0]) + "\n```",
}
"""Forms of a single call."""
SEVERAL: dict[str, Callable[[Calls], str]] = {
    "hermes": lambda c: "\n".join(f"<tool_call>\n{_json(each)}\n</tool_call>" for each in _objects(c)),
    "json_lines": lambda c: "\n".join(_json(each) for each in _objects(c)),
    "qwen3_coder": lambda c: _tags(c, *QWEN),
    "qwen3_coder_without_start": lambda c: _tags(c, *QWEN).replace("<tool_call>\n", "", 1),
    "llama_pythonic": lambda c: f"[{_python(c, ', ')}]",
    "mistral": lambda c: "[TOOL_CALLS]" + _json(_objects(c)),
    "mistral_v11": lambda c: _each(c, "[TOOL_CALLS]{name}[ARGS]{given}"),
    "deepseek_v3": lambda c: (
        "<｜tool▁calls▁begin｜>"
        + _each(c, DEEPSEEK.format(form="function<｜tool▁sep｜>{name}\n```json\n{given}\n```"))
        + "<｜tool▁calls▁end｜>"
    ),
    "deepseek_v3_1": lambda c: (
        "<｜tool▁calls▁begin｜>"
        + _each(c, DEEPSEEK.format(form="{name}<｜tool▁sep｜>{given}"))
        + "<｜tool▁calls▁end｜>"
    ),
    "deepseek_v3_2": lambda c: f"<｜DSML｜function_calls>\n{_tags(c, *DSML)}</｜DSML｜function_calls>",
    "kimi": lambda c: (
        "<|tool_calls_section_begin|>"
        + _each(c, "<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>{given}<|tool_call_end|>")
        + "<|tool_calls_section_end|>"
    ),
    "glm": lambda c: _tags(c, *GLM),
    "claude": lambda c: f"<function_calls>\n{_tags(c, *INVOKE)}</function_calls>",
    "minimax": lambda c: f"<minimax:tool_call>\n{_tags(c, *INVOKE)}</minimax:tool_call>",
    "gemma_code": lambda c: "```tool_code\n" + _python(c, "\n") + "\n```",
    "gemma4": lambda c: _each(c, "<|tool_call>call:{name}{given}<tool_call|>"),
    "granite": lambda c: "<|tool_call|>" + _json(_objects(c)),
    "phi4": lambda c: (
        "<|tool_call|>" + _json([{"type": "function", "function": each} for each in _objects(c)]) + "<|/tool_call|>"
    ),
    "jamba": lambda c: f"<tool_calls>{_json(_objects(c))}</tool_calls>",
    "command": lambda c: "Action: ```json\n" + _json(_objects(c, "tool_name", "parameters")) + "\n```",
    "nemotron": lambda c: f"<TOOLCALL>{_json(_objects(c))}</TOOLCALL>",
    "step3": lambda c: f"<｜tool_calls_begin｜>{_tags(c, *STEP)}<｜tool_calls_end｜>",
    "openai": lambda c: _json(
        {
            "tool_calls": [
                {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": _json(dict(given))}}
                for n, (name, given) in enumerate(c)
            ]
        }
    ),
}
"""Forms of one call or more."""
DIALECTS = {**ONE, **SEVERAL}
MARKS = {
    "harmony": (
        "<|channel|>analysis<|message|>SECRET<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|return|>",
    ),
    "chatml": ("<think>SECRET</think>", "<|im_end|>"),
    "without_start": ("SECRET</think>", "<|im_end|>\n<|im_start|>user\nSECRET"),
    "seed": ("<seed:think>SECRET</seed:think>", ""),
    "kimi": ("◁think▷SECRET◁/think▷", ""),
    "magistral": ("[THINK]SECRET[/THINK]", "</s>"),
    "llama": ("<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"),
    "deepseek": ("<think>SECRET</think>", "<｜end▁of▁sentence｜>"),
    "gemma3": ("<unused94>SECRET<unused95>", "<end_of_turn>"),
    "gemma4": ("<|channel>thought\nSECRET<channel|>", "<turn|>"),
    "command": ("<|START_THINKING|>SECRET<|END_THINKING|><|START_RESPONSE|>", "<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"),
    "glm": ("<think>SECRET</think>", "<|user|>\nSECRET"),
    "apertus": ("<|inner_prefix|>SECRET<|inner_suffix|>", "</s>"),
    "sky": ("<|begin_of_thought|>SECRET<|end_of_thought|><|begin_of_solution|>", "<|end_of_solution|>"),
}
"""What families write before and after an answer, where no server takes it out."""
