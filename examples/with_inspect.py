"""A solver of Inspect: one question of an evaluation, answered by DoneWhen with a scripted model.

Needs `pip install 'donewhen[inspect]'` and no key. For a real evaluation, give `eval` the name of a model.
"""

from tempfile import mkdtemp
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes

from donewhen.inspect import donewhen_solver


def reply(messages: Any, tools: Any, choice: Any, config: Any) -> ModelOutput:
    """Answer in place of a real model."""
    output = ModelOutput.for_tool_call("mockllm/model", "answer", {"text": "Paris is the capital of France."})
    output.usage = ModelUsage(input_tokens=300, output_tokens=20, total_tokens=320)
    return output


task = Task(
    dataset=[Sample(input="What is the capital of France?", target="Paris")],
    solver=donewhen_solver({"verification": "grounded"}),
    scorer=includes(),
)
model = get_model("mockllm/model", custom_outputs=reply)
log = eval(task, model=model, display="none", log_dir=mkdtemp())[0]
assert log.results
assert log.samples
print("accuracy:", log.results.scores[0].metrics["accuracy"].value)
print("status:", log.samples[0].store["donewhen"]["status"])
