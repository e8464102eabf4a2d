package internalclient_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/internalclient"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/audit"
)

// TestPanicBecomesError checks that a panic is logged and returned as an API error.
func TestPanicBecomesError(t *testing.T) {
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	client := &internalclient.Client{Doer: &internalclient.Server{
		Kinds:  apiset.NewLive(apiset.Builder{Codec: apiCodec}.Set(catalog, 1)),
		Codec:  apiCodec,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Writer: func() *writes.Writer { panic("out of order") },
	}}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	err = client.Create(context.Background(), internalclient.Collection("", "v1", "configmaps", "ns"), configMap)
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "out of order") {
		t.Errorf("panic of the writer: got error %v, want an internal error with the panic", err)
	}
	if !strings.Contains(log.String(), "out of order") || !strings.Contains(log.String(), "server_test.go") {
		t.Errorf("got log %q, want the panic and its file", log.String())
	}
	for _, ref := range []internalclient.Ref{
		internalclient.Collection("", "v1", "nothings", ""),
		internalclient.Collection("", "v1", "configmaps", "ns").Named("m").Subresource("nothing"),
	} {
		if err := client.Update(context.Background(), ref, configMap, nil); !apierrors.IsNotFound(err) {
			t.Errorf("update %s: got error %v, want NotFound", ref, err)
		}
	}
}

// auditAll is an audit policy and a sink that returns an error.
type auditAll struct{ failure error }

func (auditAll) Decide(*requestinfo.Info, *request.User) audit.Decision {
	return audit.Decision{Level: audit.Metadata}
}

func (e auditAll) Process(context.Context, *audit.Event) error { return e.failure }

// TestAuditedPanicAndAuditFailure checks that an audited panic still becomes an error, and that a
// write whose event cannot be stored is rejected.
func TestAuditedPanicAndAuditFailure(t *testing.T) {
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	for want, failure := range map[string]error{"out of order": nil, "failed to store audit event": errors.New("no room")} {
		sink := auditAll{failure}
		client := &internalclient.Client{Doer: &internalclient.Server{
			Kinds:  apiset.NewLive(apiset.Builder{Codec: apiCodec}.Set(catalog, 1)),
			Codec:  apiCodec,
			Logger: slog.New(slog.DiscardHandler),
			Writer: func() *writes.Writer { panic("out of order") },
			Audit:  audit.New(audit.Config{Policy: sink, Sinks: []audit.Sink{sink}, Metrics: audit.NewMetrics(prometheus.NewRegistry())}),
		}}
		err := client.Create(t.Context(), internalclient.Collection("", "v1", "configmaps", "ns"), &corev1.ConfigMap{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("audit error %v: got error %v, want %q", failure, err, want)
		}
	}
}
