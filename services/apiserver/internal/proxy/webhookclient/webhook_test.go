package webhookclient_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

// newWebhooks returns a Webhooks for ConfigMaps. Every service resolves to address.
func newWebhooks(t *testing.T, address string) *webhookclient.Webhooks {
	return newWebhooksWith(t, address, 1<<16, webhookclient.Dialers{})
}

// newLargeWebhooks returns a Webhooks with large response limits and small socket buffers.
func newLargeWebhooks(t *testing.T) *webhookclient.Webhooks {
	return newWebhooksWith(t, "", 32<<20,
		webhookclient.Dialers{URLs: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if c, ok := c.(*net.TCPConn); ok {
				_ = c.SetReadBuffer(32 << 10)
			}
			return c, err
		}})
}

// newWebhooksWith returns a Webhooks whose responses have at most maxResponse bytes.
func newWebhooksWith(t *testing.T, address string, maxResponse int64, dialers webhookclient.Dialers) *webhookclient.Webhooks {
	t.Helper()
	responses := webhookclient.NewResponseLimiter(8)
	responses.Timeout = time.Hour
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	webhooks, err := webhookclient.NewWebhooks(webhookclient.WebhooksConfig{
		Scheme:      scheme,
		Versions:    []schema.GroupVersion{corev1.SchemeGroupVersion},
		Timeout:     10 * time.Second,
		MaxResponse: maxResponse,
		Dialers:     dialers,
		Responses:   responses,
		Resolve: func(_ context.Context, namespace, name string, port int32) (string, error) {
			if name == "absent" {
				return "", fmt.Errorf("service %q not found", name)
			}
			return address, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(webhooks.Close)
	return webhooks
}

// caBundle returns the certificate of a server in PEM.
func caBundle(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

// callWebhook calls a webhook with a ConfigMap and returns the response.
func callWebhook(t *testing.T, w *webhookclient.Webhooks, hook *webhookclient.Webhook) (*corev1.ConfigMap, error) {
	t.Helper()
	response := &corev1.ConfigMap{}
	return response, w.Call(t.Context(), hook, webhookclient.CallOptions{},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "question"}}, response)
}

// TestWebhookByURLAndByService checks the requests that webhooks receive, and the errors of calls
// that fail.
func TestWebhookByURLAndByService(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(webhooks http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		webhooks.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/elsewhere":
			http.Redirect(webhooks, r, "/", http.StatusFound)
		case "/long":
			fmt.Fprintf(webhooks, `{"kind":"ConfigMap","apiVersion":"v1","data":{"a":%q}}`, strings.Repeat("x", 1<<17))
		case "/broken":
			webhooks.Header().Set("Content-Type", "text/plain")
			webhooks.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(webhooks, "broken")
		default:
			fmt.Fprintf(webhooks, `{"kind":"ConfigMap","apiVersion":"v1","data":{"uri":%q,"host":%q,"agent":%q,"proto":%q,"asked":%q}}`,
				r.RequestURI, r.Host, r.UserAgent(), r.Proto, body)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	webhooks := newWebhooks(t, server.Listener.Addr().String())

	// 1. By URL: the query has the timeout, and the request has the headers of kube-apiserver.
	got, err := callWebhook(t, webhooks, &webhookclient.Webhook{URL: server.URL + "/convert", CABundle: caBundle(server)})
	if err != nil {
		t.Fatal(err)
	}
	d := got.Data
	if d["uri"] != "/convert?timeout=10s" ||
		d["agent"] != "kube-apiserver-admission" ||
		d["proto"] != "HTTP/2.0" ||
		!strings.Contains(d["asked"], `"name":"question"`) {
		t.Errorf("request = %v, want POST /convert?timeout=10s over HTTP/2.0 from kube-apiserver-admission", d)
	}
	hook := &webhookclient.Webhook{URL: server.URL + "/short", CABundle: caBundle(server)}
	err = webhooks.Call(t.Context(), hook, webhookclient.CallOptions{Timeout: 3 * time.Second}, &corev1.ConfigMap{}, got)
	if err != nil || got.Data["uri"] != "/short?timeout=3s" {
		t.Errorf("with a timeout: got %v, %v, want the URI /short?timeout=3s", got.Data, err)
	}

	// 2. By service: the certificate must be that of the service. The one of the test server is
	// valid only for example.com.
	_, err = callWebhook(t, webhooks, &webhookclient.Webhook{
		Service:  &webhookclient.ServiceReference{Namespace: "ns", Name: "hook", Path: "/p", Port: 8443},
		CABundle: caBundle(server),
	})
	if err == nil ||
		!strings.Contains(err.Error(), "not hook.ns.svc") ||
		!strings.Contains(err.Error(), `Post "https://hook.ns.svc:8443/p?timeout=10s"`) {
		t.Errorf("certificate of another service: got %v", err)
	}

	// 3. Errors name the cause.
	for want, hook := range map[string]*webhookclient.Webhook{
		`Post "https://absent.ns.svc:443/?timeout=10s": service "absent" not found`: {
			Service:  &webhookclient.ServiceReference{Namespace: "ns", Name: "absent"},
			CABundle: caBundle(server),
		},
		"unable to parse URL":                                                         {URL: "https://%zz"},
		"unable to load root certificates":                                            {URL: server.URL, CABundle: []byte("x")},
		"certificate signed by unknown authority":                                     {URL: server.URL},
		"the response of the webhook is too long":                                     {URL: server.URL + "/long", CABundle: caBundle(server)},
		`an error on the server ("broken") has prevented the request from succeeding`: {URL: server.URL + "/broken", CABundle: caBundle(server)},
		"the server responded with the status code 302": {
			URL:      server.URL + "/elsewhere",
			CABundle: caBundle(server),
		},
	} {
		if _, err := callWebhook(t, webhooks, hook); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("call of %+v: got error %v, want %q", hook, err, want)
		}
	}
}

// TestServiceResolvesToItsClusterIPOrExternalName checks the addresses and errors that Resolve returns without Endpoints.
func TestServiceResolvesToItsClusterIPOrExternalName(t *testing.T) {
	known := map[string]corev1.ServiceSpec{
		"pending":    {Ports: []corev1.ServicePort{{Port: 443}}},
		"kubernetes": {ClusterIP: "10.0.0.8", Ports: []corev1.ServicePort{{Port: 443}}},
		"a":          {ClusterIP: "10.0.0.7", Ports: []corev1.ServicePort{{Port: 443}, {Port: 8443}}},
		"none":       {ClusterIP: "None", Ports: []corev1.ServicePort{{Port: 443}}},
		"far":        {Type: corev1.ServiceTypeExternalName, ExternalName: "hooks.example.com"},
	}
	services := &webhookclient.Services{
		LocalAddress: "127.0.0.1:6443",
		Get: func(_ context.Context, namespace, name string) (*corev1.Service, error) {
			if name == "broken" {
				return nil, errors.New("not ready")
			}
			spec, ok := known[name]
			if !ok {
				return nil, apierrors.NewNotFound(corev1.Resource("services"), name)
			}
			return &corev1.Service{Spec: spec}, nil
		},
	}
	for _, test := range []struct {
		namespace, name string
		port            int32
		want, problem   string
	}{
		{namespace: "n", name: "a", port: 8443, want: "10.0.0.7:8443", problem: ""},
		{namespace: "n", name: "a", port: 1, want: "", problem: `no service port 1 found for service "a"`},
		{namespace: "n", name: "none", port: 443, want: "", problem: `cannot route to service with ClusterIP "None"`},
		{namespace: "n", name: "pending", port: 443, want: "", problem: `cannot route to service with ClusterIP ""`},
		{namespace: "n", name: "kubernetes", port: 443, want: "10.0.0.8:443", problem: ""},
		{namespace: "default", name: "a", port: 443, want: "10.0.0.7:443", problem: ""},
		{namespace: "n", name: "far", port: 443, want: "hooks.example.com:443", problem: ""},
		{namespace: "n", name: "absent", port: 443, want: "", problem: `service "absent" not found`},
		{namespace: "n", name: "broken", port: 443, want: "", problem: "not ready"},
		{namespace: "default", name: "kubernetes", port: 443, want: "127.0.0.1:6443", problem: ""},
	} {
		got, err := services.Resolve(t.Context(), test.namespace, test.name, test.port)
		if got != test.want || fmt.Sprint(err) != test.problem && (err != nil || test.problem != "") {
			t.Errorf("%s/%s:%d: got %q, %v; want %q, %s", test.namespace, test.name, test.port, got, err, test.want, test.problem)
		}
	}
}

// TestServiceResolvesToReadyEndpointWithoutClusterIP checks that a ready endpoint is returned if cluster IPs are not reachable.
func TestServiceResolvesToReadyEndpointWithoutClusterIP(t *testing.T) {
	known := map[string]corev1.ServiceSpec{
		"a":    {ClusterIP: "10.0.0.7", Ports: []corev1.ServicePort{{Name: "x", Port: 443}, {Name: "y", Port: 8443}}},
		"none": {ClusterIP: "None", Ports: []corev1.ServicePort{{Name: "x", Port: 443}}},
		"far": {
			Type:         corev1.ServiceTypeExternalName,
			ExternalName: "hooks.example.com",
			Ports:        []corev1.ServicePort{{Name: "x", Port: 443}},
		},
		"empty":  {Ports: []corev1.ServicePort{{Port: 443}}},
		"absent": {Ports: []corev1.ServicePort{{Port: 443}}},
		"broken": {Ports: []corev1.ServicePort{{Port: 443}}},
	}
	ready := []corev1.EndpointSubset{
		{
			Addresses:         []corev1.EndpointAddress{{IP: "1.1.1.1"}},
			NotReadyAddresses: []corev1.EndpointAddress{{IP: "1.1.1.9"}},
			Ports:             []corev1.EndpointPort{{Name: "x", Port: 1}, {Name: "y", Port: 2}},
		},
		{Addresses: []corev1.EndpointAddress{{IP: "fd00::1"}}, Ports: []corev1.EndpointPort{{Name: "x", Port: 3}}},
		{NotReadyAddresses: []corev1.EndpointAddress{{IP: "1.1.1.2"}}, Ports: []corev1.EndpointPort{{Name: "x", Port: 1}}},
	}
	services := &webhookclient.Services{
		Get: func(_ context.Context, namespace, name string) (*corev1.Service, error) {
			return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: known[name]}, nil
		},
		Endpoints: func(_ context.Context, namespace, name string) (*corev1.Endpoints, error) {
			switch {
			case namespace != "n":
				return nil, errors.New("another namespace")
			case name == "broken":
				return &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{
					Addresses: ready[0].Addresses,
					Ports:     []corev1.EndpointPort{{Port: 4}},
				}}}, errors.New("not ready")
			case name == "absent":
				return nil, apierrors.NewNotFound(corev1.Resource("endpoints"), name)
			case name == "empty":
				return &corev1.Endpoints{}, nil
			}
			return &corev1.Endpoints{Subsets: ready}, nil
		},
	}
	for _, test := range []struct {
		name    string
		port    int32
		want    []string
		problem string
	}{
		{name: "a", port: 443, want: []string{"1.1.1.1:1", "[fd00::1]:3"}, problem: ""},
		{name: "none", port: 443, want: []string{"1.1.1.1:1", "[fd00::1]:3"}, problem: ""},
		{name: "a", port: 8443, want: []string{"1.1.1.1:2"}, problem: ""},
		{name: "a", port: 1, want: nil, problem: `no service port 1 found for service "a"`},
		{name: "far", port: 443, want: nil, problem: `unsupported service type "ExternalName"`},
		{name: "empty", port: 443, want: nil, problem: `no endpoints available for service "empty"`},
		{name: "absent", port: 443, want: nil, problem: `no endpoints available for service "absent"`},
		{name: "broken", port: 443, want: nil, problem: "not ready"},
	} {
		seen := map[string]bool{}
		for range 64 {
			got, err := services.Resolve(t.Context(), "n", test.name, test.port)
			if err != nil || test.problem != "" {
				if fmt.Sprint(err) != test.problem {
					t.Errorf("%s:%d: %v, want %s", test.name, test.port, err, test.problem)
				}
				break
			}
			seen[got] = true
		}
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, test.want) {
			t.Errorf("%s:%d: got one of %v, want %v", test.name, test.port, got, test.want)
		}
	}
}
