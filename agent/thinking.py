"""How a level of thinking is said to a provider: OpenAI's `reasoning_effort`, or what compatible servers take. Pure.

What each accepts was read in OpenAI's API reference and models' refusals, and in the documentation of vLLM, SGLang,
llama.cpp, Ollama, DashScope, DeepSeek and OpenRouter, in November 2026. What none of them says is not sent.
"""

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

Level = Literal["off", "low", "medium", "high"]
Thinking = Level | Mapping[str, Any]
"""A level, or the fields of ChatOpenAI to set for a role (`extra_body` is merged): `{"extra_body": {"top_k": 20}}`."""

_OPENAI = ("openai.com", "openai.azure.com")
_FLAG = ("aliyuncs.com", "siliconflow.cn", "siliconflow.com", "modelscope.cn")
_TYPED = ("deepseek.com", "z.ai", "bigmodel.cn", "volces.com")
# Hosted servers that refuse fields they do not know; told by `thinking={role: {"extra_body": …}}` if at all.
_STRICT = (
    *("azure.com", "googleapis.com", "mistral.ai", "groq.com", "x.ai", "anthropic.com", "amazonaws.com", "cohere.com"),
    *("cerebras.ai", "moonshot.cn", "moonshot.ai", "minimax.io", "perplexity.ai", "github.ai", "githubcopilot.com"),
)
_OLLAMA_PORT = 11434
_HOSTED_MODEL = re.compile(r"(gpt-\d|chatgpt|o\d|claude|gemini|grok|command-)")
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?(.*)")


def thinking_fields(model: str, base_url: str | None, level: Level) -> dict[str, Any]:
    """The fields of ChatOpenAI that ask `model` at `base_url` (None: OpenAI) for a level of thinking.

    Servers that know only on and off think for medium and high, and do as they are set up for low.
    """
    host, port = _place(base_url)
    if _within(host, ("openrouter.ai",)):
        return {"extra_body": {"reasoning": {"effort": "minimal" if level == "off" else level}}}
    if effort := reasoning_effort(model, level):
        return {"reasoning_effort": effort}
    if _HOSTED_MODEL.match(_bare(model)) or _within(host, (*_OPENAI, *_STRICT)):
        return {}
    if _within(host, _TYPED):
        # DeepSeek wants its thoughts back in a round of tool calls, and ChatOpenAI drops them: no low there.
        kind = "enabled" if level in ("medium", "high") else "disabled"
        return {"extra_body": {"thinking": {"type": kind}}}
    if port == _OLLAMA_PORT:
        # Off is all that every Ollama model accepts; those that think do so unasked.
        return {"reasoning_effort": "none"} if level == "off" else {}
    if level == "low":
        return {}
    switch = {"enable_thinking": level != "off"}
    return {"extra_body": switch if _within(host, _FLAG) else {"chat_template_kwargs": switch}}


def reasoning_effort(model: str, level: Level) -> str | None:
    """OpenAI's name for the level, the least that the model knows for off; None for models that take no effort."""
    name = _bare(model)
    if name.startswith("gpt-oss") or (re.match(r"o[134](-mini)?(-\d|$)", name) and not name.startswith("o1-mini")):
        return "low" if level == "off" else level
    version = _version(name)
    if version < (5, 0) or re.search(r"-(chat|pro|search|audio|realtime|image)", name):
        return None
    if level != "off":
        return level
    if version == (5, 0):
        return "low" if "codex" in name else "minimal"
    known = version < (6, 0) or re.match(r"gpt-6-(sol|luna)", name)
    return "none" if known and "codex" not in name else "low"


def needs_responses(model: str, base_url: str | None) -> bool:
    """Whether OpenAI takes tools together with thinking for this model on its Responses API only: from GPT-5.2 on."""
    return _within(_place(base_url)[0], _OPENAI) and _version(_bare(model)) >= (5, 2) and "-chat" not in model


def merged(body: Mapping[str, Any] | None, change: Mapping[str, Any]) -> dict[str, Any]:
    """`body` with `change` laid over it, dictionary by dictionary."""
    result = dict(body or {})
    for key, value in change.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), Mapping)
        result[key] = merged(result[key], value) if both else value
    return result


def _bare(model: str) -> str:
    return model.rsplit("/", 1)[-1].lower()


def _version(name: str) -> tuple[int, int]:
    found = _GPT.match(name)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _place(base_url: str | None) -> tuple[str, int | None]:
    try:
        parts = urlsplit(base_url or "https://api.openai.com/v1")
        return (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "", None


def _within(host: str, domains: tuple[str, ...]) -> bool:
    return any(host == domain or host.endswith("." + domain) for domain in domains)
