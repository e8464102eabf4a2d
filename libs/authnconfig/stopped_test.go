package authnconfig_test

import (
	"context"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/authnconfig"
)

// TestAnIssuerThatIsGoneIsNotAsked: what is asked of it is broken off, long before it
// would end by itself.
func TestAnIssuerThatIsGoneIsNotAsked(t *testing.T) {
	asked, left := make(chan struct{}, 100), make(chan struct{}, 100)
	silent := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	}))
	t.Cleanup(silent.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: silent.Certificate().Raw}))
	w := start(t, header+"jwt:\n- issuer:\n    url: "+silent.URL+"\n    audiences: [a]\n    certificateAuthority: |\n      "+
		strings.ReplaceAll(strings.TrimSpace(ca), "\n", "\n      ")+"\n"+named(""))
	<-asked
	w.write(t, header+"jwt: []\n")
	w.await(t, reloaded)
	bound := time.NewTimer(5 * time.Second) // a request lasts longer
	defer bound.Stop()
	select {
	case <-left:
	case <-bound.C:
		t.Error("it is still asked")
	}
}

// TestReloadWithoutMetrics: who counts nothing follows the file all the same, and a
// process without a name is told apart by nothing.
func TestReloadWithoutMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	for name, m := range map[string]*authnconfig.Metrics{"no metrics": nil, "no name": authnconfig.NewMetrics(r, "")} {
		t.Run(name, func(t *testing.T) {
			w := &world{file: filepath.Join(t.TempDir(), "authn.yaml")}
			w.write(t, header+"anonymous: {enabled: true}\n")
			told := make(chan struct{}, 1)
			a, err := authnconfig.New(authnconfig.Config{
				File: w.file, Logger: slog.New(slog.DiscardHandler), Metrics: m, Reloaded: func() { told <- struct{}{} },
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error)
			go func() { done <- a.Run(ctx) }()
			w.write(t, header+"anonymous: {enabled: false}\n")
			<-told
			if a.Anonymous().Allows("/") {
				t.Error("the former file is in force")
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Run() = %v", err)
			}
		})
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() != "apiserver_id_hash" {
					continue
				}
				if told++; l.GetValue() != "" {
					t.Errorf("%s is of %q", f.GetName(), l.GetValue())
				}
			}
		}
	}
	if told == 0 {
		t.Error("nothing was counted")
	}
}
