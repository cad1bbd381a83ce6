"""Who answers: what a manifest and a row say of a chat model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ragbench.errors import ConfigError
from ragbench.llm import loop
from ragbench.llm.cassette import Cassette, canonical
from ragbench.llm.drivers import agreed_digest, driver_for
from ragbench.llm.failures import AWAY, CallError
from ragbench.llm.models import chat_model


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Provider, name, digest, options and window of a chat model; never its address or key."""

    provider: str
    model: str
    digest: str | None
    options: dict[str, Any]
    num_ctx: int | None
    hosts: int = 1
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what a manifest says."""
        return {name: getattr(self, name) for name in ("provider", "model", "digest", "options", "num_ctx", "hosts")}

    def row(self) -> dict[str, Any]:
        """Return what a row says."""
        options = {**self.options, **self.options.get("options", {})}
        digest = "not told" if self.digest == "" else self.digest
        facts = {"model": f"{self.provider}:{self.model}", "digest": digest, "num_ctx": self.num_ctx}
        return facts | {"temperature": options.get("temperature"), "seed": options.get("seed")}


def model_facts(model: Any, cassette: Cassette | None = None, *, ask_server: bool = True) -> ModelFacts:
    """Return who a chat model is (a name, an object, or one model on several hosts).

    The server is not asked without ``ask_server``, and where the cassette is in replay mode; then the digest is the one
    on the cassette. ModelError when no server answers and nothing says which weights are meant, or where the hosts have
    different ones.
    """
    models = [model] if isinstance(model, str) or not isinstance(model, Sequence) else model
    drivers = [driver_for(chat_model(each) if isinstance(each, str) else each) for each in models]
    first = drivers[0]
    if len({canonical([d.provider, d.name, d.options()]) for d in drivers}) > 1:
        raise ConfigError(
            f"several hosts with different models or options: {', '.join(d.model for d in drivers)}",
            "one model with the same options on every host",
            "give the other model a name of its own on the axis",
        )
    digest, away = first.pinned_digest, None
    if ask_server and not (cassette is not None and cassette.mode == "replay"):
        found: list[str | None] = []
        for driver in drivers:
            try:
                found.append(loop.run(driver.digest()))
            except CallError as error:
                if error.kind not in AWAY:
                    raise
                found.append(None)
                away = error
        told = agreed_digest(drivers, found)  # "": a server that says nothing of its weights
        digest = told or (told if digest is None else digest)
    if digest is None and cassette is not None and cassette.mode != "off":
        digest = cassette.choose_digest(first.provider, first.name, None)
    if digest is None and away is not None:
        raise away
    secrets = tuple(secret for driver in drivers for secret in driver.secrets)
    return ModelFacts(first.provider, first.name, digest, first.options(), first.num_ctx, len(drivers), secrets)
