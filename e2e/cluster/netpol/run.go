// Package netpol is a controller of NetworkPolicies for a cluster of one node: it enforces them by nftables, all of
// networking.k8s.io/v1 but IPv6. As with most controllers, a pod is under its policies once the API server knows its
// address, a moment after its containers began.
package netpol

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const retry = time.Second

// NewCommand returns the program; it runs until it is stopped, and leaves its rules in place.
func NewCommand() *cobra.Command {
	command := &cobra.Command{Use: "kube-netpol", Short: "Enforce NetworkPolicies on this node", SilenceUsage: true}
	kubeconfig := command.Flags().String("kubeconfig", "", "how to reach the API server")
	command.RunE = func(command *cobra.Command, _ []string) error { return run(command.Context(), *kubeconfig) }
	return command
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	namespaces, pods := factory.Core().V1().Namespaces(), factory.Core().V1().Pods()
	policies := factory.Networking().V1().NetworkPolicies()
	// Many changes at once cost one look.
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { tell() },
		UpdateFunc: func(_, _ any) { tell() },
		DeleteFunc: func(any) { tell() },
	}
	for _, informer := range []cache.SharedIndexInformer{namespaces.Informer(), pods.Informer(), policies.Informer()} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	tell()
	enforced := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		var cluster Cluster
		cluster.Namespaces, _ = namespaces.Lister().List(labels.Everything())
		cluster.Pods, _ = pods.Lister().List(labels.Everything())
		cluster.Policies, _ = policies.Lister().List(labels.Everything())
		rules, err := Rules(cluster)
		if err == nil && rules != enforced {
			if err = load(ctx, rules); err == nil {
				enforced = rules
			}
		}
		if err != nil {
			klog.ErrorS(err, "policies are not enforced as they stand")
			time.AfterFunc(retry, tell)
		}
	}
}

func load(ctx context.Context, rules string) error {
	nft := exec.CommandContext(ctx, "nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules)
	if said, err := nft.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, said)
	}
	return nil
}
