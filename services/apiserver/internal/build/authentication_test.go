package build

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"binnacle/deploy/certs"
	"binnacle/services/apiserver/internal/config"
)

const accounts = "/api/v1/namespaces/default/serviceaccounts"

// signingKey creates a key for service account tokens and writes it to a file.
func signingKey(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sa.key")
	block := &pem.Block{Type: "EC PRIVATE KEY", Bytes: der}
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func issuing(key string) func(*config.Options) {
	return func(options *config.Options) {
		options.Authentication.ServiceAccountIssuers = []string{"https://issuer"}
		options.Authentication.ServiceAccountSigner = key
	}
}

// bearer returns a client without a certificate.
func (api *testServer) bearer() *testServer {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	api.t.Cleanup(tr.CloseIdleConnections)
	return &testServer{t: api.t, url: api.url, client: &http.Client{Transport: tr, Timeout: 30 * time.Second}}
}

func (api *testServer) whoami(token string) apiResponse {
	return api.send(http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`, "Authorization", "Bearer "+token)
}

func (api *testServer) requestToken(account, spec string) string {
	api.t.Helper()
	response := api.mustSend(http.StatusCreated, http.MethodPost, accounts+"/"+account+"/token",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":`+spec+`}`)
	return fmt.Sprint(response.field("status", "token"))
}

// claims returns the unverified claims of a token.
func claims(t *testing.T, token string) map[string]any {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func object(kind, name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":%q,"metadata":{"name":%q}%s}`, kind, name, rest)
}

// TestTokenEndsWithBoundObject checks that a token is invalid once its service account or bound
// object is deleted, even if an object of the same name exists again.
func TestTokenEndsWithBoundObject(t *testing.T) {
	t.Parallel()
	api := startServer(t, issuing(signingKey(t)))
	bearer := api.bearer()
	pods, secrets := "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/secrets"
	pod := object("Pod", "p", `,"spec":{"serviceAccountName":"sa","nodeName":"n","containers":[{"name":"c","image":"i"}]}`)
	for name, test := range map[string]struct {
		spec   string
		path   string
		remake string // the object to create again; a token of the old one stays invalid
		extra  string
	}{
		"account": {spec: `{}`, path: accounts + "/sa", remake: object("ServiceAccount", "sa", ""), extra: "credential-id"},
		"pod": {
			spec:   `{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p"}}`,
			path:   pods + "/p?gracePeriodSeconds=0",
			remake: pod,
			extra:  "node-name",
		},
		"secret": {
			spec:   `{"boundObjectRef":{"apiVersion":"v1","kind":"Secret","name":"s"}}`,
			path:   secrets + "/s",
			remake: object("Secret", "s", ""),
			extra:  "credential-id",
		},
		"node": {
			spec:   `{"boundObjectRef":{"apiVersion":"v1","kind":"Node","name":"n"}}`,
			path:   "/api/v1/nodes/n",
			remake: object("Node", "n", ""),
			extra:  "node-uid",
		},
	} {
		t.Run(name, func(t *testing.T) {
			api.send(http.MethodPost, accounts, object("ServiceAccount", "sa", ""))
			api.send(http.MethodPost, "/api/v1/nodes", object("Node", "n", ""))
			api.send(http.MethodPost, secrets, object("Secret", "s", ""))
			api.send(http.MethodPost, pods, pod)
			token := api.requestToken("sa", test.spec)
			for range 3 {
				r := bearer.whoami(token)
				if r.code != http.StatusCreated || r.field("status", "userInfo", "username") != "system:serviceaccount:default:sa" {
					t.Fatalf("got status %d: %s, want status 201 and user system:serviceaccount:default:sa", r.code, r.body)
				}
				if r.field("status", "userInfo", "extra", "authentication.kubernetes.io/"+test.extra) == nil {
					t.Errorf("got %s, want extra %s", r.body, test.extra)
				}
			}
			api.mustSend(http.StatusOK, http.MethodDelete, test.path, "")
			began := time.Now()
			api.waitUntil("rejected", func() bool { return bearer.whoami(token).code == http.StatusUnauthorized })
			t.Logf("rejected %v after the delete was acknowledged", time.Since(began))
			collection, _, _ := strings.Cut(test.path, "?")
			api.mustSend(http.StatusCreated, http.MethodPost, collection[:strings.LastIndex(collection, "/")], test.remake)
			if r := bearer.whoami(token); r.code != http.StatusUnauthorized {
				t.Errorf("token bound to a deleted object, after its recreation: got status %d, want 401", r.code)
			}
		})
	}
}

// TestTokenRequestIssuesLimitedTokens checks the claims and lifetimes of requested tokens, and that requests for other
// accounts, objects or lifetimes are rejected.
func TestTokenRequestIssuesLimitedTokens(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		issuing(signingKey(t))(options)
		options.Authentication.ServiceAccountMaxExpiration = 2 * time.Hour
	})
	api.mustSend(http.StatusCreated, http.MethodPost, accounts, object("ServiceAccount", "sa", ""))
	api.mustSend(http.StatusCreated, http.MethodPost, "/api/v1/nodes", object("Node", "n", ""))
	api.mustSend(http.StatusCreated, http.MethodPost, "/api/v1/namespaces/default/pods",
		object("Pod", "p", `,"spec":{"serviceAccountName":"sa","nodeName":"n","containers":[{"name":"c","image":"i"}]}`))
	api.mustSend(http.StatusCreated, http.MethodPost, "/api/v1/namespaces/default/pods",
		object("Pod", "other", `,"spec":{"serviceAccountName":"other","nodeName":"gone","containers":[{"name":"c","image":"i"}]}`))

	request := func(spec string) apiResponse {
		return api.send(http.MethodPost, accounts+"/sa/token",
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":`+spec+`}`)
	}

	// 1. The default token lives an hour and is for the issuer itself.
	tokenClaims := claims(t, api.requestToken("sa", `{}`))
	lifetime := func(tokenClaims map[string]any) float64 {
		return tokenClaims["exp"].(float64) - tokenClaims["iat"].(float64)
	}
	const parties = "https://issuer [https://issuer] system:serviceaccount:default:sa"
	if got := fmt.Sprint(tokenClaims["iss"], " ", tokenClaims["aud"], " ", tokenClaims["sub"]); got != parties {
		t.Errorf("got issuer, audiences, subject %q, want %q", got, parties)
	}
	if got := lifetime(tokenClaims); got != 3600 {
		t.Errorf("got a token for %v s, want 3600", got)
	}
	if tokenClaims["nbf"] != tokenClaims["iat"] {
		t.Errorf("got a token valid from %v, want from its issue, %v", tokenClaims["nbf"], tokenClaims["iat"])
	}
	if tokenClaims["jti"] == "" {
		t.Error("got a token without id, want one")
	}

	// 2. A lifetime over the maximum is shortened, with a warning.
	r := request(`{"expirationSeconds":86400}`)
	if r.code != http.StatusCreated || r.field("spec", "expirationSeconds") != float64(7200) {
		t.Errorf("expiration over the maximum: got status %d: %s, want status 201 and 7200 s", r.code, r.body)
	}
	const shortened = "requested expiration of 86400 seconds shortened to 7200 seconds"
	if got := r.header.Get("Warning"); !strings.Contains(got, shortened) {
		t.Errorf("expiration over the maximum: got warning %q, want %q", got, shortened)
	}

	// 3. A lifetime of 3607 s marks a client that does not refresh its token. Its token is extended
	// to a year, unless it is for another audience.
	const toPod = `"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"p"}`
	r = request(`{"expirationSeconds":3607,` + toPod + `}`)
	tokenClaims = claims(t, fmt.Sprint(r.field("status", "token")))
	kubernetesClaims, _ := tokenClaims["kubernetes.io"].(map[string]any)
	if got := lifetime(tokenClaims); got != 365*24*3600 {
		t.Errorf("extended token: got a lifetime of %v s, want a year", got)
	}
	if got := kubernetesClaims["warnafter"].(float64) - tokenClaims["iat"].(float64); got != 3607 {
		t.Errorf("extended token: got warnings after %v s, want 3607", got)
	}
	if kubernetesClaims["pod"] == nil || kubernetesClaims["node"].(map[string]any)["uid"] == nil {
		t.Errorf("extended token: got claims %v, want a pod and the UID of a node", tokenClaims)
	}
	r = request(`{"expirationSeconds":3607,"audiences":["vault"],` + toPod + `}`)
	tokenClaims = claims(t, fmt.Sprint(r.field("status", "token")))
	if got := lifetime(tokenClaims); got != 3607 {
		t.Errorf("token for another audience: got a lifetime of %v s, want 3607", got)
	}

	// 4. Requests for the pod of another account, or for another namespace, are rejected.
	if r := request(`{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"other"}}`); r.code != http.StatusBadRequest ||
		!bytes.Contains(r.body, []byte("different serviceaccount name")) {
		t.Errorf("pod of another account: got status %d: %s, want 400 and %q", r.code, r.body, "different serviceaccount name")
	}
	if response := api.send(http.MethodPost, accounts+"/sa/token",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"namespace":"x"},"spec":{}}`); response.code != http.StatusBadRequest {
		t.Errorf("another namespace: got status %d: %s, want 400", response.code, response.body)
	}

	// 5. The documents of the issuer are served to GET only.
	for path, media := range map[string]string{
		"/.well-known/openid-configuration": "application/json",
		"/openid/v1/jwks":                   "application/jwk-set+json",
	} {
		if response := api.get(path); response.code != http.StatusOK || response.header.Get("Content-Type") != media || response.object() == nil {
			t.Errorf("%s: got status %d, headers %v: %s, want 200 and an object of type %s", path, response.code, response.header, response.body, media)
		}
		for _, method := range []string{http.MethodPost, http.MethodHead, http.MethodOptions} {
			if response := api.send(method, path, ""); response.code != http.StatusMethodNotAllowed || response.header.Get("Content-Type") != "application/json" {
				t.Errorf("%s %s: got status %d: %v, want status %d and %q",
					method, path, response.code, response.header, http.StatusMethodNotAllowed, "application/json")
			}
		}
	}
	if response := api.get("/"); !bytes.Contains(response.body, []byte("/openid/v1/jwks")) {
		t.Errorf("got paths %s, want /openid/v1/jwks among them", response.body)
	}
}

// TestTokenRequestNeedsIssuer checks that a server without a token issuer serves neither token
// requests nor keys, and accepts no token.
func TestTokenRequestNeedsIssuer(t *testing.T) {
	t.Parallel()
	api := sharedServer(t)
	accounts := api.namespaced("serviceaccounts")
	api.mustSend(http.StatusCreated, http.MethodPost, accounts, object("ServiceAccount", "sa", ""))
	api.mustSend(http.StatusNotFound, http.MethodPost, accounts+"/sa/token",
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)
	api.mustSend(http.StatusNotFound, http.MethodGet, "/openid/v1/jwks", "")
	if r := api.bearer().whoami("x"); r.code != http.StatusUnauthorized {
		t.Errorf("got status %d, want status %d", r.code, http.StatusUnauthorized)
	}
}

// TestBootstrapAndStaticTokensAuthenticate checks that tokens of the file and of bootstrap secrets
// authenticate, and that changes of the secrets apply at once.
func TestBootstrapAndStaticTokensAuthenticate(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte("static-token,alice,u1,\"dev,ops\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	api := startServer(t, func(options *config.Options) {
		options.Authentication.BootstrapTokens = true
		options.Authentication.TokenFile = file
		options.Authentication.Audiences = []string{"api"}
	})
	bearer := api.bearer()
	const secrets, token = "/api/v1/namespaces/kube-system/secrets", "abcdef.0123456789abcdef"
	secret := func(key string) string {
		return `{"apiVersion":"v1","kind":"Secret","type":"bootstrap.kubernetes.io/token","metadata":{"name":"bootstrap-token-abcdef"},"stringData":{"token-id":"abcdef","token-secret":"` +
			key + `","usage-bootstrap-authentication":"true"}}`
	}

	// 1. A bootstrap token is valid while its secret exists with the same key.
	if r := bearer.whoami(token); r.code != http.StatusUnauthorized {
		t.Fatalf("before the account exists: got status %d, want 401", r.code)
	}
	api.mustSend(http.StatusCreated, http.MethodPost, secrets, secret("0123456789abcdef"))
	api.waitUntil("known", func() bool {
		return bearer.whoami(token).field("status", "userInfo", "username") == "system:bootstrap:abcdef"
	})
	api.mustSend(http.StatusOK, http.MethodPut, secrets+"/bootstrap-token-abcdef", secret("fedcba9876543210"))
	api.waitUntil("rejected", func() bool { return bearer.whoami(token).code == http.StatusUnauthorized })
	api.waitUntil("the new one is known", func() bool { return bearer.whoami("abcdef.fedcba9876543210").code == http.StatusCreated })
	api.mustSend(http.StatusOK, http.MethodDelete, secrets+"/bootstrap-token-abcdef", "")
	api.waitUntil("rejected", func() bool { return bearer.whoami("abcdef.fedcba9876543210").code == http.StatusUnauthorized })

	// 2. A token of the file authenticates its user.
	if r := bearer.whoami("static-token"); r.field("status", "userInfo", "username") != "alice" ||
		!bytes.Contains(r.body, []byte("system:authenticated")) {
		t.Errorf("static token: got status %d: %s, want alice in system:authenticated", r.code, r.body)
	}

	// 3. Token reviews know the tokens of the file and check the audience.
	review := func(spec string) apiResponse {
		return api.mustSend(http.StatusCreated, http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews",
			`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":`+spec+`}`)
	}
	if r := review(`{"token":"static-token"}`); r.field("status", "authenticated") != true ||
		r.field("status", "user", "username") != "alice" ||
		fmt.Sprint(r.field("status", "audiences")) != "[api]" {
		t.Errorf("review of the static token: got %s, want alice authenticated for [api]", r.body)
	}
	for _, spec := range []string{`{"token":"static-token","audiences":["other"]}`, `{"token":"unknown"}`} {
		if r := review(spec); r.field("status", "authenticated") != nil || r.field("status", "error") == nil {
			t.Errorf("review of %s: got %s, want an error and no authentication", spec, r.body)
		}
	}
}

// TestTokenWebhookReviewsTokens starts a server whose bearer tokens a webhook reviews.
func TestTokenWebhookReviewsTokens(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var review struct{ Spec struct{ Token string } }
		_ = json.NewDecoder(r.Body).Decode(&review)
		_, _ = fmt.Fprintf(w,
			`{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","status":{"authenticated":%v,"user":{"username":"bob"}}}`,
			review.Spec.Token == "bobs")
	}))
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}))
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q,"certificate-authority-data":%q}}],"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`,
		service.URL, ca)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	key := signingKey(t)
	api := startServer(t, func(options *config.Options) {
		issuing(key)(options)
		options.Authentication.Webhook.Kubeconfig = kubeconfig
	})
	bearer := api.bearer()
	api.waitUntil("kept", func() bool {
		before := asked.Load()
		return bearer.whoami("bobs").field("status", "userInfo", "username") == "bob" && asked.Load() == before
	})
	if r := bearer.whoami("alices"); r.code != http.StatusUnauthorized {
		t.Errorf("token unknown to the service: got status %d, want 401", r.code)
	}
	// The server issues such tokens, but has no key to verify them.
	api.mustSend(http.StatusCreated, http.MethodPost, accounts, object("ServiceAccount", "sa", ""))
	before := asked.Load()
	if r := bearer.whoami(api.requestToken("sa", `{}`)); r.code != http.StatusUnauthorized {
		t.Errorf("service account token without key: got status %d, want 401", r.code)
	}
	if asked.Load() == before {
		t.Error("service account token without key: got no token review, want one")
	}
	service.Close()
	if r := bearer.whoami("bobs"); r.code != http.StatusCreated {
		t.Errorf("cached token while the service is down: got status %d, want 201", r.code)
	}
	if r := bearer.whoami("somebodys"); r.code != http.StatusUnauthorized {
		t.Errorf("token not cached while the service is down: got status %d, want 401", r.code)
	}
}

// TestFrontProxyHeadersNeedItsCertificate checks that user headers count only with a client certificate of the front proxy
// CA.
func TestFrontProxyHeadersNeedItsCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := certs.Ensure(certs.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	files := certs.Layout{Dir: dir}
	api := startServer(t, func(options *config.Options) {
		proxyOptions := &options.Authentication.Proxy
		proxyOptions.CAFile = files.CA(certs.FrontProxyCA).Cert
		proxyOptions.Headers.Username = []string{"X-Remote-User"}
		proxyOptions.Headers.Group = []string{"X-Remote-Group"}
	})
	pair, err := tls.LoadX509KeyPair(files.FrontProxy().Cert, files.FrontProxy().Key)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := &testServer{t: t, url: api.url, client: &http.Client{Transport: transport}}
	const (
		path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
		body = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	)
	response := proxy.mustSend(http.StatusCreated, http.MethodPost, path, body, "X-Remote-User", "carol", "X-Remote-Group", "dev")
	if response.field("status", "userInfo", "username") != "carol" ||
		fmt.Sprint(response.field("status", "userInfo", "groups")) != "[dev system:authenticated]" {
		t.Errorf("got %s, want user carol with groups [dev system:authenticated]", response.body)
	}
	if response := api.mustSend(http.StatusCreated, http.MethodPost,
		path, body, "X-Remote-User", "carol"); response.field("status", "userInfo", "username") != "admin" {
		t.Errorf("X-Remote-User of a client that is no proxy: got %s, want user admin", response.body)
	}
	for _, groups := range []string{"dev", "system:binnacle"} {
		proxy.mustSend(http.StatusUnauthorized, http.MethodGet, "/api/v1/secrets", "", "X-Remote-User",
			"system:binnacle:authn-webhook", "X-Remote-Group", groups)
	}
	if response := proxy.send(http.MethodPost, path, body); response.code != http.StatusUnauthorized {
		t.Errorf("proxy without X-Remote-User: got status %d, want 401", response.code)
	}
	api.waitUntil("published", func() bool {
		response := api.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
		return response.field("data", "requestheader-username-headers") == `["X-Remote-User"]` &&
			response.field("data", "requestheader-client-ca-file") != nil
	})
}
