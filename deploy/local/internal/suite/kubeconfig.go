package suite

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"

	"binnacle/deploy/certs"
)

// writeKubeconfigs writes the kubeconfigs of the admin, of each controller of Kubernetes, of each
// service that is a client of the API server, and of each service that the API server calls.
func writeKubeconfigs(p paths, services []service, port int) error {
	l, server := p.certs(), address(port)
	if err := writeKubeconfig(p.adminKubeconfig(), server, certs.AdminUser, l.AdminTrust(), l.Admin()); err != nil {
		return err
	}
	if err := writeKubeconfig(p.managerKubeconfig(), server, "system:kube-controller-manager", l.AdminTrust(), l.ControllerManager()); err != nil {
		return err
	}
	if err := writeKubeconfig(p.schedulerKubeconfig(), server, "system:kube-scheduler", l.AdminTrust(), l.Scheduler()); err != nil {
		return err
	}
	for _, s := range services {
		if s.name == apiserver {
			continue
		}
		if err := writeKubeconfig(p.kubeconfig(s.name), server, s.name, l.Trust(s.name, certs.ServingCA), l.Client(s.name)); err != nil {
			return err
		}
		if !isAuthority(s.name) {
			continue
		}
		if err := writeKubeconfig(p.webhookKubeconfig(s.name), address(port+s.offset), apiserver, l.Trust(apiserver, certs.ServingCA), l.WebhookClient()); err != nil {
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
