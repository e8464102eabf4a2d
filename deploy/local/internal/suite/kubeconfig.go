package suite

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"

	"binnacle/deploy/certs"
)

// writeKubeconfigs writes the kubeconfigs of all clients of the API server: the admin,
// kube-controller-manager, kube-scheduler and the other services. It also writes those with which
// the API server calls its webhooks.
func writeKubeconfigs(p paths, services []service, port int) error {
	layout, server := p.certs(), address(port)
	if err := writeKubeconfig(p.adminKubeconfig(), server, certs.AdminUser, layout.AdminTrust(), layout.Admin()); err != nil {
		return err
	}
	if err := writeKubeconfig(p.managerKubeconfig(), server, "system:kube-controller-manager", layout.AdminTrust(), layout.ControllerManager()); err != nil {
		return err
	}
	if err := writeKubeconfig(p.schedulerKubeconfig(), server, "system:kube-scheduler", layout.AdminTrust(), layout.Scheduler()); err != nil {
		return err
	}
	for _, s := range services {
		if s.name == apiserver {
			continue
		}
		if err := writeKubeconfig(p.kubeconfig(s.name), server, s.name, layout.TrustBundle(s.name, certs.ServingCA), layout.Client(s.name)); err != nil {
			return err
		}
		if !isWebhook(s.name) {
			continue
		}
		if err := writeKubeconfig(p.webhookKubeconfig(s.name), address(port+s.offset), apiserver, layout.TrustBundle(apiserver, certs.ServingCA), layout.WebhookClient()); err != nil {
			return err
		}
	}
	return nil
}

func address(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

func writeKubeconfig(path, server, user, ca string, client certs.Pair) error {
	text, err := clientcmd.Write(*certs.Kubeconfig(server, user, ca, client))
	if err != nil {
		return err
	}
	return writeFile(path, text)
}
