"""Secrets as files, as a kubelet mounts them: for each pod a folder that only this user reads."""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paternoster_operator.cluster.port import Key

Reader = Callable[[Key], Mapping[str, str] | None]


class MountedSecrets:
    """Writes what ``read`` gives of the Secrets that pods mount, and again when it changed."""

    def __init__(self, read: Reader, private: Path | None = None) -> None:
        """They come below ``private``, or where temporary files do."""
        self._read = read
        self._private = private
        self._root: Path | None = None
        self._mounted: dict[str, tuple[str, Mapping[str, Any]]] = {}
        """Namespace and spec of each pod."""

    def mount(self, pod: str, namespace: str, spec: Mapping[str, Any]) -> dict[str, str]:
        """Write the projected volumes of a pod; where its container sees each, and where it is on this machine."""
        self._mounted[pod] = namespace, spec
        self._write(pod)
        projected = {volume["name"] for volume in spec.get("volumes", ()) if "projected" in volume}
        mounts = spec["containers"][0].get("volumeMounts", ())
        return {
            mount["mountPath"]: str(self.folder_of(pod, mount["name"]))
            for mount in mounts
            if mount["name"] in projected
        }

    @property
    def temporary(self) -> dict[str, str]:
        """Environment in which a program leaves its temporary files there, too."""
        return {} if self._private is None else {"TMPDIR": str(self._private)}

    def unmount(self, pod: str) -> None:
        """Take its files away; a pod that has none is no error."""
        if self._mounted.pop(pod, None) is not None and self._root is not None:
            shutil.rmtree(self._root / pod, ignore_errors=True)

    def refresh(self) -> None:
        """Some Secret changed."""
        for pod in self._mounted:
            self._write(pod)

    def close(self) -> None:
        """Take everything away."""
        self._mounted.clear()
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None

    def folder_of(self, pod: str, volume: str) -> Path:
        """Where a volume of a pod is, whose files go with the pod."""
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="paternoster-secrets-", dir=self._private))
        return self._root / pod / volume

    def _write(self, pod: str) -> None:
        namespace, spec = self._mounted[pod]
        for volume in spec.get("volumes", ()):
            for source in volume.get("projected", {}).get("sources", ()):
                secret = source["secret"]
                data = self._read(Key(namespace, secret["name"])) or {}
                for item in secret["items"]:
                    write_privately(self.folder_of(pod, volume["name"]) / item["path"], data.get(item["key"]))


def write_privately(file: Path, content: str | None) -> None:
    """Replace ``file`` in one step, readable by this user alone; None takes it away."""
    # The mode is for the last folder of a path alone.
    file.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    if content is None:
        file.unlink(missing_ok=True)
        return
    partial = file.with_name(f".{file.name}.partial")
    partial.touch(mode=0o600)
    partial.write_text(content)
    partial.replace(file)
