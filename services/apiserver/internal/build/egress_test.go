package build

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/tools/clientcmd"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/proxy/egress/egresstest"
	"binnacle/services/apiserver/internal/security/authz/authzconfig"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

// host returns host:port of a URL.
func host(t *testing.T, at string) string {
	t.Helper()
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// TestEgressProxies checks that a server with egress proxies resolves names through them, and makes
// no direct connection.
func TestEgressProxies(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	var toEtcd, toCluster, toControl egresstest.Proxy
	etcdListener, etcdSocket := egresstest.Socket(t)
	toEtcd.Connect(t, etcdListener)
	clusterListener, clusterSocket := egresstest.Socket(t)
	toCluster.ServeGRPC(t, clusterListener)
	cert, key := egresstest.WriteCertificate(t)
	controlListener := egresstest.ListenTLS(t, cert, key)
	toControl.Connect(t, controlListener)

	toEtcd.Forward("etcd.invalid:2379", host(t, etcdtest.ListeningServer(t).Endpoint()))
	webhook := newAuthorizerWebhook(t)
	webhook.setResponse(200, authorizationv1.SubjectAccessReviewStatus{Allowed: true})
	kubeconfig, err := clientcmd.LoadFromFile(webhook.file)
	if err != nil {
		t.Fatal(err)
	}
	toControl.Forward("authority.invalid:443", host(t, kubeconfig.Clusters["c"].Server))
	kubeconfig.Clusters["c"].Server = "https://authority.invalid"
	kubeconfig.Clusters["c"].TLSServerName = "example.com"
	if err := clientcmd.WriteToFile(*kubeconfig, webhook.file); err != nil {
		t.Fatal(err)
	}
	api := startServer(t, func(options *config.Options) {
		options.Etcd.Backend = config.BackendEtcd
		options.Etcd.Servers = []string{"http://etcd.invalid:2379"}
		options.Authorization.Modes = []string{authzconfig.Webhook}
		options.Authorization.WebhookConfigFile = webhook.file
		options.Authorization.WebhookVersion = "v1"
		options.Compatibility.EgressSelector = writeFile(t, filepath.Join(t.TempDir(), "egress"), fmt.Sprintf(`
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: etcd
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %s}}}
- name: cluster
  connection: {proxyProtocol: GRPC, transport: {uds: {udsName: %s}}}
- name: controlplane
  connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: "https://%s", tlsConfig: {caBundle: %s, clientCert: %s, clientKey: %s}}}}
`, etcdSocket, clusterSocket, controlListener.Addr(), cert, cert, key))
	})
	api.mustSend(201, "POST", configMaps, configMap("kept"))
	api.mustSend(200, "GET", configMaps, "", asUser("alice")...)
	if got := len(webhook.reviews()); got != 1 {
		t.Errorf("got %d calls of the authorization webhook, want 1", got)
	}

	kubelet := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer kubelet.Close()
	toCluster.Forward("node.invalid:10250", host(t, kubelet.URL))
	api.createDefaultAccount()
	api.createNode("n", "https://node.invalid:10250")
	api.createPod("p", "n", "")
	if response := api.mustSend(200, "GET", podsPath+"/p/log", ""); !strings.Contains(string(response.body), "/containerLogs/default/p/c") {
		t.Errorf("got logs %s, want those of the path /containerLogs/default/p/c", response.body)
	}

	ext := &extension{}
	ext.Server = httptest.NewTLSServer(ext)
	defer ext.Close()
	toCluster.Forward("ext.invalid:443", host(t, ext.URL))
	api.mustSend(201, "POST", "/api/v1/namespaces/default/services",
		`{"metadata":{"name":"ext"},"spec":{"type":"ExternalName","externalName":"ext.invalid"}}`)
	api.mustSend(201, "POST", apiServicesPath,
		`{"metadata":{"name":"v1.ext.test"},"spec":{"group":"ext.test","version":"v1","groupPriorityMinimum":1000,"versionPriority":15,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"ext"}}}`)
	api.waitUntil("available", func() bool { return strings.HasPrefix(api.availableCondition(), "True") })
	api.mustSend(200, "GET", "/apis/ext.test/v1/namespaces/default/things/t", "")

	hook := httptest.NewTLSServer(http.NotFoundHandler())
	defer hook.Close()
	toControl.Forward("hook.invalid:443", host(t, hook.URL))
	toCluster.Forward("service.invalid:443", host(t, hook.URL))
	api.mustSend(201, "POST", "/api/v1/namespaces/default/services",
		`{"metadata":{"name":"hook"},"spec":{"type":"ExternalName","externalName":"service.invalid"}}`)
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	for name, client := range map[string]string{
		"url": `"url":"https://hook.invalid/"`, "service": `"service":{"namespace":"default","name":"hook"}`,
	} {
		api.mustSend(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
			fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[{"name":"h.ex.test","clientConfig":{%s,"caBundle":%q},"sideEffects":"None","admissionReviewVersions":["v1"],
			"objectSelector":{"matchLabels":{"for":%q}},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"],"operations":["CREATE"]}]}]}`, name, client, bundle, name))
		response := api.mustSend(500, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"x","labels":{"for":%q}}}`, name))
		if !strings.Contains(string(response.body), "certificate is valid for example.com") {
			t.Errorf("%s: got body %s, want it to contain %q", name, response.body, "certificate is valid for example.com")
		}
	}
	for what, test := range map[string]struct {
		proxy *egresstest.Proxy
		want  []string
	}{
		"etcd": {proxy: &toEtcd, want: []string{"etcd.invalid:2379"}},
		"cluster": {
			proxy: &toCluster,
			want:  []string{"ext.invalid:443", "node.invalid:10250", "service.invalid:443"},
		},
		"control plane": {proxy: &toControl, want: []string{"authority.invalid:443", "hook.invalid:443"}},
	} {
		if asked := test.proxy.RequestedAddresses(); !slices.Equal(asked, test.want) {
			t.Errorf("%s: asked for %v, want %v", what, asked, test.want)
		}
	}
	if response := api.get("/metrics"); !strings.Contains(string(response.body),
		`apiserver_egress_dialer_dial_start_total{protocol="grpc",transport="uds"}`) {
		t.Error("got no metric of dials through a gRPC proxy, want one")
	}
}
