"""Messages of nodes, registries and admission that have a reason and a next step of their own."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.operator.status.failing_pods import NOW, REFUSED, crashing, deployment, ended, unscheduled, waiting

from paternoster_operator.api.v1alpha1 import LLMDeployment
from paternoster_operator.observed import Observed
from paternoster_operator.report.causes.cause import StallReason, explain_stall
from paternoster_operator.report.causes.stall_reason import find_stall_reason

Resource = Callable[..., LLMDeployment]
RUNC = "failed to create containerd task: OCI runtime create failed: runc create failed: unable to start container: "
PULL = 'failed to pull and unpack image "r.example/e:1": failed to resolve reference "r.example/e:1": '


@pytest.mark.parametrize(
    ("found", "reason", "step"),
    [
        (
            waiting(
                "CreateContainerConfigError",
                'container has runAsNonRoot and image will run as root (pod: "ride-1_ns(1)", container: engine)',
            ),
            "ContainerCannotRun",
            "set runAsUser in podTemplate",
        ),
        (
            waiting(
                "CreateContainerConfigError",
                "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
            ),
            "ContainerCannotRun",
            "a numeric user",
        ),
        (
            waiting(
                "CreateContainerConfigError", 'failed to prepare subPath for volumeMount "m" of container "engine"'
            ),
            "VolumeMountFailed",
            "create the subPath in the volume m",
        ),
        (
            waiting("CreateContainerError", 'cannot load seccomp profile "/var/lib/kubelet/seccomp/x.json": open ...'),
            "ContainerCannotRun",
            "load the profile on the node",
        ),
        (
            waiting("CreateContainerError", "failed to generate apparmor spec opts: apparmor profile not found x"),
            "ContainerCannotRun",
            "load the profile on the node",
        ),
        (
            waiting("RunContainerError", RUNC + "container init was OOM-killed (memory limit too low?)"),
            "OOMKilled",
            "raise resources.limits.memory",
        ),
        (
            crashing(ended(128, RUNC + "container init was OOM-killed (memory limit too low?)", "StartError")),
            "OOMKilled",
            "raise resources.limits.memory",
        ),
        (
            crashing(ended(128, RUNC + 'exec: "paternoster": executable file not found in $PATH', "StartError")),
            "ContainerCannotRun",
            "name an image that can run paternoster",
        ),
        (
            crashing(ended(128, RUNC + "exec /usr/bin/paternoster: exec format error", "StartError")),
            "ContainerCannotRun",
            "for the processor of the node",
        ),
        (
            crashing(ended(128, RUNC + "mkdirat /models/cache: read-only file system", "StartError")),
            "ContainerCannotRun",
            "outside of what is read-only",
        ),
        (
            waiting(
                "InvalidImageName",
                'Failed to apply default image tag "UP/e": couldn\'t parse image name "UP/e": invalid reference format',
            ),
            "ImagePullFailed",
            "correct the image's name",
        ),
        (
            waiting("ErrImageNeverPull", 'Container image "e:1" is not present with pull policy of Never'),
            "ImagePullFailed",
            "change imagePullPolicy",
        ),
        (waiting("RegistryUnavailable", "r.example: 503 Service Unavailable"), "ImagePullFailed", "the registry runs"),
        (
            waiting("ErrImagePull", PULL + "no match for platform in manifest: not found"),
            "ImagePullFailed",
            "for the processor of the node",
        ),
        (
            waiting("ErrImagePull", PULL + "tls: failed to verify certificate: x509: unknown authority"),
            "ImagePullFailed",
            "trust the registry's certificate",
        ),
        (
            waiting("ErrImagePull", PULL + "http: server gave HTTP response to HTTPS client"),
            "ImagePullFailed",
            "allow HTTP",
        ),
        (waiting("ErrImagePull", PULL + "429 Too Many Requests: toomanyrequests"), "ImagePullFailed", "limits pulls"),
        (waiting("ErrImagePull", "write /var/lib/x: no space left on device"), "ImagePullFailed", "free space"),
        (waiting("ErrImagePull", PULL + "no basic auth credentials"), "ImagePullFailed", "imagePullSecrets"),
        (
            unscheduled(
                '0/3 nodes are available: persistentvolumeclaim "m" bound to non-existent persistentvolume "pvc-1". '
                "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
            ),
            "VolumeClaimUnbound",
            "delete and create the claim m",
        ),
    ],
)
def test_what_nodes_say_has_a_next_step(resource: Resource, found: dict[str, Any], reason: str, step: str) -> None:
    stall = find_stall_reason(Observed.from_cluster(None, [found]), resource().spec, NOW)
    assert stall is not None
    assert stall.reason == reason
    assert step in stall.message.rpartition("; ")[2]


@pytest.mark.parametrize(
    ("message", "reason", "step"),
    [
        (
            'pods "x" is forbidden: failed quota: compute: must specify limits.cpu for: engine',
            "QuotaExceeded",
            "set in resources what the quota compute names",
        ),
        (
            'pods "x" is forbidden: cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000',
            "PodCreationFailed",
            "ask for what the LimitRange allows",
        ),
        (
            "pods \"x\" is forbidden: ValidatingAdmissionPolicy 'limits' with binding 'all' denied request: no",
            "PodCreationFailed",
            "ask for what the policy limits allows",
        ),
    ],
)
def test_what_quotas_and_policies_say(resource: Resource, message: str, reason: str, step: str) -> None:
    observed = Observed.from_cluster(deployment(REFUSED | {"message": message}), [])
    stall = find_stall_reason(observed, resource().spec, NOW)
    assert stall is not None
    assert (stall.reason, stall.message) == (reason, f"{message}; {step}")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("PodSandboxFailed", 'plugin type="calico" failed (add): error getting ClusterInformation: unauthorized'),
        ("PodSandboxFailed", "Get https://10.96.0.1:443: dial tcp 10.96.0.1:443: connect: connection refused"),
        ("VolumeMountFailed", "mount.nfs: Failed to resolve server nfs: no such host"),
        ("VolumeMountFailed", "rpc error: code = NotFound desc = volume vol-1: not found"),
        ("PodCreationFailed", "Internal error occurred: etcdserver: i/o timeout"),
        ("DevicesNotPrepared", "driver gpu: dial tcp: connection refused"),
    ],
)
def test_what_is_no_registrys_has_no_step_about_registries(reason: str, message: str) -> None:
    assert explain_stall(reason, message) == StallReason(reason, message)


def test_the_log_of_a_container_that_ran_is_not_taken_for_its_runtime(resource: Resource) -> None:
    found = crashing(ended(1, 'RuntimeError: secret "x" not found: exec format error'))
    stall = find_stall_reason(Observed.from_cluster(None, [found]), resource().spec, NOW)
    assert stall is not None
    assert (stall.reason, stall.message.rpartition(": ")[2]) == ("EngineCrashLoop", "exec format error")
