"""The words of providers for what a status does not tell: one table for each meaning, with a recorded body beside it.

Words decide only where the status is ambiguous (`errors.py`). Patterns are for lower case; bodies are cut to what
matters. `tests/providers/test_errors.py` reads every body as its provider sends it.
"""

from typing import NamedTuple


class Text(NamedTuple):
    """How one provider says it."""

    provider: str
    pattern: str
    status: int
    body: str


TOO_LONG = (
    Text(
        "OpenAI, DeepSeek, vLLM, NIM, OpenRouter",
        r"(?:maximum|model'?s?|available) context|context[ _](?:window|length|size|limit)",
        400,
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    ),
    Text(
        "OpenAI", r"string_above_max_length", 400,
        '{"code": "string_above_max_length", "message": "string too long"}',
    ),
    Text(
        "OpenAI Responses", r"exceeds the context", 400, "Your input exceeds the context window of this model."
    ),
    Text(
        "Anthropic, Fireworks, Bedrock",
        r"(?:prompt|input|request|message)s?(?: \w+)? (?:is|are|was) too (?:long|large)",
        400,
        "prompt is too long: 213245 tokens > 200000 maximum",
    ),
    Text(
        "Anthropic", r"request[ _]too[ _]large", 413,
        '{"type": "request_too_large", "message": "Request exceeds the size"}',
    ),
    Text(
        "Google, Amazon Nova",
        r"input token(?:s| count).{0,60}exceed|exceeds? the (?:maximum|max|limit)[^.]{0,40} tokens?",
        400,
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    ),
    Text(
        "Bedrock", r"expected maxlength: \d", 400,
        "Malformed input request: expected maxLength: 100000, actual: 180000",
    ),
    Text(
        "Groq",
        r"request too large for|reduce the length of",
        413,
        "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000",
    ),
    Text(
        "Cerebras", r"reduce the length of", 400,
        "Please reduce the length of the messages or completion. Current length is 9000 while limit is 8192",
    ),
    Text(
        "Mistral", r"too large for model with \d", 400,
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    ),
    Text(
        "Cohere", r"number of tokens in the prompt cannot exceed", 400,
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4300.",
    ),
    Text(
        "Moonshot", r"exceeded model token limit", 400,
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
    ),
    Text("Z.ai", r"exceeds max(?:imum)? length|超长", 400, '{"code": "1261", "message": "Prompt exceeds max length"}'),
    Text("DashScope", r"range of input length", 400, "<400> InternalError: Range of input length should be [1, 30720]"),
    Text(
        "xAI", r"maximum (?:prompt|input) length", 400,
        "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
    ),
    Text(
        "TGI, Together", r"`inputs` (?:tokens \+|must have less)", 422,
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens",
    ),
    Text(
        "vLLM", r"longer than the (?:maximum )?model'?s? (?:length|context)", 500,
        "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    ),
    Text(
        "SGLang", r"longer than the (?:maximum )?model'?s? (?:length|context)", 400,
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
    ),
    Text(
        "llama.cpp", r"exceed_context_size", 400,
        '{"type": "exceed_context_size_error", "message": "the request exceeds the available context size"}',
    ),
    Text(
        "LM Studio", r"context the overflows|greater than the context length", 400,
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with 4096",
    ),
    Text(
        "Cloudflare", r"exceeded this model context", 400,
        "The estimated number of input and maximum output tokens (9000) exceeded this model context window limit.",
    ),
    Text(
        "GitHub Models", r"request body too large|tokens_limit_reached", 413,
        '{"code": "tokens_limit_reached", "message": "Request body too large for gpt-4o model. Max size: 8000."}',
    ),
    Text(
        "GitHub Copilot", r"max_prompt_tokens_exceeded", 400,
        '{"code": "model_max_prompt_tokens_exceeded", "message": "token count of 90000 exceeds the limit of 64000"}',
    ),
    Text("MiniMax", r"context window exceeds", 400, "invalid params, context window exceeds limit (2013)"),
)  # fmt: skip
"""The request is longer than the model accepts."""
NO_CREDIT = (
    Text(
        "OpenAI, Groq",
        r"insufficient[ _](?:quota|balance|credits?|funds)",
        429,
        '{"code": "insufficient_quota", "message": "You exceeded your current quota"}',
    ),
    Text("Anthropic", r"credit balance is too low", 400, "Your credit balance is too low to access the Anthropic API."),
    Text(
        "OpenAI", r"billing (?:hard limit|(?:is )?not active)|billing_", 429,
        '{"code": "billing_hard_limit_reached"}',
    ),
    Text(
        "Google", r"check your plan and billing|prepayment credits", 429,
        "You exceeded your current quota, please check your plan and billing details. limit: 0",
    ),
    Text(
        "xAI", r"monthly (?:spend\w*|usage) limit|out of credits?", 429,
        "Your team has either used all available credits or reached its monthly spending limit.",
    ),
    Text(
        "OpenRouter", r"key limit exceeded|payment_required|credits_exhausted", 403,
        "Key limit exceeded (total limit).",
    ),
    Text(
        "Moonshot", r"exceeded_current_quota", 429,
        '{"type": "exceeded_current_quota_error", "message": "no balance"}',
    ),
    Text("DashScope", r"arrearage", 400, '{"code": "Arrearage", "message": "Access denied, check your account"}'),
    Text("Z.ai, Tencent", r"余额不足|欠费", 429, '{"code": "1113", "message": "余额不足或无可用资源包,请充值。"}'),
)  # fmt: skip
"""The account has no credit left, which waiting does not change."""
RATE_LIMITED = (
    Text(
        "OpenAI, Groq, DeepSeek", r"rate_?limit", 429,
        '{"code": "rate_limit_exceeded", "message": "Rate limit reached for m on tokens per min (TPM): Limit 30000"}',
    ),
    Text(
        "Anthropic", r"rate_?limit", 429,
        '{"type": "rate_limit_error", "message": "This would exceed your rate limit of 40,000 tokens per minute"}',
    ),
    Text("Google", r"resource_exhausted", 429, '{"status": "RESOURCE_EXHAUSTED", "message": "Resource exhausted."}'),
    Text("Bedrock", r"throttling", 400, '{"__type": "ThrottlingException", "message": "Too many tokens, please wait"}'),
    Text("Mistral", r"too_?many_?requests", 429, '{"message": "Requests rate limit exceeded"}'),
    Text(
        "Azure", r"token rate limit", 429,
        "Requests have exceeded token rate limit of your current pricing tier. Please retry after 20 seconds.",
    ),
    Text(
        "Moonshot", r"max rpm", 429,
        '{"type": "rate_limit_reached_error", "message": "reached max RPM: 3, please try again after 1 seconds"}',
    ),
    Text("Z.ai", r"并发", 429, '{"code": "1302", "message": "您当前使用该API的并发数过高"}'),
    Text(
        "DashScope", r"throttling", 429,
        '{"code": "Throttling.RateQuota", "message": "Requests rate limit exceeded"}',
    ),
    Text(
        "Cerebras", r"tokens per minute", 429,
        '{"code": "token_quota_exceeded", "message": "Tokens per minute limit exceeded - too many tokens processed."}',
    ),
    Text(
        "OpenRouter", r"temporarily rate-limited", 429,
        '{"message": "Provider returned error", "metadata": {"raw": "m is temporarily rate-limited upstream"}}',
    ),
    Text("NVIDIA", r"too many requests", 429, '{"status": 429, "title": "Too Many Requests"}'),
    Text(
        "GitHub Models", r"per \d+s exceeded", 429,
        "Rate limit of 15 per 60s exceeded for UserByModelByMinute. Please wait 12 seconds before retrying.",
    ),
    Text("Cohere", r"trial key", 429, "You are using a Trial key, which is limited to 20 API calls / minute."),
    Text("Together, Fireworks", r"rate limit", 429, "You have reached the rate limit specific to this model m."),
)  # fmt: skip
"""Too many requests or tokens for now, which a wait changes. Most say so by status 429 alone."""
TOO_MANY_TOOLS = (
    Text(
        "OpenAI, Azure, DeepSeek",
        r"'tools'?: array too long[^0-9]{0,60}(\d+)", 400,
        "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length 217 "
        "instead.",
    ),
    Text("Groq", r"'tools'? ?: maximum number of items is (\d+)", 400, "'tools' : maximum number of items is 128"),
    Text(
        "Google", r"at most (\d+) function declarations", 400,
        "* tools[0].function_declarations: [FIELD_INVALID] At most 512 function declarations can be specified.",
    ),
    Text(
        "xAI", r"tools have been provided but the maximum is (\d+)", 400,
        "Maximum tools limit reached. 219 tools have been provided but the maximum is 200.",
    ),
    Text(
        "GitHub Copilot", r"more than (\d+) tools", 400, "You may not include more than 128 tools in your request."
    ),
    Text("Antigravity", r"number of tools exceeds (\d+)", 400, "agent executor error: number of tools exceeds 128"),
)  # fmt: skip
"""A request has more tools than the server takes; the group is how many it takes."""


def any_of(*texts: Text) -> str:
    """Return one pattern for these texts."""
    return "|".join(dict.fromkeys(text.pattern for text in texts))
