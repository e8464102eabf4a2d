package scenarios

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

// tokenSettle bounds the wait for a controller's reaction.
const tokenSettle = 20 * time.Second

// controllerLeaseFlags returns lease flags with a failover within seconds.
func controllerLeaseFlags() []string {
	return []string{"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=300ms"}
}

// replica is a process of one of the controllers.
type replica struct {
	*harness.Process
	url  string
	args []string
}

// startControllerFor starts a controller with a certificate of its user in some groups.
func startControllerFor(t *testing.T, s *harness.Server, p harness.Program, groups ...string) *replica {
	t.Helper()
	return startControllerWith(t, p, s.Kubeconfig(s.PKI.Client("system:binnacle:"+string(p), groups...)))
}

// startControllerWith starts a controller with a kubeconfig.
func startControllerWith(t *testing.T, p harness.Program, kubeconfig string) *replica {
	t.Helper()
	port := harness.FreePort(t)
	r := &replica{
		Process: harness.NewProcess(t, string(p), harness.Binary(t, p)), url: fmt.Sprintf("https://127.0.0.1:%d", port),
		args: append(controllerLeaseFlags(), "--kubeconfig="+kubeconfig, "--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port), "--cert-dir="+t.TempDir()),
	}
	r.Start(r.args...)
	return r
}

// get returns the response of the controller for a path.
func (r *replica) get(path string) (int, string, error) {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	resp, err := client.Get(r.url + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// checkReady returns an error unless the controller is ready.
func (r *replica) checkReady() error {
	code, body, err := r.get("/readyz")
	if err == nil && code != http.StatusOK {
		err = errors.New(body)
	}
	return err
}

// isLeader reports whether the controller is the leader, according to its metrics.
func (r *replica) isLeader() bool {
	_, body, err := r.get("/metrics")
	return err == nil && leaderMetric(body) == "1"
}

// leaderMetric returns the value of the metric for leadership.
func leaderMetric(metrics string) string {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "leader_election_master_status{") {
			return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
		}
	}
	return ""
}

// createBootstrapToken creates a token. It does not expire if expiration is empty.
func createBootstrapToken(t *testing.T, clientset *kubernetes.Clientset, id, expiration string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-" + id},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{"token-id": id, "token-secret": "0123456789abcdef", "usage-bootstrap-signing": "true"},
	}
	if expiration != "" {
		secret.StringData["expiration"] = expiration
	}
	if _, err := clientset.CoreV1().Secrets("kube-system").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// expirationAfter returns the time after d in the form of a token's expiration.
func expirationAfter(d time.Duration) (string, time.Time) {
	at := time.Now().Add(d).Truncate(time.Second)
	return at.UTC().Format(time.RFC3339), at
}

// TestBootstrapTokens runs two replicas of each controller with the suite's users, and kills the
// leaders.
func TestBootstrapTokens(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	client := server.Client()
	replicas := map[harness.Program][]*replica{}
	for _, program := range []harness.Program{harness.TokenCleaner, harness.BootstrapSigner} {
		for range 2 {
			replicas[program] = append(replicas[program], startControllerFor(t, server, program, "system:binnacle"))
		}
	}
	for program, two := range replicas {
		for _, r := range two {
			harness.Eventually(t, tokenSettle, string(program)+" to be ready", r.checkReady)
		}
	}
	createBootstrapToken(t, client, "aaaaaa", "")
	createClusterInfo(t, client)
	harness.Eventually(t, tokenSettle, "a signature", func() error { return checkSignatures(t, client, "aaaaaa") })

	expiration, _ := expirationAfter(-time.Hour)
	createBootstrapToken(t, client, "bbbbbb", expiration)
	harness.Eventually(t, tokenSettle, "removal of an expired token", func() error {
		return checkTokenDeleted(t, client, "bbbbbb")
	})

	text, at := expirationAfter(5 * time.Second)
	createBootstrapToken(t, client, "cccccc", text)
	harness.Eventually(t, tokenSettle, "another signature", func() error {
		return checkSignatures(t, client, "aaaaaa", "cccccc")
	})
	harness.Eventually(t, tokenSettle, "removal of a token", func() error { return checkTokenDeleted(t, client, "cccccc") })
	if now := time.Now(); now.Before(at) {
		t.Errorf("the token was removed %s before its expiration", at.Sub(now))
	}
	harness.Eventually(t, tokenSettle, "removal of its signature", func() error { return checkSignatures(t, client, "aaaaaa") })

	checkSignatureAsJoiner(t, server, "aaaaaa")

	for program, two := range replicas {
		leader, other := two[0], two[1]
		if other.isLeader() {
			leader, other = other, leader
		}
		if !leader.isLeader() || other.isLeader() {
			t.Fatalf("%s: want exactly one leader", program)
		}
		leader.Kill()
	}
	expiration, _ = expirationAfter(-time.Hour)
	createBootstrapToken(t, client, "dddddd", expiration)
	createBootstrapToken(t, client, "eeeeee", "")
	harness.Eventually(t, tokenSettle, "takeover by the other cleaner", func() error {
		return checkTokenDeleted(t, client, "dddddd")
	})
	harness.Eventually(t, tokenSettle, "takeover by the other signer", func() error {
		return checkSignatures(t, client, "aaaaaa", "eeeeee")
	})
}

// checkSignatureAsJoiner reads cluster-info with kubectl as an anonymous user, as the role in
// deploy/manifests allows, and verifies it by its token only. The signature is checked by another
// implementation of the algorithm.
func checkSignatureAsJoiner(t *testing.T, server *harness.Server, id string) {
	t.Helper()
	harness.NewCLI(t, server).Run(t, "apply", "-f",
		filepath.Join(harness.Project(t), "deploy", "manifests", "rbac", "cluster-info.yaml"))
	// kubectl requires a credential; no server accepts this one.
	const username, configMaps = "--username=unknown", "/api/v1/namespaces/kube-public/configmaps" // anonymous users have no access to discovery
	anonymous := harness.CLIOf(t, server.Kubeconfig(harness.Pair{}))
	var result harness.Result
	harness.Eventually(t, tokenSettle, "anonymous access to cluster-info", func() error {
		result = anonymous.Execute(t, "", username, "get", "--raw="+configMaps+"/cluster-info")
		if result.Err != nil {
			return fmt.Errorf("%w: %s", result.Err, result.Stderr)
		}
		return nil
	})
	var configMap corev1.ConfigMap
	if err := json.Unmarshal([]byte(result.Stdout), &configMap); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(configMap.Data["jws-kubeconfig-"+id], ".")
	if len(parts) != 3 {
		t.Fatalf("signature: got %q, want 3", parts)
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	signed := parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(configMap.Data["kubeconfig"]))
	if err := jwt.SigningMethodHS256.Verify(signed, signature, []byte("0123456789abcdef")); err != nil {
		t.Errorf("verify the signature: %v", err)
	}
	if result := anonymous.Execute(t, "", username, "get", "--raw="+configMaps); result.Err == nil {
		t.Errorf("anonymous list of ConfigMaps: got %s, want an error", result.Stdout)
	}
}

func createClusterInfo(t *testing.T, clientset *kubernetes.Clientset) {
	t.Helper()
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-public", Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": "k", "other": "x"},
	}
	if _, err := clientset.CoreV1().ConfigMaps("kube-public").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// checkSignatures returns an error unless cluster-info has exactly the signatures of the tokens.
func checkSignatures(t *testing.T, c *kubernetes.Clientset, ids ...string) error {
	configMap, err := c.CoreV1().ConfigMaps("kube-public").Get(t.Context(), "cluster-info", metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !strings.Contains(configMap.Data["jws-kubeconfig-"+id], "..") {
			return fmt.Errorf("no signature of %s: %v", id, configMap.Data)
		}
	}
	if len(configMap.Data) != len(ids)+2 || configMap.Data["kubeconfig"] != "k" || configMap.Data["other"] != "x" {
		return fmt.Errorf("got data %v", configMap.Data)
	}
	return nil
}

func checkTokenDeleted(t *testing.T, c *kubernetes.Clientset, id string) error {
	_, err := c.CoreV1().Secrets("kube-system").Get(t.Context(), "bootstrap-token-"+id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("still exists: %v", err)
}
