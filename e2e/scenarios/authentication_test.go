package scenarios

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

const (
	// noHang bounds a request that a dead service delays: two tries and a margin.
	noHang = 20 * time.Second
	// settleTimeout bounds the wait for changes that take effect at once.
	settleTimeout = 20 * time.Second
)

// tokenClient are clients that authenticate only with a token.
type tokenClient struct {
	client *http.Client
	url    string
}

func newTokenClient(t *testing.T, server *harness.Server) *tokenClient {
	t.Helper()
	data, err := os.ReadFile(server.PKI.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &tokenClient{client: &http.Client{Transport: transport, Timeout: noHang}, url: server.URL}
}

// userOf returns the user of a token.
func (b *tokenClient) userOf(ctx context.Context, token string) (code int, user string, err error) {
	body := strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := b.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", err
	}
	var review authenticationv1.SelfSubjectReview
	if resp.StatusCode == http.StatusCreated {
		err = json.Unmarshal(text, &review)
	}
	return resp.StatusCode, review.Status.UserInfo.Username, err
}

// checkStatus returns an error unless a request with the token gets a status code.
func (b *tokenClient) checkStatus(t *testing.T, token string, want int) error {
	code, _, err := b.userOf(t.Context(), token)
	if err == nil && code != want {
		err = fmt.Errorf("got %d, want %d", code, want)
	}
	return err
}

// createToken creates a token that no server has seen.
func createToken(t *testing.T, admin kubernetes.Interface, account string, ref *authenticationv1.BoundObjectReference) string {
	t.Helper()
	tokenRequest, err := admin.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: ref}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return tokenRequest.Status.Token
}

func createAccount(t *testing.T, admin kubernetes.Interface, name string) {
	t.Helper()
	account := serviceAccount(name)
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// load sends requests with known tokens in a loop until it is stopped. Each must succeed.
type load struct {
	cancel   context.CancelFunc
	running  sync.WaitGroup
	requests atomic.Int64
}

// startLoad starts to send requests with tokens.
func startLoad(t *testing.T, client *tokenClient, tokens []string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	started := &load{cancel: cancel}
	for _, token := range tokens {
		started.running.Go(func() {
			pause := time.NewTicker(10 * time.Millisecond)
			defer pause.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-pause.C:
				}
				code, _, err := client.userOf(ctx, token)
				if ctx.Err() != nil {
					return
				}
				if err != nil || code != http.StatusCreated {
					t.Errorf("known token: got status %d, %v, want %d", code, err, http.StatusCreated)
					return
				}
				started.requests.Add(1)
			}
		})
	}
	t.Cleanup(started.cancel)
	return started
}

// stop stops the requests and waits for the last responses.
func (l *load) stop() {
	l.cancel()
	l.running.Wait()
}

// requireProgress waits until further requests with known tokens have succeeded.
func (l *load) requireProgress(t *testing.T) {
	t.Helper()
	before := l.requests.Load()
	harness.Eventually(t, settleTimeout, "requests with known tokens", func() error {
		if n := l.requests.Load() - before; n < 20 {
			return fmt.Errorf("%d requests", n)
		}
		return nil
	})
}

// TestTokenService kills, pauses and replaces the token review service under load. Known tokens are
// accepted, unknown ones are rejected, and no request hangs.
func TestTokenService(t *testing.T) {
	t.Parallel()
	port := harness.FreePort(t)
	server := harness.StartServer(t, harness.WithTokenService(port))
	service := server.StartTokenService(port)
	admin, tokenClient := server.Client(), newTokenClient(t, server)
	createAccount(t, admin, "robot")

	var known []string
	for range 4 {
		token := createToken(t, admin, "robot", nil)
		harness.Eventually(t, settleTimeout, "acceptance of a token", func() error {
			return tokenClient.checkStatus(t, token, http.StatusCreated)
		})
		known = append(known, token)
	}
	load := startLoad(t, tokenClient, known)
	requireRejections := func(tokens int) {
		t.Helper()
		var requests sync.WaitGroup
		for range tokens {
			token := createToken(t, admin, "robot", nil)
			requests.Go(func() {
				start := time.Now()
				if err := tokenClient.checkStatus(t, token, http.StatusUnauthorized); err != nil {
					t.Errorf("unknown token, after %v: got %v, want status 401", time.Since(start), err)
				}
				t.Logf("rejected after %v", time.Since(start).Round(time.Millisecond))
			})
		}
		requests.Wait()
	}
	requireRecovery := func(what string) {
		t.Helper()
		start, token := time.Now(), createToken(t, admin, "robot", nil)
		harness.Eventually(t, settleTimeout, what, func() error { return tokenClient.checkStatus(t, token, http.StatusCreated) })
		t.Logf("%s: new tokens accepted after %v", what, time.Since(start).Round(time.Millisecond))
		load.requireProgress(t)
	}
	service.Kill()
	requireRejections(3)
	load.requireProgress(t)
	service.Start()
	requireRecovery("killed and started again")

	service.Pause()
	requireRejections(3)
	load.requireProgress(t)
	service.Resume()
	requireRecovery("paused and resumed")

	if err := service.Stop(); err != nil {
		t.Errorf("stop of the service: got error %v, want none", err)
	}
	server.StartTokenService(port)
	requireRecovery("replaced")
	load.stop()
	log := server.Log()
	expectParts(t, "log", log, "token webhook unreachable", "token webhook reachable again")
	for _, token := range known {
		if strings.Contains(log, token) || strings.Contains(service.Log(), token) {
			t.Error("a log contains a token, want none")
		}
	}
	metrics, err := admin.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil || bytes.Contains(metrics, []byte(`authentication_token_cache_fetch_total{status="error"} 0`)) {
		t.Errorf("metric of failed token reviews: got 0 or error %v, want more than 0", err)
	}
}

// TestTokenServiceReplicas kills one of two replicas of the token review service. New tokens are
// still accepted.
func TestTokenServiceReplicas(t *testing.T) {
	t.Parallel()
	port := harness.FreePort(t)
	server := harness.StartServer(t, harness.WithTokenService(port))
	replicas := []*harness.TokenService{server.StartTokenService(port), server.StartTokenService(port)}
	admin, tokenClient := server.Client(), newTokenClient(t, server)
	createAccount(t, admin, "robot")
	known := func(stage string) {
		t.Helper()
		for i := range 10 {
			if err := tokenClient.checkStatus(t, createToken(t, admin, "robot", nil), http.StatusCreated); err != nil {
				t.Errorf("%s, token %d: got %v, want it accepted", stage, i, err)
			}
		}
	}
	known("with both")
	replicas[0].Kill()
	known("after the first died")
	replicas[0].Start()
	replicas[1].Kill()
	known("after the second died")
}

// TestTokenWebhookReplacesAuthnWebhook replaces authn-webhook by the example, only by a kubeconfig.
func TestTokenWebhookReplacesAuthnWebhook(t *testing.T) {
	t.Parallel()
	const token = "a-token-of-ada"
	users := filepath.Join(t.TempDir(), "users.json")
	text := fmt.Sprintf(`{"%x": {"username": "ada", "groups": ["dev"]}}`, sha256.Sum256([]byte(token)))
	if err := os.WriteFile(users, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	port := harness.FreePort(t)
	server := harness.StartServer(t, harness.WithTokenService(port))
	serving := server.PKI.Serving("token-webhook")
	harness.NewProcess(t, "token-webhook", harness.Binary(t, harness.TokenWebhook)).Start(
		fmt.Sprintf("--address=127.0.0.1:%d", port), "--users="+users, "--client-ca="+server.PKI.CA,
		"--cert="+serving.CertFile, "--key="+serving.KeyFile)
	tokenClient := newTokenClient(t, server)
	harness.Eventually(t, settleTimeout, "acceptance of ada", func() error {
		code, user, err := tokenClient.userOf(t.Context(), token)
		if err == nil && (code != http.StatusCreated || user != "ada") {
			err = fmt.Errorf("%d, %q", code, user)
		}
		return err
	})
	if err := tokenClient.checkStatus(t, "another-token", http.StatusUnauthorized); err != nil {
		t.Error(err)
	}
}
