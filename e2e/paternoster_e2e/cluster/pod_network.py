"""The pods' network on this machine: kube-proxy, what enforces NetworkPolicies, and DNS, once for all nodes."""

import subprocess
from pathlib import Path

from paternoster_e2e.cluster.network import FIRST, NODE_ADDRESS, POD_RANGE
from paternoster_e2e.cluster.pki import Pki
from paternoster_e2e.cluster.processes import Service

COREDNS = """\
. {{
    bind {address}
    errors
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
    }}
}}
"""


class PodNetwork:
    """Three services below ``folder``: all nodes of a cluster have one network namespace, and one set of rules."""

    def __init__(self, bin_folder: Path, folder: Path, pki: Pki) -> None:
        logs = folder / "logs"
        # fmt: off
        self._proxy = Service(
            "kube-proxy",
            [
                bin_folder / "kube-proxy", f"--kubeconfig={pki.kubeconfig('proxy')}", "--proxy-mode=iptables",
                f"--cluster-cidr={POD_RANGE}", f"--hostname-override={FIRST.name}", "--conntrack-max-per-core=0",
                "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
            ],
            logs / "kube-proxy.log",
        )
        # fmt: on
        self._policies = Service(
            "kube-netpol",
            [bin_folder / "kube-netpol", f"--kubeconfig={pki.kubeconfig('admin')}"],
            logs / "kube-netpol.log",
        )
        corefile = folder / "Corefile"
        corefile.write_text(COREDNS.format(address=NODE_ADDRESS, kubeconfig=pki.kubeconfig("admin")))
        self._dns = Service("coredns", [bin_folder / "coredns", "-conf", corefile], logs / "coredns.log")

    def start(self) -> None:
        """Returns when the rules of NetworkPolicies are there."""
        self._dns.start()
        self._proxy.start()
        self._policies.start()
        self._policies.until(_has_rules)

    def stop(self) -> None:
        for service in (self._policies, self._proxy, self._dns):
            service.stop()


def _has_rules() -> bool:
    return subprocess.run(["nft", "list", "table", "ip", "network_policy"], capture_output=True).returncode == 0
