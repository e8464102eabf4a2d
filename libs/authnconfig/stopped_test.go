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

	"binnacle/libs/authenticator"
	"binnacle/libs/authnconfig"
	"binnacle/libs/oidctoken/oidctest"
)

// silent is an issuer that never answers.
type silent struct {
	*httptest.Server
	asked, left chan struct{}
}

func newSilent(t *testing.T) *silent {
	s := &silent{asked: make(chan struct{}, 100), left: make(chan struct{}, 100)}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.asked <- struct{}{}
		<-r.Context().Done()
		s.left <- struct{}{}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *silent) entry() string {
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return "- issuer:\n    url: " + s.URL + "\n    audiences: [a]\n    certificateAuthority: |\n      " +
		strings.ReplaceAll(strings.TrimSpace(ca), "\n", "\n      ") + "\n" + named("")
}

// TestWhatAFileTakesAwayWaitsForNobody: while keys of an issuer that does not answer
// are awaited, those that the file does not trust any more are trusted no longer, and
// the next file counts as well.
func TestWhatAFileTakesAwayWaitsForNobody(t *testing.T) {
	one, two, s := oidctest.New(t), oidctest.New(t), newSilent(t)
	w := start(t, header+"jwt:\n"+entry(one, named(""))+entry(two, named("a:")))
	w.await(t, reachable)
	w.await(t, reachable)
	w.write(t, header+"jwt:\n"+entry(two, named("b:"))+s.entry())
	<-s.asked
	w.await(t, reloaded)
	if got := w.name(t, one.Token(nil)) + ", " + w.name(t, two.Token(nil)); got != "no opinion, b:ada" {
		t.Errorf("while an issuer does not answer: %s", got)
	}
	w.write(t, header+"jwt:\n"+s.entry())
	w.await(t, reloaded)
	if got := w.name(t, two.Token(nil)); got != "no opinion" {
		t.Errorf("it still does not answer: %s", got)
	}
	if len(s.left) > 0 {
		t.Error("it was not asked all the time, so this tells nothing")
	}
}

// TestKeysOfAnotherPlace: as long as they are not known, those from before count with
// the rules of now, and for a bounded time.
func TestKeysOfAnotherPlace(t *testing.T) {
	one, s := oidctest.New(t), newSilent(t)
	w := start(t, header+"jwt:\n"+entry(one, named("a:")))
	w.await(t, reachable)
	moved := func(rest string) string {
		return header + "jwt:\n" + strings.Replace(entry(one, rest), "    audiences:", "    discoveryURL: "+s.URL+"/there\n    audiences:", 1)
	}
	ends := map[time.Time]bool{}
	for _, prefix := range []string{"b:", "c:"} { // the second finds the same place
		w.write(t, moved(named(prefix)))
		w.await(t, reloaded)
		r, ok, err := w.AuthenticateToken(t.Context(), one.Token(nil), nil)
		if err != nil || !ok || r.User.Name != prefix+"ada" {
			t.Fatalf("got %+v, %v, %v", r, ok, err)
		}
		ends[r.Expires] = true
		if time.Until(r.Expires) > time.Minute {
			t.Errorf("keys of the place before count until %v", r.Expires)
		}
	}
	if len(ends) != 1 {
		t.Errorf("another file has keys of the place before count for longer: %v", ends)
	}
	other := oidctest.New(t).Token(map[string]any{"iss": one.URL()})
	if _, ok, err := w.AuthenticateToken(t.Context(), other, nil); ok || !errors.Is(err, authenticator.ErrUnavailable) {
		t.Errorf("a key that may be there: %v, %v", ok, err)
	}
}

// TestAnIssuerThatIsGoneIsNotAsked: what is asked of it is broken off, long before it
// would end by itself.
func TestAnIssuerThatIsGoneIsNotAsked(t *testing.T) {
	s := newSilent(t)
	w := start(t, header+"jwt:\n"+s.entry())
	<-s.asked
	w.write(t, header+"jwt: []\n")
	w.await(t, reloaded)
	bound := time.NewTimer(5 * time.Second) // a request lasts longer
	defer bound.Stop()
	select {
	case <-s.left:
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
