"""Calls to the servers of ``local``: the OpenAI protocol, to wherever the child process listens now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx

from ragbench.llm.driver_openai import OpenAIDriver

if TYPE_CHECKING:
    from ragbench.llm.local import Server


class ToServer(httpx.HTTPTransport):
    """Sends every request to the server's address of the moment; the first one starts it."""

    def __init__(self, server: Server) -> None:
        super().__init__(trust_env=False)
        self._server = server

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(host="127.0.0.1", port=self._server.port())
        return super().handle_request(request)


class AsyncToServer(httpx.AsyncHTTPTransport):
    """The same for an event loop."""

    def __init__(self, server: Server) -> None:
        super().__init__(trust_env=False)
        self._server = server

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        server = self._server
        port = server.port() if server.pid else await asyncio.to_thread(server.port)
        request.url = request.url.copy_with(host="127.0.0.1", port=port)
        return await super().handle_async_request(request)


class LocalDriver(OpenAIDriver):
    """A model of ``local``: the file's sha256 is its digest."""

    provider = "gguf"
    slots = 1

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._server: Server = model._server

    async def digest(self) -> str:
        return await asyncio.to_thread(self._server.file.checked, self.pinned_digest)

    async def context_length(self) -> int | None:
        """Return the longest context the model was made for."""
        return (await self.get_json("/models"))["data"][0]["meta"]["n_ctx_train"]

    def _new_client(self) -> httpx.AsyncClient:
        # One transport per client, as each belongs to one event loop. A proxy has no business on the way to loopback.
        self._client_options = {"transport": AsyncToServer(self._server), "trust_env": False}
        return super()._new_client()
