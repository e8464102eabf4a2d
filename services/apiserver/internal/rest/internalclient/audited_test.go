package internalclient_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/storage"
)

// recorder records the audit events of completed requests.
type recorder struct {
	level audit.Level
	lines []string
}

func (s *recorder) Decide(*requestinfo.Info, *request.User) audit.Decision {
	return audit.Decision{Level: s.level}
}

func (s *recorder) Process(_ context.Context, e *audit.Event) error {
	if e.Stage != audit.RequestReceived {
		s.lines = append(s.lines, fmt.Sprintf("%s %s of %q: %d, request%s, response%s", e.Verb, e.URI, e.Object.Name, e.Status.Code, kindOf(e.RequestObject), kindOf(e.ResponseObject)))
	}
	return nil
}

func kindOf(text []byte) string {
	if text == nil {
		return ""
	}
	var of struct{ Kind string }
	if err := json.Unmarshal(text, &of); err != nil {
		return " " + err.Error()
	}
	return " " + of.Kind
}

// TestAuditOfInternalWrites checks that internal requests are audited like requests of clients.
func TestAuditOfInternalWrites(t *testing.T) {
	w := newFixture(t)
	s := &store{}
	cache := w.cache(t, s, true)
	m := configs.Named("m")
	sent := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"a": name}}
	}
	const path = "/api/v1/namespaces/ns/configmaps"
	for name, c := range map[string]struct {
		level audit.Level
		fails error
		do    func(context.Context, *internalclient.Client) error
		want  string
	}{
		"create": {audit.RequestResponse, nil, func(ctx context.Context, own *internalclient.Client) error {
			return own.Create(ctx, configs, sent("n"))
		}, "create " + path + ` of "n": 201, request ConfigMap, response ConfigMap`},
		"create by a name": {audit.RequestResponse, nil, func(ctx context.Context, own *internalclient.Client) error {
			return own.Create(ctx, configs.Named("n"), sent("n"))
		}, "create " + path + ` of "n": 201, request ConfigMap, response ConfigMap`},
		"create invalid object": {audit.RequestResponse, nil, func(ctx context.Context, own *internalclient.Client) error {
			return own.Create(ctx, configs.Named("n"), make(chan int))
		}, "create " + path + ` of "": 500, request, response Status`},
		"create subresource": {audit.RequestResponse, nil, func(ctx context.Context, own *internalclient.Client) error {
			return own.Create(ctx, internalclient.Of("", "v1", "pods", "ns").Named("p").Under("status"), make(chan int))
		}, `create /api/v1/namespaces/ns/pods/p/status of "p": 500, request, response Status`},
		"update cluster-scoped object": {audit.RequestResponse, nil, func(ctx context.Context, own *internalclient.Client) error {
			return own.Update(ctx, internalclient.Of("rbac.authorization.k8s.io", "v1", "clusterroles", "").Named("a:b/c"), make(chan int), nil)
		}, `update /apis/rbac.authorization.k8s.io/v1/clusterroles/a:b%2Fc of "a:b/c": 500, request, response Status`},
		"update": {audit.RequestResponse, nil, func(ctx context.Context, own *internalclient.Client) error {
			return own.Update(ctx, m, sent("m"), nil)
		}, "update " + path + `/m of "m": 200, request ConfigMap, response ConfigMap`},
		"update at level Request": {audit.Request, nil, func(ctx context.Context, own *internalclient.Client) error {
			return own.Update(ctx, m, sent("m"), nil)
		}, "update " + path + `/m of "m": 200, request ConfigMap, response`},
		"update that fails": {audit.Request, &storage.PremiseError{}, func(ctx context.Context, own *internalclient.Client) error {
			return own.Update(ctx, m, sent("m"), nil)
		}, "update " + path + `/m of "m": 409, request ConfigMap, response`},
		"delete": {audit.RequestResponse, nil, func(ctx context.Context, own *internalclient.Client) error {
			return own.Delete(ctx, m, nil)
		}, "delete " + path + `/m of "m": 200, request, response`},
	} {
		s.written = c.fails
		sink := &recorder{level: c.level}
		server := w.server(s, cache, cache)
		server.Audit = audit.New(audit.Config{Policy: sink, Sinks: []audit.Sink{sink}, Metrics: audit.NewMetrics(prometheus.NewRegistry()), MaxObject: 1 << 20, MaxObjects: 1 << 20})
		err := c.do(t.Context(), &internalclient.Client{Door: server})
		if len(sink.lines) != 1 || sink.lines[0] != c.want {
			t.Errorf("%s: got %v, audited %q, want %q", name, err, sink.lines, c.want)
		}
	}
}
