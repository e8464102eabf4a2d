package suite

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"binnacle/deploy/certs"
	"binnacle/libs/serving/tlsfiles"
)

// writeKubeconfigs writes the kubeconfigs of all clients of the API server: the admin,
// kube-controller-manager, kube-scheduler and the other services. It also writes those with which
// the API server calls its webhooks.
func writeKubeconfigs(files paths, services []service, port int) error {
	layout, server := files.certs(), localURL(port)
	if err := writeKubeconfig(files.adminKubeconfig(), server, certs.AdminUser, layout.AdminTrust(), layout.Admin()); err != nil {
		return err
	}
	if err := writeKubeconfig(files.managerKubeconfig(), server, "system:kube-controller-manager", layout.AdminTrust(),
		layout.ControllerManager()); err != nil {
		return err
	}
	if err := writeKubeconfig(files.schedulerKubeconfig(), server, "system:kube-scheduler", layout.AdminTrust(),
		layout.Scheduler()); err != nil {
		return err
	}
	for _, svc := range services {
		if svc.name == apiserver {
			continue
		}
		if err := writeKubeconfig(files.kubeconfig(svc.name), server, svc.name, layout.TrustBundle(svc.name, certs.ServingCA),
			layout.Client(svc.name)); err != nil {
			return err
		}
		if !isWebhook(svc.name) {
			continue
		}
		if err := writeKubeconfig(files.webhookKubeconfig(svc.name), localURL(port+svc.offset), apiserver,
			layout.TrustBundle(apiserver, certs.ServingCA), layout.WebhookClient()); err != nil {
			return err
		}
	}
	return nil
}

func localURL(port int) string { return fmt.Sprintf("https://127.0.0.1:%d", port) }

func writeKubeconfig(path, server, user, ca string, client certs.Pair) error {
	data, err := clientcmd.Write(*certs.Kubeconfig(server, user, ca, client))
	if err != nil {
		return err
	}
	return writeFile(path, data)
}

// viewerUser is the user of the console's link.
const viewerUser = "binnacle-viewer"

// writeConsoleLink creates a token for users of the console, once, and the link that contains it.
// Both files are accessible to this user only.
func writeConsoleLink(files paths, url string) error {
	line, err := os.ReadFile(files.tokenFile())
	if errors.Is(err, fs.ErrNotExist) {
		// The permissions of monitoring: reading metrics and health.
		line = []byte(rand.Text() + "," + viewerUser + "," + viewerUser + ",\"system:monitoring\"\n")
		err = tlsfiles.WriteFile(files.tokenFile(), line, 0o600)
	}
	if err != nil {
		return err
	}
	token, remaining, _ := strings.Cut(string(line), ",")
	if !strings.HasPrefix(remaining, viewerUser+",") {
		return fmt.Errorf("%s does not begin with the token of %s", files.tokenFile(), viewerUser)
	}
	// Browsers do not send the part after #.
	return writeFile(files.consoleLink(), []byte(url+"/#token="+token+"\n"))
}
