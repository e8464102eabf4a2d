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

// auditSink is an audit policy with a fixed level, and a sink that records completed requests: the
// verb, path, object and status, and the kinds of the recorded request and response objects.
type auditSink struct {
	level audit.Level
	lines []string
}

func (s *auditSink) Decide(*requestinfo.Info, *request.User) audit.Decision {
	return audit.Decision{Level: s.level}
}

func (s *auditSink) Process(_ context.Context, e *audit.Event) error {
	if e.Stage != audit.RequestReceived {
		s.lines = append(s.lines, fmt.Sprintf("%s %s of %q: %d, request%s, response%s", e.Verb, e.URI,
			e.Object.Name, e.Status.Code, kindOf(e.RequestObject), kindOf(e.ResponseObject)))
	}
	return nil
}

// kindOf returns " " and the kind of an encoded object, or "" if there is none.
func kindOf(text []byte) string {
	if text == nil {
		return ""
	}
	var object struct{ Kind string }
	if err := json.Unmarshal(text, &object); err != nil {
		return " " + err.Error()
	}
	return " " + object.Kind
}

// TestInternalWritesAreAudited checks that internal writes have the same audit events as those of
// clients.
func TestInternalWritesAreAudited(t *testing.T) {
	fixture := newFixture(t)
	s := &store{}
	cache := fixture.newLoadedCache(t, s)
	configM := configs.Named("m")
	notEncodable := make(chan int)
	configMap := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"a": name}}
	}
	const path = "/api/v1/namespaces/ns/configmaps"
	for name, test := range map[string]struct {
		level    audit.Level
		writeErr error // of the store
		do       func(context.Context, *internalclient.Client) error
		want     string
	}{
		"create": {
			level: audit.RequestResponse,
			do: func(ctx context.Context, own *internalclient.Client) error {
				return own.Create(ctx, configs, configMap("n"))
			},
			want: "create " + path + ` of "n": 201, request ConfigMap, response ConfigMap`,
		},
		"create with a fixed name": {
			level: audit.RequestResponse,
			do: func(ctx context.Context, own *internalclient.Client) error {
				return own.Create(ctx, configs.Named("n"), configMap("n"))
			},
			want: "create " + path + ` of "n": 201, request ConfigMap, response ConfigMap`,
		},
		"create with an object that cannot be encoded": {
			level: audit.RequestResponse,
			do: func(ctx context.Context, own *internalclient.Client) error {
				return own.Create(ctx, configs.Named("n"), notEncodable)
			},
			want: "create " + path + ` of "": 500, request, response Status`,
		},
		"create below an object": {
			level: audit.RequestResponse,
			do: func(ctx context.Context, own *internalclient.Client) error {
				return own.Create(ctx, internalclient.Collection("", "v1", "pods", "ns").Named("p").Subresource("status"), notEncodable)
			},
			want: `create /api/v1/namespaces/ns/pods/p/status of "p": 500, request, response Status`,
		},
		"cluster-scoped kind of a named group": {
			level: audit.RequestResponse,
			do: func(ctx context.Context, own *internalclient.Client) error {
				return own.Update(ctx, internalclient.Collection("rbac.authorization.k8s.io", "v1",
					"clusterroles", "").Named("a:b/c"), notEncodable, nil)
			},
			want: `update /apis/rbac.authorization.k8s.io/v1/clusterroles/a:b%2Fc of "a:b/c": 500, request, response Status`,
		},
		"update": {
			level: audit.RequestResponse,
			do: func(ctx context.Context, own *internalclient.Client) error {
				return own.Update(ctx, configM, configMap("m"), nil)
			},
			want: "update " + path + `/m of "m": 200, request ConfigMap, response ConfigMap`,
		},
		"update at level Request": {
			level: audit.Request,
			do: func(ctx context.Context, own *internalclient.Client) error {
				return own.Update(ctx, configM, configMap("m"), nil)
			},
			want: "update " + path + `/m of "m": 200, request ConfigMap, response`,
		},
		"update that fails": {
			level:    audit.Request,
			writeErr: &storage.PreconditionError{},
			do: func(ctx context.Context, own *internalclient.Client) error {
				return own.Update(ctx, configM, configMap("m"), nil)
			},
			want: "update " + path + `/m of "m": 409, request ConfigMap, response`,
		},
		"delete": {
			level: audit.RequestResponse,
			do: func(ctx context.Context, own *internalclient.Client) error {
				return own.Delete(ctx, configM, nil)
			},
			want: "delete " + path + `/m of "m": 200, request, response`,
		},
	} {
		s.writeErr = test.writeErr
		sink := &auditSink{level: test.level}
		server := fixture.newServer(s, cache, cache)
		server.Audit = audit.New(audit.Config{
			Policy:     sink,
			Sinks:      []audit.Sink{sink},
			Metrics:    audit.NewMetrics(prometheus.NewRegistry()),
			MaxObject:  1 << 20,
			MaxObjects: 1 << 20,
		})
		err := test.do(t.Context(), &internalclient.Client{Doer: server})
		if len(sink.lines) != 1 || sink.lines[0] != test.want {
			t.Errorf("%s: got %v, events %q, want %q", name, err, sink.lines, test.want)
		}
	}
}
