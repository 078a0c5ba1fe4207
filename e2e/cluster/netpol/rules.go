package netpol

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Cluster is what rules are made of.
type Cluster struct {
	Namespaces []*core.Namespace
	Pods       []*core.Pod
	Policies   []*networking.NetworkPolicy
}

// table is replaced as a whole: nft carries a file out in one transaction, so no packet meets half of it. The first line
// makes the second hold where there is no table yet. An accept ends one hook only, so a packet between two pods needs one
// of each direction. Packets that the node itself sends pass neither: a policy does not keep kubelet from its probes.
const table = `table ip network_policy
delete table ip network_policy
table ip network_policy {
  chain from_pod_to_pod { type filter hook forward priority 0; policy accept; jump egress; }
  chain from_pod_to_node { type filter hook input priority 0; policy accept; jump egress; }
  chain to_pod { type filter hook forward priority 1; policy accept; jump ingress; }
  chain egress {
%s  }
  chain ingress {
%s  }
}
`

// side is one end of a packet: an nft match ("" is anybody), and the pods it has, whose ports have names.
type side struct {
	match string
	pods  []*core.Pod
}

// Rules returns the file for nft that enforces every policy of c.
func Rules(c Cluster) (string, error) {
	egress, err := c.chain(networking.PolicyTypeEgress, "saddr")
	if err != nil {
		return "", err
	}
	ingress, err := c.chain(networking.PolicyTypeIngress, "daddr")
	return fmt.Sprintf(table, egress, ingress), err
}

// chain lets through what is not under a policy of that direction, then what a policy allows, and drops the rest.
func (c Cluster) chain(direction networking.PolicyType, own string) (string, error) {
	var isolated []*core.Pod
	var allowed []string
	for _, policy := range c.Policies {
		if !slices.Contains(policy.Spec.PolicyTypes, direction) {
			continue
		}
		selected, err := c.selected(policy.Namespace, nil, &policy.Spec.PodSelector)
		if err != nil {
			return "", err
		}
		isolated = append(isolated, selected...)
		subjects := side{among(own, selected), selected}
		if direction == networking.PolicyTypeEgress {
			for _, rule := range policy.Spec.Egress {
				peers, err := c.peers(policy.Namespace, rule.To, "daddr")
				if err != nil {
					return "", err
				}
				for _, peer := range peers {
					allowed = append(allowed, accepts(subjects, peer, rule.Ports)...)
				}
			}
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			peers, err := c.peers(policy.Namespace, rule.From, "saddr")
			if err != nil {
				return "", err
			}
			for _, peer := range peers {
				allowed = append(allowed, accepts(peer, subjects, rule.Ports)...)
			}
		}
	}
	if len(isolated) == 0 {
		return "", nil
	}
	var itself []string
	for _, address := range addresses(isolated) {
		itself = append(itself, address+" . "+address)
	}
	first := []string{
		"ct state established,related accept",
		strings.Replace(among(own, isolated), own, own+" !=", 1) + " accept",
		fmt.Sprintf("ip saddr . ip daddr { %s } accept", strings.Join(itself, ", ")),
	}
	slices.Sort(allowed)
	lines := slices.Concat(first, slices.Compact(allowed), []string{"drop"})
	return "    " + strings.Join(lines, "\n    ") + "\n", nil
}

// accepts returns the rules that let packets from one side to the other on these ports; without ports, on all.
func accepts(from, to side, ports []networking.NetworkPolicyPort) []string {
	if len(ports) == 0 {
		return []string{strings.Join(strings.Fields(from.match+" "+to.match+" accept"), " ")}
	}
	var rules []string
	for _, port := range ports {
		protocol := core.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		word := strings.ToLower(string(protocol))
		add := func(to string, match string) {
			rules = append(rules, strings.Join(strings.Fields(from.match+" "+to+" "+match+" accept"), " "))
		}
		switch {
		case port.Port == nil:
			add(to.match, "meta l4proto "+word)
		case port.Port.Type == intstr.String:
			for number, pods := range named(to.pods, protocol, port.Port.StrVal) {
				add(among("daddr", pods), fmt.Sprintf("%s dport %d", word, number))
			}
		case port.EndPort != nil:
			add(to.match, fmt.Sprintf("%s dport %d-%d", word, port.Port.IntVal, *port.EndPort))
		default:
			add(to.match, fmt.Sprintf("%s dport %d", word, port.Port.IntVal))
		}
	}
	return rules
}

// peers returns who a rule names; without any peer that is everybody.
func (c Cluster) peers(namespace string, given []networking.NetworkPolicyPeer, end string) ([]side, error) {
	if len(given) == 0 {
		return []side{{"", c.addressed()}}, nil
	}
	var sides []side
	for _, peer := range given {
		if peer.IPBlock != nil {
			block, err := netip.ParsePrefix(peer.IPBlock.CIDR)
			if err != nil {
				return nil, err
			}
			if !block.Addr().Is4() {
				continue
			}
			match := fmt.Sprintf("ip %s %s", end, block)
			if except := peer.IPBlock.Except; len(except) > 0 {
				match += fmt.Sprintf(" ip %s != { %s }", end, strings.Join(except, ", "))
			}
			sides = append(sides, side{match, c.within(block)})
			continue
		}
		pods, err := c.selected(namespace, peer.NamespaceSelector, peer.PodSelector)
		if err != nil {
			return nil, err
		}
		if len(pods) > 0 {
			sides = append(sides, side{among(end, pods), pods})
		}
	}
	return sides, nil
}

// selected returns the pods of one namespace, or of those that inNamespaces selects; no pods selector is all of them.
func (c Cluster) selected(namespace string, inNamespaces, pods *meta.LabelSelector) ([]*core.Pod, error) {
	wanted := labels.Everything()
	if pods != nil {
		var err error
		if wanted, err = meta.LabelSelectorAsSelector(pods); err != nil {
			return nil, err
		}
	}
	names := []string{namespace}
	if inNamespaces != nil {
		selector, err := meta.LabelSelectorAsSelector(inNamespaces)
		if err != nil {
			return nil, err
		}
		names = nil
		for _, known := range c.Namespaces {
			if selector.Matches(labels.Set(known.Labels)) {
				names = append(names, known.Name)
			}
		}
	}
	var found []*core.Pod
	for _, pod := range c.addressed() {
		if slices.Contains(names, pod.Namespace) && wanted.Matches(labels.Set(pod.Labels)) {
			found = append(found, pod)
		}
	}
	return found, nil
}

// addressed returns the pods that have an address of their own now.
func (c Cluster) addressed() []*core.Pod {
	var found []*core.Pod
	for _, pod := range c.Pods {
		address, err := netip.ParseAddr(pod.Status.PodIP)
		ended := pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed
		if err == nil && address.Is4() && !pod.Spec.HostNetwork && !ended {
			found = append(found, pod)
		}
	}
	return found
}

func (c Cluster) within(block netip.Prefix) []*core.Pod {
	return slices.DeleteFunc(c.addressed(), func(pod *core.Pod) bool {
		return !block.Contains(netip.MustParseAddr(pod.Status.PodIP))
	})
}

// named returns the pods whose containers give that name to a port, by the port's number.
func named(pods []*core.Pod, protocol core.Protocol, name string) map[int32][]*core.Pod {
	found := map[int32][]*core.Pod{}
	for _, pod := range pods {
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			for _, port := range container.Ports {
				if port.Name == name && port.Protocol == protocol {
					found[port.ContainerPort] = append(found[port.ContainerPort], pod)
				}
			}
		}
	}
	return found
}

// among matches one end of a packet against the addresses of pods; against none where there are no pods.
func among(end string, pods []*core.Pod) string {
	if len(pods) == 0 {
		return fmt.Sprintf("ip %s 0.0.0.0", end)
	}
	return fmt.Sprintf("ip %s { %s }", end, strings.Join(addresses(pods), ", "))
}

func addresses(pods []*core.Pod) []string {
	var found []string
	for _, pod := range pods {
		found = append(found, pod.Status.PodIP)
	}
	slices.Sort(found)
	return slices.Compact(found)
}
