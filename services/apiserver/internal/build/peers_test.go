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

// newPeerFixture returns a fixture without replicas.
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

// proxiedRequests returns the number of proxied requests with a status code.
func (api *testServer) proxiedRequests(code int) float64 {
	return max(0, api.metricValue(fmt.Sprintf(`apiserver_rerouted_request_total{code="%d"}`, code)))
}

// cronJob returns a minimal cron job.
func cronJob(name string) string {
	return fmt.Sprintf(`{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":%q},"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`,
		name)
}

// TestUnservedRequestsAreProxiedToPeers checks reads, watches and writes of resources that only
// another replica serves.
func TestUnservedRequestsAreProxiedToPeers(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	fixture := newPeerFixture(t)
	full := fixture.replica("")
	full.waitUntilPublished()
	limited := fixture.replica("batch/v1=false,certificates.k8s.io/v1=false")
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
	fixture := newPeerFixture(t)
	peer := fixture.replica("", withRBAC)
	peer.waitUntilPublished()
	lax := fixture.replica("batch/v1=false")
	strict := fixture.replica("batch/v1=false", withRBAC)
	lax.waitUntilPublished()
	strict.waitUntilPublished()
	peer.mustSend(201, "POST", cronJobs, cronJob("one"))
	for name, replica := range map[string]*testServer{"allowed by this replica only": lax, "allowed by no replica": strict} {
		if response := replica.get(cronJobs+"/one", asUser("carol")...); response.code != http.StatusForbidden ||
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

// TestProxiedRequestIsNotProxiedAgain checks that a replica does not proxy a request of a peer, even if
// storage versions claim that the peer serves its resource.
func TestProxiedRequestIsNotProxiedAgain(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	fixture := newPeerFixture(t)
	first := fixture.replica("autoscaling/v1=false")
	second := fixture.replica("autoscaling/v1=false")
	first.waitUntilPublished()
	second.waitUntilPublished()
	const said, scalers = storageVersionsPath +
		"/autoscaling.horizontalpodautoscalers", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
	published := first.mustSend(200, "GET", said, "")
	forged := bytes.ReplaceAll(published.body, []byte(`"servedVersions":["autoscaling/v2"]`),
		[]byte(`"servedVersions":["autoscaling/v1","autoscaling/v2"]`))
	if bytes.Equal(forged, published.body) {
		t.Fatalf("got an unchanged body %s, want a manipulated one", published.body)
	}
	first.mustSend(404, "GET", scalers, "")
	first.mustSend(200, "PUT", said+"/status", string(forged))
	first.waitUntil("proxied by the first replica", func() bool { first.mustSend(404, "GET", scalers, ""); return first.proxiedRequests(404) > 0 })
	if n := second.proxiedRequests(404); n != 0 {
		t.Errorf("got %v requests rerouted back, want none", n)
	}
}

// TestUnservedResourceIsNotFound checks that storage versions of a former replica have no effect once its
// lease is deleted.
func TestUnservedResourceIsNotFound(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	fixture := newPeerFixture(t)
	peer := fixture.replica("")
	peer.waitUntilPublished()
	api := fixture.replica("batch/v1=false")
	api.waitUntilPublished()
	const things = "/apis/example.com/v1/namespaces/default/things"
	peer.mustSend(201, "POST", definitionsPath, definitionOf("things", "Thing", ""))
	peer.mustSend(201, "POST", things, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
	peer.waitUntil("published", func() bool { return peer.get(storageVersionsPath+"/example.com.things").code == 200 })
	peer.mustSend(200, "DELETE", definitionsPath+"/things.example.com", "")
	peer.waitUntil("not defined", func() bool { return peer.get(definitionsPath+"/things.example.com").code == 404 })
	identity := peer.server.delegates.presence.Identity
	peer.stop()
	api.waitUntil("rejected because the peer is gone", func() bool { return api.get(cronJobs+"/one").code == http.StatusServiceUnavailable })
	if response := api.get(things + "/a"); response.code != http.StatusNotFound {
		t.Errorf("undefined resource: got status %d: %s, want 404", response.code, response.body)
	}
	api.mustSend(200, "DELETE", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"+identity, "")
	api.waitUntil("unknown after the lease of the peer is deleted", func() bool { return api.get(cronJobs+"/one").code == http.StatusNotFound })
}

// TestUnreachableOrForgedPeersAreRejected checks that the request is rejected and discloses nothing.
func TestUnreachableOrForgedPeersAreRejected(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	fixture := newPeerFixture(t)
	stopped := fixture.replica("")
	stopped.waitUntilPublished()
	api := fixture.replica("batch/v1=false")
	api.waitUntilPublished()
	identity := stopped.server.delegates.presence.Identity
	stopped.stop()
	var impostorRequests atomic.Int32
	impostor := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { impostorRequests.Add(1) }))
	defer impostor.Close()
	impostorURL, err := url.Parse(impostor.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ port, want string }{
		{port: "1", want: "connection refused"},
		{port: impostorURL.Port(), want: "certificate"},
	} {
		end := api.publishAddress(identity, test.port)
		api.waitUntil("rejected because of "+test.want, func() bool {
			response := api.get(cronJobs + "/one")
			return response.code == http.StatusServiceUnavailable && strings.Contains(string(response.body), test.want)
		})
		end()
	}
	if n := impostorRequests.Load(); n != 0 {
		t.Errorf("another server received %d requests, want none", n)
	}
	test := fixture.replica("")
	test.waitUntilPublished()
	test.mustSend(201, "POST", cronJobs, cronJob("one"))
	defer api.publishAddress(identity, "1")()
	successes := 0
	api.waitUntil("proxying to the reachable peer only", func() bool {
		successes++
		if api.get(cronJobs+"/one").code != 200 {
			successes = 0
		}
		return successes == 50
	})
}

// publishAddress publishes the address of a replica until end is called.
func (api *testServer) publishAddress(identity, port string) (end func()) {
	own := api.server.delegates.presence
	presence := &peers.Presence{
		Store:    own.Store,
		Root:     own.Root,
		Encode:   own.Encode,
		Decode:   own.Decode,
		Identity: identity,
		IP:       net.IPv4(127, 0, 0, 1),
		Logger:   slog.New(slog.DiscardHandler),
	}
	_, _ = fmt.Sscan(port, &presence.Port)
	ctx, cancel := context.WithCancel(api.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = presence.Run(ctx) }()
	api.waitUntil("published", func() bool { return presence.Check(nil) == nil })
	return func() { cancel(); <-done }
}

// TestInvalidPeerAddressesAreIgnored checks that invalid published addresses are ignored.
func TestInvalidPeerAddressesAreIgnored(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	api := newPeerFixture(t).replica("")
	api.waitUntilPublished()
	presence := api.server.delegates.presence
	endpoints := func(id, ip string, port int32) string {
		published := &corev1.Endpoints{
			Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: ip}}, Ports: []corev1.EndpointPort{{Port: port}}}},
		}
		published.Labels = map[string]string{"apiserverIdentity": id}
		value, err := presence.Encode(published)
		if err != nil {
			t.Fatal(err)
		}
		return string(value)
	}
	for key, value := range map[string]string{
		"garbage": "k8s\x00what",
		"empty":   "",
		"other":   endpoints("another", "10.0.0.1", 1),
		"any":     endpoints("any", "0.0.0.0", 1),
		"many":    endpoints("many", "224.0.0.1", 1),
		"name":    endpoints("name", "example.com", 1),
		"port":    endpoints("port", "10.0.0.1", 0),
		"far":     endpoints("far", "10.0.0.1", 65536),
		"good":    endpoints("good", "fd00::1", 6443),
	} {
		api.overwrite(presence.Root+"/peerserverleases/"+key, value)
	}
	got, err := presence.Addresses(t.Context())
	if err != nil || len(got) != 2 || got["good"] != "[fd00::1]:6443" || got[presence.Identity] != strings.TrimPrefix(api.url, "https://") {
		t.Errorf("got addresses %v, %v, want good and this server", got, err)
	}
}

// TestUpgradedConnectionsThroughPeers checks that commands in pods work through a peer, over SPDY and over
// WebSocket.
func TestUpgradedConnectionsThroughPeers(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	kubelet := httptest.NewTLSServer(kubelettest.Kubelet{Run: func(_ context.Context, command []string, streams kubelettest.Streams) *metav1.Status {
		_, _ = io.Copy(streams[corev1.StreamTypeStdout], streams[corev1.StreamTypeStdin])
		return &metav1.Status{Status: metav1.StatusSuccess}
	}}.Handler())
	defer kubelet.Close()
	fixture := newPeerFixture(t)
	peer := fixture.replica("")
	peer.waitUntilPublished()
	peer.createDefaultAccount()
	peer.createNode("n", kubelet.URL)
	peer.createPod("p", "n", "")
	api := fixture.replica("v1=false")
	api.waitUntilPublished()
	restConfig := &rest.Config{Host: api.url, TLSClientConfig: api.clientTLS()}
	address, err := url.Parse(api.url + podsPath + "/p/exec?stdin=true&stdout=true&command=cat")
	if err != nil {
		t.Fatal(err)
	}
	spdy, err := remotecommand.NewSPDYExecutor(restConfig, http.MethodPost, address)
	if err != nil {
		t.Fatal(err)
	}
	webSocket, err := remotecommand.NewWebSocketExecutor(restConfig, http.MethodGet, address.String())
	if err != nil {
		t.Fatal(err)
	}
	input := strings.Repeat("0123456789abcdef", 20_000)
	for name, executor := range map[string]remotecommand.Executor{"SPDY": spdy, "WebSocket": webSocket} {
		var out bytes.Buffer
		if err := executor.StreamWithContext(t.Context(), remotecommand.StreamOptions{
			Stdin:  strings.NewReader(input),
			Stdout: &out,
		}); err != nil || out.String() != input {
			t.Errorf("%s: got %d bytes back, %v, want all %d", name, out.Len(), err, len(input))
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

// keyPEM returns the private key of a pair in PEM.
func keyPEM(t *testing.T, pair tls.Certificate) []byte {
	t.Helper()
	encoded, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}
