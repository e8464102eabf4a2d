package containers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

// TestPartsAreSwappedByConfiguration replaces parts of a running composition by configuration only.
func TestPartsAreSwappedByConfiguration(t *testing.T) {
	requireForm(t, more)
	c := startComposition(t, "swap")
	t.Run("identities", func(t *testing.T) { checkOtherTokenWebhook(t, c) })
	t.Run("controllers", func(t *testing.T) { checkSeparateControllers(t, c) })
}

// runContainer runs an additional container with the same restrictions as those of the compose
// file.
func (c *composition) runContainer(t *testing.T, name, program string, mounts []string, args ...string) {
	t.Helper()
	// The labels let them be removed with the others.
	all := []string{
		"run", "--detach", "--name=" + c.project + "-" + name, "--network=" + c.networkName(suiteNetwork), "--network-alias=" + name,
		"--label=" + projectLabel + "=" + c.project, "--label=" + serviceLabel + "=" + name,
		"--user=" + c.containerUser(t), "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges:true",
	}
	for _, m := range mounts {
		all = append(all, "--volume="+m)
	}
	mustDocker(t, append(append(all, imageOf(program)), args...)...)
}

// containerUser returns the user of the composition's containers.
func (c *composition) containerUser(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(mustDocker(t, "inspect", "--format={{.Config.User}}", c.mustContainer("apiserver-1")))
}

// writeFile writes a file that containers can read and returns its path.
func (c *composition) writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(c.state, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubeconfigFor writes a kubeconfig for a service that uses a certificate pair of its own folder.
func (c *composition) kubeconfigFor(t *testing.T, name, server, pair string) string {
	t.Helper()
	return c.writeFile(t, name, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {server: %q, certificate-authority: /certs/serving-ca.crt}
users:
- name: u
  user: {client-certificate: /certs/%s.crt, client-key: /certs/%s.key}
contexts:
- name: x
  context: {cluster: c, user: u}
current-context: x
`, server, pair, pair))
}

// checkOtherTokenWebhook points the API servers at another token webhook. Its tokens are accepted,
// and tokens of the former webhook are rejected.
func checkOtherTokenWebhook(t *testing.T, c *composition) {
	admin := c.adminClient("apiserver-1")
	token, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil { // no controller creates the default account
		if _, err = admin.CoreV1().ServiceAccounts("default").Create(t.Context(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err == nil {
			token, err = admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default",
				&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	const ada = "adas-token-0123456789"
	username := func(server, bearer string) (string, error) {
		config := c.clientConfig(server, "")
		config.BearerToken = bearer
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return "", err
		}
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(),
			&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return review.Status.UserInfo.Username, nil
	}
	requireUser := func(server, bearer, want string) {
		t.Helper()
		harness.Eventually(t, waitTimeout, "the identity at "+server, func() error {
			got, err := username(server, bearer)
			if want == "" && err != nil && strings.Contains(err.Error(), "Unauthorized") {
				return nil
			}
			if err != nil || got != want {
				return fmt.Errorf("%q, %v", got, err)
			}
			return nil
		})
	}
	const account = "system:serviceaccount:default:default"
	requireUser("apiserver-1", token.Status.Token, account)
	requireUser("apiserver-1", ada, "")
	// The same program with another configuration: a token file and no service accounts. Its
	// certificate has the name authn-webhook-0.
	tokens := c.writeFile(t, "tokens.csv", ada+",ada,uid-1,\"crew\"\n")
	c.runContainer(t, "authn-webhook-0", "authn-webhook",
		[]string{c.certificate("authn-webhook") + ":/certs:ro", tokens + ":/tokens.csv:ro",
			c.kubeconfigFor(t, "other-authn.kubeconfig", "https://apiserver:6443", "authn-webhook-client") + ":/kubeconfig:ro"},
		"--secure-port=6444", "--tls-cert-file=/certs/authn-webhook.crt",
		"--tls-private-key-file=/certs/authn-webhook.key", "--client-ca-file=/certs/client-ca.crt",
		"--kubeconfig=/kubeconfig", "--allowed-client-names=system:binnacle:apiserver", "--token-auth-file=/tokens.csv",
		"--api-audiences=https://kubernetes.default.svc")
	there := c.kubeconfigFor(t, "to-other-authn.kubeconfig", "https://authn-webhook-0:6444", "apiserver-webhook-client")
	c.composeEdits = append(c.composeEdits, "- ../manifests/base/kubeconfigs/apiserver-authn-webhook.kubeconfig:", "- "+there+":")
	c.writeComposeFile()
	c.mustCompose("up")
	for _, server := range []string{"apiserver-1", "apiserver-2"} {
		requireUser(server, ada, "ada")
		requireUser(server, token.Status.Token, "")
	}
}

// checkSeparateControllers runs the services with controllers with a separate API server.
func checkSeparateControllers(t *testing.T, c *composition) {
	pair := []string{"--tls-private-key-file=/certs/apiserver.key", "--tls-cert-file=/certs/apiserver.crt",
		"--client-ca-file=/certs/client-ca.crt"}
	// The name apiserver-0 is in the certificate.
	data := filepath.Join(c.state, "other-data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	chown(t, data, c.containerUser(t))
	c.runContainer(t, "apiserver-0", "apiserver", []string{c.certificate("apiserver") + ":/certs:ro", data + ":/data"},
		append(pair, "--data-dir=/data", "--authorization-mode=RBAC", "--service-cluster-ip-range=10.97.0.0/16",
			"--service-account-issuer=https://other", "--service-account-signing-key-file=/certs/sa.key")...)
	admin := c.adminClient("apiserver-0")
	harness.Eventually(t, waitTimeout, "the other API server", func() error {
		_, err := admin.CoreV1().Namespaces().Get(t.Context(), "kube-public", metav1.GetOptions{})
		return err
	})
	bootstrapToken := func(id, expiration string) {
		t.Helper()
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + id},
			Type:       corev1.SecretTypeBootstrapToken,
			StringData: map[string]string{
				"token-id":                       id,
				"token-secret":                   "0123456789abcdef",
				"usage-bootstrap-signing":        "true",
				"usage-bootstrap-authentication": "true",
			},
		}
		if expiration != "" {
			secret.StringData["expiration"] = expiration
		}
		if _, err := admin.CoreV1().Secrets("kube-system").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	bootstrapToken("aaaaaa", "")
	bootstrapToken("bbbbbb", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	info := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\n"},
	}
	if _, err := admin.CoreV1().ConfigMaps("kube-public").Create(t.Context(), info, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for port, s := range map[string]string{"6446": "tokencleaner", "6447": "bootstrapsigner", "6449": "controllers"} {
		kubeconfig := c.kubeconfigFor(t, s+"-elsewhere.kubeconfig", "https://apiserver-0:6443", s+"-client")
		c.runContainer(t, s+"-0", s, []string{c.certificate(s) + ":/certs:ro", kubeconfig + ":/kubeconfig:ro"},
			"--secure-port="+port,
			"--tls-cert-file=/certs/"+s+".crt", "--tls-private-key-file=/certs/"+s+".key",
			"--client-ca-file=/certs/client-ca.crt", "--kubeconfig=/kubeconfig")
	}
	harness.Eventually(t, waitTimeout, "removal of the expired token", func() error {
		_, err := admin.CoreV1().Secrets("kube-system").Get(t.Context(), "bootstrap-token-bbbbbb", metav1.GetOptions{})
		if err == nil {
			return errors.New("the token still exists")
		}
		return nil
	})
	harness.Eventually(t, waitTimeout, "a signature", func() error {
		found, err := admin.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "cluster-info", metav1.GetOptions{})
		if err == nil && found.Data["jws-kubeconfig-aaaaaa"] == "" {
			err = errors.New("not signed yet")
		}
		return err
	})
	if _, err := admin.CoreV1().Secrets("kube-system").Get(t.Context(), "bootstrap-token-aaaaaa",
		metav1.GetOptions{}); err != nil {
		t.Errorf("get of a token that has not expired: got error %v, want none", err)
	}
}

// chown changes the owner of a folder to the user of the containers.
func chown(t *testing.T, path, user string) {
	t.Helper()
	var uid, gid int
	if _, err := fmt.Sscanf(user, "%d:%d", &uid, &gid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}
