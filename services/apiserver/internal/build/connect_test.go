package build

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/config"
)

// createNode creates a node whose kubelet has a URL.
func (api *testServer) createNode(name, kubeletURL string) {
	api.t.Helper()
	parsed, err := url.Parse(kubeletURL)
	if err != nil {
		api.t.Fatal(err)
	}
	api.mustSend(201, "POST", "/api/v1/nodes",
		fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q},"status":{"addresses":[{"type":"InternalIP","address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`,
			name, parsed.Hostname(), parsed.Port()))
}

// echo responds with the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if r.URL.Path == "/moved" {
		http.Redirect(w, r, "/there", http.StatusFound)
		return
	}
	if strings.HasPrefix(r.URL.Path, "/containerLogs/") && strings.HasSuffix(r.URL.Path, "/broken") {
		http.Error(w, "the log is broken", http.StatusInternalServerError)
		return
	}
	w.Header().Set("X-Saw", r.Header.Get("X-Say"))
	received := r.Header.Get("Authorization")
	for name := range r.Header {
		if strings.HasPrefix(strings.ReplaceAll(name, "_", "-"), "X-Remote-") {
			received += name
		}
	}
	fmt.Fprintf(w, "%s %s %s auth=%q", r.Method, r.URL.RequestURI(), body, received)
}

// outside returns a non-loopback address of this machine, which proxy targets need.
func outside(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has no address but its own")
	return ""
}

// TestLogsAreProxiedToKubelet checks the requests for logs that a kubelet receives, and the errors
// for pods without one.
func TestLogsAreProxiedToKubelet(t *testing.T) {
	t.Parallel()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer kubelet.Close()
	api := startServer(t, nil)
	api.createDefaultAccount()
	api.createNode("n", kubelet.URL)
	api.createPod("p", "n", "")
	api.createPod("waiting", "", "")
	api.createPod("lost", "nowhere", "")
	api.mustSend(201, "POST", podsPath,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"two"},"spec":{"nodeName":"n","automountServiceAccountToken":false,"initContainers":[{"name":"i","image":"x"}],"containers":[{"name":"c","image":"x"},{"name":"broken","image":"x"}]}}`)

	// The kubelet returns the request that it receives.
	for _, test := range []struct {
		path string
		code int
		want string
	}{
		{path: "p/log", code: 200, want: `GET /containerLogs/default/p/c  auth=""`},
		{
			path: "p/log?container=c&tailLines=3&timestamps=true&previous=true&sinceSeconds=9&limitBytes=7&follow=true",
			code: 200,
			want: "GET /containerLogs/default/p/c?follow=true&limitBytes=7&previous=true&sinceSeconds=9&tailLines=3&timestamps=true ",
		},
		{path: "p/log?sinceTime=2024-05-06T07:08:09Z", code: 200, want: "sinceTime=2024-05-06T07%3A08%3A09Z "},
		{path: "two/log?container=i", code: 200, want: "GET /containerLogs/default/two/i "},
		{path: "waiting/log", code: 204},
		{path: "absent/log", code: 404, want: `pods \"absent\" not found`},
		{path: "lost/log", code: 404, want: `pods \"nowhere\" not found`},
		{path: "p/log?container=x", code: 400, want: "container x is not valid for pod p"},
		{path: "two/log", code: 400, want: "a container name must be specified for pod two, choose one of: [i c broken]"},
		{path: "two/log?container=broken", code: 500, want: "the log is broken"},
		{path: "p/log?tailLines=-1", code: 422, want: "tailLines: Invalid value: -1: must be greater than or equal to 0"},
		{path: "p/log?tailLines=x", code: 400, want: "invalid syntax"},
		{path: "p/log?limitBytes=0", code: 422, want: "limitBytes: Invalid value: 0: must be greater than 0"},
		{path: "p/log?sinceSeconds=0", code: 422, want: "sinceSeconds: Invalid value: 0: must be greater than 0"},
		{path: "p/log?sinceTime=yesterday", code: 400, want: "cannot parse"},
		{
			path: "p/log?sinceSeconds=1&sinceTime=2024-05-06T07:08:09Z",
			code: 422,
			want: "at most one of `sinceTime` or `sinceSeconds` may be specified",
		},
		{path: "p/log?stream=Stdout", code: 422, want: "stream: Forbidden: may not be specified"},
	} {
		response := api.mustSend(test.code, "GET", podsPath+"/"+test.path, "")
		if !strings.Contains(string(response.body), test.want) {
			t.Errorf("%s: got body %s, want it to contain %s", test.path, response.body, test.want)
		}
		if test.code == 200 && response.header.Get("Content-Type") != "text/plain" {
			t.Errorf("%s: got headers %v, want Content-Type text/plain", test.path, response.header)
		}
	}
	for path, want := range map[string]string{
		"p/exec?command=x&stdout=true":         "Upgrade request required",
		"p/attach?stdout=true":                 "Upgrade request required",
		"p/portforward":                        "Upgrade request required",
		"waiting/exec?command=x&stdout=true":   "pod waiting does not have a host assigned",
		"waiting/portforward":                  "pod waiting does not have a host assigned",
		"two/exec?command=x&stdout=true":       "a container name must be specified for pod two",
		"p/portforward?ports=x":                "invalid syntax",
		"p/exec?container=none&command=x&tty=": "container none is not valid for pod p",
	} {
		for _, method := range []string{"GET", "POST"} {
			if response := api.mustSend(400, method, podsPath+"/"+path, ""); !strings.Contains(string(response.body), want) {
				t.Errorf("%s %s: got body %s, want it to contain %q", method, path, response.body, want)
			}
		}
	}
	api.mustSend(405, "PUT", podsPath+"/p/exec", "")
	api.mustSend(405, "POST", podsPath+"/p/log", "")
}

// TestLogStreamReachesKubelet checks that the parameter stream of a log request reaches the kubelet.
func TestLogStreamReachesKubelet(t *testing.T) {
	t.Parallel()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer kubelet.Close()
	api := startServer(t, func(options *config.Options) {
		if err := options.Features.Set("PodLogsQuerySplitStreams=true"); err != nil {
			t.Fatal(err)
		}
	})
	api.createDefaultAccount()
	api.createNode("n", kubelet.URL)
	api.createPod("p", "n", "")
	for path, want := range map[string]string{
		"p/log": "stream=All", "p/log?stream=Stderr": "stream=Stderr",
	} {
		if response := api.mustSend(200, "GET", podsPath+"/"+path, ""); !strings.Contains(string(response.body), want) {
			t.Errorf("%s: got body %s, want it to contain %q", path, response.body, want)
		}
	}
	for path, want := range map[string]string{
		"p/log?stream=both":               `stream: Unsupported value: \"both\": supported values: \"All\", \"Stderr\", \"Stdout\"`,
		"p/log?stream=Stdout&tailLines=1": "mutually exclusive",
	} {
		if response := api.mustSend(422, "GET", podsPath+"/"+path, ""); !strings.Contains(string(response.body), want) {
			t.Errorf("%s: got body %s, want it to contain %q", path, response.body, want)
		}
	}
}

// TestLogsAreServedOnlyAsText checks the responses to requests for the log of a pod as an object.
func TestLogsAreServedOnlyAsText(t *testing.T) {
	t.Parallel()
	kubelet := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer kubelet.Close()
	api := startServer(t, nil)
	api.createDefaultAccount()
	api.createNode("n", kubelet.URL)
	api.createPod("p", "n", "")
	api.createPod("waiting", "", "")
	const forms = ";g=meta.k8s.io;v=v1;as="
	for _, test := range []struct {
		accept, want string
		code         int
	}{
		{accept: "application/json", code: 200},
		{accept: "text/plain", code: 406, want: "only the following media types are accepted"},
		{accept: "text/plain,*/*", code: 200},
		{accept: "application/json" + forms + "Table", code: 406, want: "only the following media types are accepted"},
		{accept: "application/json" + forms + "Table,*/*", code: 200},
		{
			accept: "application/json" + forms + "PartialObjectMetadata",
			code:   500,
			want:   "object does not implement the Object interfaces",
		},
		{
			accept: "application/json" + forms + "PartialObjectMetadataList",
			code:   406,
			want:   "you requested PartialObjectMetadataList, but the requested object is not a list (*rest.LocationStreamer)",
		},
	} {
		for _, name := range []string{"p", "waiting"} {
			code := test.code
			if code == 200 && name == "waiting" {
				code = 204
			}
			if response := api.mustSend(code, "GET", podsPath+"/"+name+"/log", "", "Accept", test.accept); !strings.Contains(string(response.body), test.want) {
				t.Errorf("%s, Accept %s: got body %s, want it to contain %q", name, test.accept, response.body, test.want)
			}
		}
	}
}

// TestProxySubresourcesReachTargets checks the requests that nodes, pods and services receive through the proxy
// subresources, and which targets are rejected.
func TestProxySubresourcesReachTargets(t *testing.T) {
	t.Parallel()
	host := outside(t)
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Skip(err)
	}

	// 1. Start a target, which stands for pods, and a kubelet. Both describe the request that they
	// receive.
	target := httptest.NewUnstartedServer(http.HandlerFunc(echo))
	target.Listener.Close()
	target.Listener = listener
	target.Start()
	defer target.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	kubelet := httptest.NewTLSServer(http.HandlerFunc(echo))
	defer kubelet.Close()
	kubeletURL, _ := url.Parse(kubelet.URL)

	// 2. Create pods, services and endpoints that refer to the target.
	api := startServer(t, nil)
	api.createDefaultAccount()
	api.createNode("n", kubelet.URL)
	api.createPod("p", "n", fmt.Sprintf(`{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}]}`, host, host))
	api.createPod("self", "n", `{"phase":"Running","podIP":"127.0.0.1","podIPs":[{"ip":"127.0.0.1"}]}`)
	api.createPod("none", "n", "")
	for name, test := range map[string]struct{ ports, ip string }{
		"declared": {ports: `[{"containerPort":` + port + `},{"containerPort":1}]`, ip: host},
		"portless": {ports: "[]", ip: host},
		"mapped":   {ports: "[]", ip: "::ffff:" + host},
	} {
		api.mustSend(201, "POST", podsPath,
			fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":{"nodeName":"n","automountServiceAccountToken":false,
			"containers":[{"name":"a","image":"x"},{"name":"b","image":"x","ports":%s}]}}`, name, test.ports))
		api.mustSend(200, "PATCH", podsPath+"/"+name+"/status",
			fmt.Sprintf(`{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}]}}`, test.ip, test.ip),
			"Content-Type", mergePatch)
	}
	api.mustSend(201, "POST", "/api/v1/nodes", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"bare"}}`)
	api.mustSend(201, "POST", servicesPath, service("s", `"ports":[{"name":"web","port":80},{"name":"dead","port":81}]`))
	api.mustSend(201, "POST", servicesPath, service("empty", `"ports":[{"port":80}]`))
	endpoints := func(name, ref string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Endpoints","metadata":{"name":%q},"subsets":[{"addresses":[{"ip":%q%s}],"ports":[{"name":"web","port":%s}]}]}`,
			name, host, ref, port)
	}
	const endpointsPath = "/api/v1/namespaces/default/endpoints"
	api.mustSend(201, "POST", endpointsPath, endpoints("s", `,"targetRef":{"kind":"Pod","namespace":"default","name":"p"}`))
	api.mustSend(201, "POST", endpointsPath, endpoints("empty", ""))
	api.mustSend(201, "POST", servicesPath, service("unsaid", `"ports":[{"name":"web","port":80}]`))
	api.mustSend(201, "POST", endpointsPath, endpoints("unsaid", `,"targetRef":{"namespace":"default","name":"p"}`))
	api.mustSend(201, "POST", servicesPath, service("alone", `"ports":[{"name":"web","port":80}]`))
	api.createPod("elsewhere", "n", `{"phase":"Running","podIP":"10.99.99.99","podIPs":[{"ip":"10.99.99.99"}]}`)
	// Endpoints may contain any address, but it must be that of a pod.
	for name, ref := range map[string]string{
		"forged":  `,"targetRef":{"kind":"Pod","namespace":"default","name":"elsewhere"}`,
		"foreign": `,"targetRef":{"kind":"Pod","namespace":"other","name":"p"}`,
		"lost":    `,"targetRef":{"kind":"Pod","namespace":"default","name":"absent"}`,
		"odd":     `,"targetRef":{"kind":"Node","namespace":"default","name":"p"}`,
	} {
		api.mustSend(201, "POST", servicesPath, service(name, `"ports":[{"name":"web","port":80}]`))
		api.mustSend(201, "POST", endpointsPath, endpoints(name, ref))
		response := api.mustSend(503, "GET", "/api/v1/namespaces/default/services/"+name+":web/proxy/", "")
		if want := fmt.Sprintf("no endpoints available for service %q", name); response.field("message") != want {
			t.Errorf("%s: got %v, want %v", name, response.field("message"), want)
		}
	}
	api.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

	// 3. Send requests through all kinds of paths. Each target returns the request, and errors name
	// the cause.
	for _, test := range []struct {
		method, path string
		code         int
		want         string
	}{
		{method: "GET", path: "/api/v1/nodes/n/proxy/healthz?x=1", code: 200, want: "GET /healthz?x=1 "},
		{method: "GET", path: "/api/v1/nodes/n:" + kubeletURL.Port() + "/proxy/a/b/", code: 200, want: "GET /a/b/ "},
		{method: "POST", path: "/api/v1/nodes/n/proxy/run", code: 200, want: "POST /run said "},
		{method: "PATCH", path: "/api/v1/nodes/n/proxy/run", code: 200, want: "PATCH /run said "},
		{method: "GET", path: "/api/v1/nodes/absent/proxy/metrics", code: 404, want: `nodes \"absent\" not found`},
		{method: "GET", path: "/api/v1/nodes/n:1/proxy/", code: 400, want: "address not allowed"},
		{method: "GET", path: "/api/v1/nodes/bare/proxy/metrics", code: 500, want: "no preferred addresses found"},
		{method: "GET", path: "/api/v1/namespaces/default/pods/declared/proxy/x", code: 200, want: "GET /x "},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/pods/declared:1/proxy/x",
			code:   503,
			want:   "error trying to reach service",
		},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/pods/portless/proxy/x",
			code:   503,
			want:   net.JoinHostPort(host, "80") + ":",
		},
		{method: "GET", path: "/api/v1/namespaces/default/pods/mapped/proxy/x", code: 503, want: "connection refused"},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/pods/p:" + port + "/proxy/x%20y?q=%2F",
			code:   200,
			want:   "GET /x%20y?q=%2F ",
		},
		{method: "GET", path: "/api/v1/namespaces/default/pods/http:p:" + port + "/proxy/", code: 200, want: "GET / "},
		{method: "GET", path: "/api/v1/namespaces/default/pods/p:" + port + "/proxy", code: 301},
		{
			method: "DELETE",
			path:   "/api/v1/namespaces/default/pods/p:" + port + "/proxy/x",
			code:   200,
			want:   "DELETE /x said ",
		},
		{method: "HEAD", path: "/api/v1/namespaces/default/pods/p:" + port + "/proxy/x", code: 200},
		{method: "GET", path: "/api/v1/namespaces/default/pods/p:" + port + "/proxy/moved", code: 302},
		{method: "GET", path: "/api/v1/namespaces/default/pods/p:1/proxy/", code: 503, want: "error trying to reach service"},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/pods/self:" + port + "/proxy/",
			code:   400,
			want:   "address not allowed",
		},
		{method: "GET", path: "/api/v1/namespaces/default/pods/none:1/proxy/", code: 400, want: "address not allowed"},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/pods/a:b:c:d/proxy/",
			code:   400,
			want:   `invalid pod request \"a:b:c:d\"`,
		},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/pods/absent:1/proxy/",
			code:   404,
			want:   `pods \"absent\" not found`,
		},
		{method: "GET", path: "/api/v1/namespaces/default/services/s:web/proxy/here", code: 200, want: "GET /here "},
		{method: "GET", path: "/api/v1/namespaces/default/services/s:80/proxy/here", code: 200, want: "GET /here "},
		{
			method: "PUT",
			path:   "/api/v1/namespaces/default/services/http:s:web/proxy/here",
			code:   200,
			want:   "PUT /here said ",
		},
		{method: "GET", path: "/api/v1/namespaces/default/services/unsaid:web/proxy/here", code: 200, want: "GET /here "},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/services/alone:web/proxy/",
			code:   404,
			want:   `services \"alone\" not found`,
		},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/services/a:b:c:d/proxy/",
			code:   400,
			want:   `invalid service request \"a:b:c:d\"`,
		},
		{method: "GET", path: "/api/v1/nodes/a:b:c:d/proxy/", code: 400, want: `invalid node request \"a:b:c:d\"`},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/services/s:dead/proxy/",
			code:   503,
			want:   `no endpoints available for service \"s\"`,
		},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/services/s:99/proxy/",
			code:   503,
			want:   `no service port 99 found for service \"s\"`,
		},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/services/empty:web/proxy/",
			code:   503,
			want:   `no endpoints available for service \"empty\"`,
		},
		{
			method: "GET",
			path:   "/api/v1/namespaces/default/services/absent/proxy/",
			code:   404,
			want:   `services \"absent\" not found`,
		},
	} {
		body := ""
		if strings.Contains(test.want, "said") {
			body = "said"
		}
		response := api.mustSend(test.code, test.method, test.path, body, "X-Say", "hello", "Content-Type", "text/x", "Accept", "image/png")
		if !strings.Contains(string(response.body), test.want) {
			t.Errorf("%s %s: %s\nlacks %s", test.method, test.path, response.body, test.want)
		}
		if test.code == 200 && response.header.Get("X-Saw") != "hello" {
			t.Errorf("%s %s: got headers %v, want X-Saw hello from the target", test.method, test.path, response.header)
		}
	}
	// A target must not receive user headers that it may trust.
	for _, path := range []string{"nodes/n", "namespaces/default/pods/p:" + port, "namespaces/default/services/s:web"} {
		response := api.mustSend(200, "GET", "/api/v1/"+path+"/proxy/x", "", "Authorization", "Bearer secret",
			"X-Remote-User", "root", "X-Remote-Group", "system:masters", "X-Remote-Uid", "0", "X-Remote-Extra-Scopes", "all",
			"X_Remote_User", "root")
		if !strings.HasSuffix(string(response.body), ` auth=""`) {
			t.Errorf("%s: target received %s, want no user headers", path, response.body)
		}
	}
	response := api.mustSend(302, "GET", "/api/v1/namespaces/default/pods/p:"+port+"/proxy/moved", "")
	if to := response.header.Get("Location"); to != "/api/v1/namespaces/default/pods/p:"+port+"/proxy/there" {
		t.Errorf("got redirection to %s, want one below the path of the proxy", to)
	}
	// Connections that admission rejects are not opened.
	api.mustSend(201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",
		"metadata":{"name":"no"},"webhooks":[{"name":"no.example.com","clientConfig":{"url":"https://127.0.0.1:1/"},"failurePolicy":"Fail","sideEffects":"None","admissionReviewVersions":["v1"],
		"rules":[{"operations":["CONNECT"],"apiGroups":[""],"apiVersions":["v1"],"resources":["nodes/proxy","pods/proxy","services/proxy"]}]}]}`)
	api.waitUntil("rejected", func() bool { return api.get("/api/v1/nodes/n/proxy/x").code == 500 })
	for _, path := range []string{"nodes/n", "namespaces/default/pods/p:" + port, "namespaces/default/services/s:web"} {
		if response := api.mustSend(500, "GET", "/api/v1/"+path+"/proxy/x", ""); !strings.Contains(string(response.body), "no.example.com") {
			t.Errorf("%s: got body %s, want the webhook no.example.com named", path, response.body)
		}
	}
}

// TestInvalidProxyTargetsAreRejected checks that invalid ports in requests and invalid addresses of nodes
// cause an error response.
func TestInvalidProxyTargetsAreRejected(t *testing.T) {
	t.Parallel()
	api := startServer(t, nil)
	api.createDefaultAccount()
	nodeAt := func(name, address string) {
		api.mustSend(201, "POST", "/api/v1/nodes",
			fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q},"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`,
				name, address))
	}
	nodeAt("n", "10.99.99.99")
	api.createPod("p", "n", `{"phase":"Running","podIP":"10.99.99.99","podIPs":[{"ip":"10.99.99.99"}]}`)
	const pods, nodes = "/api/v1/namespaces/default/pods/", "/api/v1/nodes/"
	for _, name := range []string{
		"p:abc", "p:-1", "p:+1", "p:1%40evil", "p:1%3f", "http:p:1%23", "p:1%20", "p:%25", "https:p:http",
	} {
		response := api.mustSend(400, "GET", pods+name+"/proxy/", "")
		if want := "invalid pod request "; !strings.HasPrefix(fmt.Sprint(response.field("message")), want) {
			t.Errorf("%s: got body %s, want a message that begins with %q", name, response.body, want)
		}
	}
	for _, name := range []string{"n:abc", "n:1%40evil"} {
		response := api.mustSend(400, "GET", nodes+name+"/proxy/", "")
		if want := "invalid node request "; !strings.HasPrefix(fmt.Sprint(response.field("message")), want) {
			t.Errorf("%s: got body %s, want a message that begins with %q", name, response.body, want)
		}
	}
	for i, address := range []string{"bad host", "user@evil", "evil/x", "evil?x", "evil#x", "[::1"} {
		node := fmt.Sprint("bad", i)
		pod := fmt.Sprint("on", i)
		nodeAt(node, address)
		api.createPod(pod, node, "")
		for _, path := range []string{
			nodes + node + "/proxy/", pods + pod + "/exec?command=x&stdout=1", pods + pod + "/attach",
			pods + pod + "/portforward", pods + pod + "/log",
		} {
			response := api.mustSend(503, "GET", path, "")
			if !strings.HasPrefix(fmt.Sprint(response.field("message")), "error trying to reach service: ") {
				t.Errorf("%q, %s: got body %s, want a message that begins with %q", address, path, response.body, "error trying to reach service: ")
			}
		}
	}
}
