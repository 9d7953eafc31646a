"""WireServer: a server on loopback that speaks OpenAI's chat completions from a script, faults included."""

import threading
from types import TracebackType
from typing import Self

from langchain_core.language_models import BaseChatModel

from donewhen.agent.testing.script import Replies
from donewhen.agent.testing.scripted import ScriptedModel
from donewhen.agent.testing.wire_handler import LoopbackServer, Wire, WireRequest


class WireServer:
    """Serves `POST /v1/chat/completions` and `GET /v1/models` on a free loopback port while it is entered.

    `script` is what `ScriptedModel` takes, where `fault(…)` is one more kind of reply, or any chat model. A
    script is checked at exit, as ScriptedModel does; a model is left to its owner. With `api_key`, other keys
    get a 401. What OpenAI's server refuses (a tool call without its result) gets a 400, and so does a request
    that the script has no reply to; an exception that the script raises becomes a 500.
    """

    def __init__(self, script: Replies | BaseChatModel, *, api_key: str | None = None, model: str = "scripted") -> None:
        brain = script if isinstance(script, BaseChatModel) else ScriptedModel(script)
        self._own = brain if brain is not script and isinstance(brain, ScriptedModel) else None
        self._wire = Wire(brain, model, api_key)
        self._server: LoopbackServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def base_url(self) -> str:
        """What a client takes as `base_url`; RuntimeError while nothing is served."""
        if self._server is None:
            raise RuntimeError("the server runs inside `with WireServer(…) as server:` only")
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def requests(self) -> list[WireRequest]:
        """Every request so far, refused ones too; keys are not kept."""
        return self._wire.requests

    def __enter__(self) -> Self:
        self._server = LoopbackServer(self._wire)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="wire")
        self._thread.start()
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        assert self._thread is not None
        self._wire.stopping.set()  # wakes what hangs or stalls
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = None
        if error is None and self._wire.errors:
            raise self._wire.errors[0]
        if self._own is not None:
            self._own.__exit__(type, error, trace)
