"""What is to be deployed: a model, its server, and whether it speculates with DSpark."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from dspark_json import __version__
from dspark_json.errors import InvalidOptionError, MissingOptionError
from dspark_json.options import hook_values, is_key

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DRAFTS", "Backend", "Deployment", "Source"]

Backend = Literal["vLLM", "SGLang"]
Source = Literal["huggingface", "model_scope", "local_path"]

# Published DSpark draft models, by the model that they draft for.
DRAFTS: Final = {
    "Qwen/Qwen3-4B": "deepseek-ai/dspark_qwen3_4b_block7",
    "Qwen/Qwen3-8B": "deepseek-ai/dspark_qwen3_8b_block7",
    "google/gemma-4-12B-it": "deepseek-ai/dspark_gemma4_12b_block7",
}


@dataclass(frozen=True, slots=True)
class Deployment:
    """A deployment as it was asked for.

    ``model`` is a repository's id or, from ``local_path``, a path on the workers. ``dspark`` turns speculation on,
    ``speculative_tokens`` drafts that many at once (None: as many as the draft model is made for), ``draft`` names the
    draft model. ``arguments`` are the server's own, by name without dashes. ``package`` is what pip installs there.
    """

    model: str
    source: Source
    name: str
    backend: Backend = "vLLM"
    backend_version: str | None = None
    replicas: int = 1
    cluster_id: int | None = None
    gpus: tuple[str, ...] = ()
    gpus_per_replica: int | None = None
    dspark: bool = False
    speculative_tokens: int | None = None
    draft: str | None = None
    package: str = f"dspark-json=={__version__}"
    arguments: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse what can't be meant; ``OptionError``."""
        if not self.model.strip():
            raise MissingOptionError("no model is named", remedy="Name one: --model Qwen/Qwen3-8B.")
        if self.source == "local_path" and not self.model.startswith("/"):
            raise InvalidOptionError(f'"{self.model}" is no absolute path', remedy="Give the path on the workers.")
        if not self.name:
            raise InvalidOptionError(f'no name can be made of "{self.model}"', remedy="Give one with --name.")
        if re.search(r"\s", self.package) or not self.package:
            raise InvalidOptionError(
                f'the package "{self.package}" has blanks, at which GPUStack would cut it',
                remedy="Give a name with a version, or the address of a wheel.",
            )
        if not self.dspark and (self.draft is not None or self.speculative_tokens is not None):
            raise InvalidOptionError("a draft is given, but not --dspark", remedy="Add --dspark.")
        if self.dspark and any(name.replace("_", "-").startswith("speculative") for name in self.arguments):
            raise InvalidOptionError(
                "both --dspark and a speculative argument of the server's own are given", remedy="Give one of them."
            )
        hook_values(self.environment)  # a bad value would keep the server from starting
        key = self.environment.get("DSPARK_API_KEY")
        if key is not None and not is_key(key):
            raise InvalidOptionError(
                "DSPARK_API_KEY is not a key: allowed are visible ASCII characters, without blanks (its value is not "
                "shown)",
                remedy="Generate one with `openssl rand -hex 32`.",
            )

    @property
    def draft_model(self) -> str | None:
        """The draft model: the one given, else the one published for the model; None: the model's own weights."""
        return self.draft or DRAFTS.get(self.model)
