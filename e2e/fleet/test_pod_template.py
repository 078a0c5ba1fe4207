"""What a manifest adds to its pods is there, what is the operator's cannot be taken; and a model from a claim."""

from typing import Any

import pytest

from paternoster_e2e.kubectl import CommandError, Document, until
from paternoster_e2e.objects import model_claim

pytestmark = pytest.mark.timeout(600)

IMAGE = "paternoster-gateway:0.2.0"
"""The node has it, and a Python is in it."""
WRITE = """
import pathlib, signal
signal.signal(signal.SIGTERM, lambda *_: exit())  # the first process of a container is not ended by it otherwise
pathlib.Path("/notes/said").write_text("from beside")
signal.pause()
"""
NOTES = {"name": "notes", "mountPath": "/notes"}
SIDECAR: Document = {
    "name": "notes",
    "image": IMAGE,
    "command": ["python3", "-c", WRITE],
    "volumeMounts": [NOTES],
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
TEMPLATE: Document = {
    "metadata": {"labels": {"team": "search"}, "annotations": {"example.org/note": "theirs"}},
    "spec": {
        "containers": [
            {"name": "engine", "env": [{"name": "LIFT", "value": "up"}], "volumeMounts": [NOTES]},
            SIDECAR,
        ],
        "volumes": [{"name": "notes", "emptyDir": {"sizeLimit": "1Mi"}}],
    },
}
OF_OPERATOR: dict[str, Document] = {
    "image of podTemplate's container engine must be unset: use engine.image": {
        "spec": {"containers": [{"name": "engine", "image": IMAGE}]}
    },
    "terminationGracePeriodSeconds of podTemplate must be unset: use drain.timeoutSeconds": {
        "spec": {"terminationGracePeriodSeconds": 1}
    },
    "labels of podTemplate must be others than": {"metadata": {"labels": {"app.kubernetes.io/instance": "other"}}},
    "volumes of podTemplate must have other names than": {
        "spec": {"volumes": [{"name": "admin-keys", "emptyDir": {}}]}
    },
}


def test_what_a_manifest_adds_is_in_its_pods(fleet: Any) -> None:
    fleet.apply(podTemplate=TEMPLATE)
    fleet.until_ready()
    [pod] = fleet.pods()
    assert pod["metadata"]["labels"]["team"] == "search"
    assert pod["metadata"]["annotations"]["example.org/note"] == "theirs"
    assert [each["name"] for each in pod["spec"]["containers"]] == ["engine", "notes"]
    script = "import os, pathlib; print(os.environ['LIFT'], pathlib.Path('/notes/said').read_text())"
    where = (pod["metadata"]["name"], f"--namespace={fleet.namespace}", "--container=engine")
    output = fleet.kubectl("exec", *where, "--", "python3", "-c", script)
    assert output.split() == ["up", "from", "beside"]
    assert fleet.chat().status_code == 200

    for words, template in OF_OPERATOR.items():
        with pytest.raises(CommandError) as refused:
            fleet.apply(podTemplate=template)
        assert words in str(refused.value)

    fleet.apply(podTemplate={**TEMPLATE, "spec": {**TEMPLATE["spec"], "affinity": {"nodeAfinity": {}}}})
    message = fleet.until_stalled("InvalidSpec")
    assert message.startswith("spec.podTemplate.spec.affinity.nodeAfinity: unknown field: allowed here: nodeAffinity")
    assert [each["metadata"]["uid"] for each in fleet.pods()] == [pod["metadata"]["uid"]], "no pod was changed"
    assert fleet.chat().status_code == 200
    fleet.apply(podTemplate=TEMPLATE)
    fleet.until_ready()
    assert [each["metadata"]["uid"] for each in fleet.pods()] == [pod["metadata"]["uid"]]


def test_a_model_on_a_claim(fleet: Any, model_on_volume: str) -> None:
    fleet.apply(model={"source": model_on_volume})
    assert "there is no PersistentVolumeClaim models" in fleet.until_stalled("VolumeClaimNotFound")
    fleet.kubectl.apply(model_claim(fleet.namespace))
    # The scheduler looks at the pod again when the claim comes, or after some time.
    fleet.until_ready(seconds=400)
    assert fleet.chat().status_code == 200
    [pod] = fleet.pods()
    [mount] = [each for each in pod["spec"]["containers"][0]["volumeMounts"] if each["name"] == "model"]
    assert (mount["mountPath"], mount["readOnly"]) == ("/mnt/model", True)

    fleet.apply(model={"source": "pvc://models/none.gguf"})
    until(lambda: "/mnt/model/none.gguf" in fleet.until_stalled("ModelSourceFailed", ready="True"), "it is named", 240)
