package build

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"binnacle/deploy/certs"
	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/proxy/kubeletproxy/kubelettest"
	"binnacle/services/apiserver/internal/server/peers"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

const cronJobs = "/apis/batch/v1/namespaces/default/cronjobs"

// peerFixture is an etcd, and certificates for replicas.
type peerFixture struct {
	t     *testing.T
	etcd  string
	files certs.Layout
}

func newPeerFixture(t *testing.T) *peerFixture {
	dir := t.TempDir()
	if _, err := certs.Ensure(certs.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	return &peerFixture{t, etcdtest.ListeningServer(t).Endpoint(), certs.Layout{Dir: dir}}
}

// replica starts a replica; runtimeConfig is its --runtime-config.
func (w *peerFixture) replica(runtimeConfig string, change ...func(*config.Options)) *testServer {
	return startServer(w.t, func(options *config.Options) {
		w.t.Helper()
		if err := errors.Join(options.Features.Set("StorageVersionAPI=true,APIServerIdentity=true,UnknownVersionInteroperabilityProxy=true"),
			options.RuntimeConfig.Set(strings.Trim("internal.apiserver.k8s.io/v1alpha1=true,"+runtimeConfig, ","))); err != nil {
			w.t.Fatal(err)
		}
		options.Etcd.Backend = config.BackendEtcd
		options.Etcd.Servers = []string{w.etcd}
		options.AdvertiseAddress = net.IPv4(127, 0, 0, 1)
		options.Serving.CertFile = w.files.APIServer().Cert
		options.Serving.KeyFile = w.files.APIServer().Key
		p := &options.Authentication.Proxy
		p.CAFile = w.files.CA(certs.FrontProxyCA).Cert
		p.Headers.Username = []string{"X-Our-User", "X-Remote-User"}
		p.Headers.Group = []string{"X-Our-Group", "X-Remote-Group"}
		p.Headers.UID = []string{"X-Remote-Uid"}
		p.Headers.ExtraPrefix = []string{"X-Our-Extra-", "X-Remote-Extra-"}
		options.Aggregation.ProxyClient.CertFile = w.files.FrontProxy().Cert
		options.Aggregation.ProxyClient.KeyFile = w.files.FrontProxy().Key
		options.Aggregation.Peers.CAFile = w.files.CA(certs.ServingCA).Cert
		for _, c := range change {
			c(options)
		}
	})
}

// waitUntilPublished waits until the storage versions and the address of a replica are published.
func (api *testServer) waitUntilPublished() {
	api.t.Helper()
	for _, hook := range []string{"built-in-resources-storage-version-updater", "peer-endpoint-reconciler-controller"} {
		api.mustSend(200, "GET", "/readyz/poststarthook/"+hook, "")
	}
}

func (api *testServer) proxiedRequests(code int) float64 {
	return max(0, api.metricValue(fmt.Sprintf(`apiserver_rerouted_request_total{code="%d"}`, code)))
}

func cronJob(name string) string {
	return fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":%q},"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`,
		name)
}

// TestUnservedRequestsAreProxiedToPeers checks reads, watches and writes of resources that only
// another replica serves.
func TestUnservedRequestsAreProxiedToPeers(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	w := newPeerFixture(t)
	full := w.replica("")
	full.waitUntilPublished()
	limited := w.replica("batch/v1=false,certificates.k8s.io/v1=false")
	limited.waitUntilPublished()

	made := limited.mustSend(201, "POST", cronJobs, cronJob("one"))
	if value := full.mustSend(200, "GET", cronJobs+"/one", "").field("metadata", "uid"); value != made.field("metadata", "uid") {
		t.Errorf("read from the other server: got UID %v, want %v", value, made.field("metadata", "uid"))
	}
	limited.mustSend(409, "POST", cronJobs, cronJob("one"))
	limited.mustSend(200, "GET", cronJobs+"/one", "")
	limited.mustSend(404, "GET", cronJobs+"/none", "")
	if items, _ := limited.mustSend(200, "GET", cronJobs+"?limit=5", "").field("items").([]any); len(items) != 1 {
		t.Errorf("got %d items, want 1", len(items))
	}
	limited.mustSend(200, "PATCH", cronJobs+"/one", `{"spec":{"suspend":true}}`, "Content-Type", mergePatch)
	full.mustSend(201, "POST", cronJobs, cronJob("two"))
	var seen []string
	for _, e := range limited.watchEvents(cronJobs+"?watch=1&timeoutSeconds=20&resourceVersion="+made.resourceVersion(), 2) {
		seen = append(seen, fmt.Sprint(e["type"], " ", e["object"].(map[string]any)["metadata"].(map[string]any)["name"]))
	}
	if fmt.Sprint(seen) != "[MODIFIED one ADDED two]" {
		t.Errorf("got events %v, want [MODIFIED one ADDED two]", seen)
	}
	limited.mustSend(200, "DELETE", cronJobs+"/two", "")
	if n := limited.proxiedRequests(201); n != 1 {
		t.Errorf("got %v rerouted requests with 201, want 1", n)
	}
	limited.mustSend(404, "GET", "/apis/batch/v1", "")
	limited.mustSend(404, "GET", "/apis/batch/v9/namespaces/default/cronjobs", "")
	limited.mustSend(404, "GET", "/apis/apps/v1/namespaces/default/cronjobs", "")
	limited.mustSend(200, "GET", "/api/v1/namespaces/default", "")
	if n := limited.proxiedRequests(404); n != 1 { // the object does not exist at the peer
		t.Errorf("got %v rerouted requests with 404, want 1: the others have no serving peer", n)
	}

	// The peer authenticates the user, whatever headers the client sends.
	created := limited.mustSend(201, "POST", requestsPath, requestFor(t, "carols", "ex.test/any",
		pkix.Name{CommonName: "any"}), append(asUser("carol", "dev"), "Impersonate-Uid", "7", "Impersonate-Extra-Scope", "x",
		"X-Remote-User", "root", "X-Remote-Group", "system:masters", "X_Remote_User", "root", "X-Remote-Extra-Scope", "all",
		"X-Our-User", "root", "X-Our-Group", "system:masters", "X-Our-Extra-Scope", "all")...)
	if got := fmt.Sprint(created.field("spec", "username"), created.field("spec", "uid"),
		created.field("spec", "groups"), created.field("spec", "extra")); got != "carol7[dev system:authenticated] map[scope:[x]]" {
		t.Errorf("peer received user %s, want carol7[dev system:authenticated] map[scope:[x]]", got)
	}

	// A request that claims to come from a peer is not proxied.
	limited.mustSend(404, "GET", cronJobs+"/one", "", peers.Header, "true")
	full.mustSend(200, "GET", cronJobs+"/one", "", peers.Header, "true", "X-Remote-User", "root")

	full.stop()
	limited.waitUntil("the peer is unreachable", func() bool {
		response := limited.get(cronJobs + "/one")
		return response.code == http.StatusServiceUnavailable && response.field("reason") == "ServiceUnavailable" &&
			response.field("message") == "Error getting ip and port info of the remote server while proxying"
	})
}

// TestPeerAuthorizesProxiedRequest checks that both replicas must allow a request.
func TestPeerAuthorizesProxiedRequest(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	w := newPeerFixture(t)
	peer := w.replica("", withRBAC)
	peer.waitUntilPublished()
	lax := w.replica("batch/v1=false")
	strict := w.replica("batch/v1=false", withRBAC)
	lax.waitUntilPublished()
	strict.waitUntilPublished()
	peer.mustSend(201, "POST", cronJobs, cronJob("one"))
	for name, a := range map[string]*testServer{"allowed here alone": lax, "allowed nowhere": strict} {
		if response := a.get(cronJobs+"/one", asUser("carol")...); response.code != http.StatusForbidden ||
			!strings.Contains(string(response.body), `User \"carol\" cannot get resource \"cronjobs\"`) {
			t.Errorf("%s: got status %d: %s, want status %d and a text with %q",
				name, response.code, response.body, http.StatusForbidden, `User \"carol\" cannot get resource \"cronjobs\"`)
		}
	}
	if n := strict.proxiedRequests(403); n != 0 {
		t.Errorf("got %v rerouted forbidden requests, want none", n)
	}
	peer.grant("carol", `{"apiGroups":["batch"],"resources":["cronjobs"],"verbs":["get"]}`)
	strict.waitUntil("allowed", func() bool { return strict.get(cronJobs+"/one", asUser("carol")...).code == 200 })
	strict.mustSend(403, "DELETE", cronJobs+"/one", "", asUser("carol")...)
}

// TestProxiedRequestIsNotProxiedAgain starts replicas that publish wrong storage versions about
// each other.
func TestProxiedRequestIsNotProxiedAgain(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	w := newPeerFixture(t)
	first := w.replica("autoscaling/v1=false")
	second := w.replica("autoscaling/v1=false")
	first.waitUntilPublished()
	second.waitUntilPublished()
	const said, scalers = storageVersionsPath +
		"/autoscaling.horizontalpodautoscalers", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
	v := first.mustSend(200, "GET", said, "")
	lie := bytes.ReplaceAll(v.body, []byte(`"servedVersions":["autoscaling/v2"]`),
		[]byte(`"servedVersions":["autoscaling/v1","autoscaling/v2"]`))
	if bytes.Equal(lie, v.body) {
		t.Fatalf("got an unchanged body %s, want a manipulated one", v.body)
	}
	first.mustSend(404, "GET", scalers, "")
	first.mustSend(200, "PUT", said+"/status", string(lie))
	first.waitUntil("carried on", func() bool { first.mustSend(404, "GET", scalers, ""); return first.proxiedRequests(404) > 0 })
	if n := second.proxiedRequests(404); n != 0 {
		t.Errorf("got %v requests rerouted back, want none", n)
	}
}

// TestUnservedResourceIsNotFound checks that stale records of former replicas do not matter.
func TestUnservedResourceIsNotFound(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	w := newPeerFixture(t)
	peer := w.replica("")
	peer.waitUntilPublished()
	api := w.replica("batch/v1=false")
	api.waitUntilPublished()
	const things = "/apis/example.com/v1/namespaces/default/things"
	peer.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	peer.mustSend(201, "POST", things, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
	peer.waitUntil("published", func() bool { return peer.get(storageVersionsPath+"/example.com.things").code == 200 })
	peer.mustSend(200, "DELETE", definitionsPath+"/things.example.com", "")
	peer.waitUntil("not defined", func() bool { return peer.get(definitionsPath+"/things.example.com").code == 404 })
	identity := peer.server.delegates.presence.Identity
	peer.stop()
	api.waitUntil("found to be gone", func() bool { return api.get(cronJobs+"/one").code == http.StatusServiceUnavailable })
	if response := api.get(things + "/a"); response.code != http.StatusNotFound {
		t.Errorf("undefined resource: got status %d: %s, want 404", response.code, response.body)
	}
	api.mustSend(200, "DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"+identity, "")
	api.waitUntil("not to be expected", func() bool { return api.get(cronJobs+"/one").code == http.StatusNotFound })
}

// TestUnreachableOrForgedPeersAreRejected checks that the request is rejected and discloses nothing.
func TestUnreachableOrForgedPeersAreRejected(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	fixture := newPeerFixture(t)
	b := fixture.replica("")
	b.waitUntilPublished()
	api := fixture.replica("batch/v1=false")
	api.waitUntilPublished()
	identity := b.server.delegates.presence.Identity
	b.stop()
	var asked atomic.Int32
	impostor := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer impostor.Close()
	at, err := url.Parse(impostor.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ port, want string }{
		{port: "1", want: "connection refused"},
		{port: at.Port(), want: "certificate"},
	} {
		end := api.publishAddress(identity, c.port)
		api.waitUntil("rejected because of "+c.want, func() bool {
			response := api.get(cronJobs + "/one")
			return response.code == http.StatusServiceUnavailable && strings.Contains(string(response.body), c.want)
		})
		end()
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("another server received %d requests, want none", n)
	}
	c := fixture.replica("")
	c.waitUntilPublished()
	c.mustSend(201, "POST", cronJobs, cronJob("one"))
	defer api.publishAddress(identity, "1")()
	inARow := 0
	api.waitUntil("proxying to the reachable peer only", func() bool {
		inARow++
		if api.get(cronJobs+"/one").code != 200 {
			inARow = 0
		}
		return inARow == 50
	})
}

// publishAddress publishes the address of a replica until end is called.
func (api *testServer) publishAddress(identity, port string) (end func()) {
	p := api.server.delegates.presence
	presence := &peers.Presence{
		Store:    p.Store,
		Root:     p.Root,
		Encode:   p.Encode,
		Decode:   p.Decode,
		Identity: identity,
		IP:       net.IPv4(127, 0, 0, 1),
		Logger:   slog.New(slog.DiscardHandler),
	}
	_, _ = fmt.Sscan(port, &presence.Port)
	ctx, cancel := context.WithCancel(api.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = presence.Run(ctx) }()
	api.waitUntil("said", func() bool { return presence.Check(nil) == nil })
	return func() { cancel(); <-done }
}

// TestInvalidPeerAddressesAreIgnored publishes invalid addresses.
func TestInvalidPeerAddressesAreIgnored(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := newPeerFixture(t).replica("")
	api.waitUntilPublished()
	presence := api.server.delegates.presence
	at := func(id, ip string, port int32) string {
		e := &corev1.Endpoints{
			Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: ip}}, Ports: []corev1.EndpointPort{{Port: port}}}},
		}
		e.Labels = map[string]string{"apiserverIdentity": id}
		value, err := presence.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		return string(value)
	}
	for key, value := range map[string]string{
		"garbage": "k8s\x00what",
		"empty":   "",
		"other":   at("another", "10.0.0.1", 1),
		"any":     at("any", "0.0.0.0", 1),
		"many":    at("many", "224.0.0.1", 1),
		"name":    at("name", "example.com", 1),
		"port":    at("port", "10.0.0.1", 0),
		"far":     at("far", "10.0.0.1", 65536),
		"good":    at("good", "fd00::1", 6443),
	} {
		api.overwrite(presence.Root+"/peerserverleases/"+key, value)
	}
	got, err := presence.Addresses(t.Context())
	if err != nil || len(got) != 2 || got["good"] != "[fd00::1]:6443" || got[presence.Identity] != strings.TrimPrefix(api.url, "https://") {
		t.Errorf("got addresses %v, %v, want good and this server", got, err)
	}
}

// TestUpgradedConnectionsThroughPeers runs commands in pods over both protocols.
func TestUpgradedConnectionsThroughPeers(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	kubelet := httptest.NewTLSServer(kubelettest.Kubelet{Run: func(_ context.Context, command []string, streams kubelettest.Streams) *metav1.Status {
		_, _ = io.Copy(streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStdin])
		return &metav1.Status{Status: metav1.StatusSuccess}
	}}.Handler())
	defer kubelet.Close()
	w := newPeerFixture(t)
	b := w.replica("")
	b.waitUntilPublished()
	b.createDefaultAccount()
	b.createNode("n", kubelet.URL)
	b.createPod("p", "n", "")
	api := w.replica("v1=false")
	api.waitUntilPublished()
	restConfig := &rest.Config{Host: api.url, TLSClientConfig: api.clientTLS()}
	at, err := url.Parse(api.url + podsPath + "/p/exec?stdin=true&stdout=true&command=cat")
	if err != nil {
		t.Fatal(err)
	}
	old, err := remotecommand.NewSPDYExecutor(restConfig, http.MethodPost, at)
	if err != nil {
		t.Fatal(err)
	}
	web, err := remotecommand.NewWebSocketExecutor(restConfig, http.MethodGet, at.String())
	if err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("0123456789abcdef", 20_000)
	for name, x := range map[string]remotecommand.Executor{"SPDY": old, "WebSocket": web} {
		var out bytes.Buffer
		if err := x.StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin:  strings.NewReader(big),
			Stdout: &out,
		}); err != nil || out.String() != big {
			t.Errorf("%s: got %d bytes back, %v, want all %d", name, out.Len(), err, len(big))
		}
	}
	api.waitUntil("counted", func() bool { return api.proxiedRequests(101) == 2 })
}

// clientTLS returns the client certificate.
func (api *testServer) clientTLS() rest.TLSClientConfig {
	api.t.Helper()
	pair := api.client.Transport.(*http.Transport).TLSClientConfig.Certificates[0]
	return rest.TLSClientConfig{
		Insecure: true,
		CertData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}),
		KeyData:  keyPEM(api.t, pair),
	}
}

func keyPEM(t *testing.T, pair tls.Certificate) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
