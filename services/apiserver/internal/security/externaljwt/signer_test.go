package externaljwt_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "k8s.io/externaljwt/apis/v1alpha1"

	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/security/externaljwt"
	"binnacle/services/apiserver/internal/security/externaljwt/externaljwttest"
)

func connectTo(t *testing.T, s *externaljwttest.Signer) (*externaljwt.Signer, *prometheus.Registry, error) {
	t.Helper()
	r := prometheus.NewRegistry()
	m, err := externaljwt.NewMetrics(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := externaljwt.New(t.Context(), externaljwt.Config{Socket: s.Socket, Logger: slog.New(slog.DiscardHandler), Metrics: m})
	if err == nil {
		t.Cleanup(got.Close)
	}
	return got, r, err
}

// TestSignRejectsHeadersThatKubernetesDoesNotIssue checks the errors for invalid headers and
// signatures of the signer.
func TestSignRejectsHeadersThatKubernetesDoesNotIssue(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*externaljwttest.State)
		want   string
	}{
		{name: "good", change: func(*externaljwttest.State) {}},
		{name: "type", change: func(s *externaljwttest.State) { s.Header["typ"] = "ABC" }, want: "while validating header: bad type"},
		{
			name:   "algorithm",
			change: func(s *externaljwttest.State) { s.Header["alg"] = "ABC" },
			want:   `while validating header: bad signing algorithm "ABC"`,
		},
		{
			name:   "no key id",
			change: func(s *externaljwttest.State) { delete(s.Header, "kid") },
			want:   "while validating header: key id missing",
		},
		{
			name:   "long key id",
			change: func(s *externaljwttest.State) { s.Header["kid"] = strings.Repeat("x", 1025) },
			want:   "while validating header: key id longer than 1 kb",
		},
		{
			name:   "unknown field",
			change: func(s *externaljwttest.State) { s.Header["x"] = "y" },
			want:   `while validating header: while parsing header JSON: json: unknown field "x"`,
		},
		{name: "no signature", change: func(s *externaljwttest.State) { s.NoSignature = true }, want: "empty signature returned"},
		{
			name: "excluded key",
			change: func(s *externaljwttest.State) {
				s.Header["kid"] = "kid-2"
				s.Keys = append(s.Keys, externaljwttest.Public(t, "kid-2", s.Key, true))
			},
			want: "while validating header: key used for signing JWT (kid: kid-2) is excluded from OIDC discovery docs",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := externaljwttest.New(t)
			server.Start()
			s, _, err := connectTo(t, server)
			if err != nil {
				t.Fatal(err)
			}
			server.Change(test.change)
			token, err := s.SignClaims(t.Context(), satoken.Request{IssuedAt: time.Now(), Lifetime: time.Hour}.Claims("https://issuer"))
			switch {
			case test.want == "" && (err != nil || strings.Count(token, ".") != 2):
				t.Errorf("got %q, %v", token, err)
			case test.want != "" && (err == nil || err.Error() != test.want):
				t.Errorf("got error %v, want %s", err, test.want)
			}
		})
	}
}

// TestInvalidKeysFailStartup checks that New rejects unusable keys of the signer.
func TestInvalidKeysFailStartup(t *testing.T) {
	for _, test := range []struct {
		change func(*externaljwttest.State)
		want   string
	}{
		{change: func(s *externaljwttest.State) { s.Refresh = 0 }, want: "found invalid refresh hint (0s)"},
		{change: func(s *externaljwttest.State) { s.Keys = nil }, want: "found no keys"},
		{
			change: func(s *externaljwttest.State) { s.Keys = []*pb.Key{{KeyId: "", Key: []byte("x")}} },
			want:   `found invalid public key id ""`,
		},
		{change: func(s *externaljwttest.State) { s.Keys = []*pb.Key{{KeyId: "x"}} }, want: "found empty public key"},
		{
			change: func(s *externaljwttest.State) { s.Keys = []*pb.Key{{KeyId: "x", Key: []byte("x")}} },
			want:   "while parsing external public keys: ",
		},
		{
			change: func(s *externaljwttest.State) { s.DataTime = time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC) },
			want:   "invalid data timestamp: ",
		},
	} {
		server := externaljwttest.New(t)
		server.Change(test.change)
		server.Start()
		_, _, err := connectTo(t, server)
		if want := "while initially filling key cache: while fetching token verification keys: " + test.want; err == nil ||
			!strings.HasPrefix(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

// TestMaxLifetimeRejectsLessThanTenMinutes checks that a maximum lifetime below the minimum of
// tokens is an error.
func TestMaxLifetimeRejectsLessThanTenMinutes(t *testing.T) {
	server := externaljwttest.New(t)
	server.Start()
	s, _, err := connectTo(t, server)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := s.MaxLifetime(t.Context()); err != nil || d != 24*time.Hour {
		t.Errorf("got %v, %v; want no error, %v", d, err, 24*time.Hour)
	}
	server.Change(func(s *externaljwttest.State) { s.MaxLifetime = 599 })
	if _, err := s.MaxLifetime(t.Context()); err == nil ||
		err.Error() != "max token life supported by external-jwt-signer (599s) is less than acceptable (min 600s)" {
		t.Error(err)
	}
}

// TestKeysAreRefreshed checks that keys are fetched after the refresh hint, and for an unknown key
// id.
func TestKeysAreRefreshed(t *testing.T) {
	server := externaljwttest.New(t)
	server.Start()
	signer, metrics, err := connectTo(t, server)
	if err != nil {
		t.Fatal(err)
	}
	changes := make(chan struct{}, 10)
	signer.OnChange(func() { changes <- struct{}{} })
	signer.Candidates(t.Context(), "kid-1")
	if server.Fetches() != 1 {
		t.Errorf("got %d fetches, want 1", server.Fetches())
	}
	if keys := signer.Candidates(t.Context(), "kid-2"); len(keys) != 0 || server.Fetches() != 2 {
		t.Errorf("got keys %v, %d fetches; want length 0, 2", keys, server.Fetches())
	}
	server.Change(func(s *externaljwttest.State) {
		s.Keys = append(s.Keys, externaljwttest.Public(t, "kid-2", externaljwttest.NewKey(t), true))
		s.DataTime, s.Refresh = time.Now(), 1
	})
	keys := signer.Candidates(t.Context(), "kid-2")
	if len(keys) != 1 || keys[0].ID != "kid-2" || !keys[0].Undiscoverable || len(signer.Candidates(t.Context(), "")) != 2 {
		t.Errorf("got keys %v; want length 1, \"kid-2\", true, length 2", keys)
	}
	<-changes
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- signer.Run(ctx) }()
	server.Change(func(s *externaljwttest.State) { s.Keys, s.DataTime = s.Keys[:1], time.Now() })
	<-changes
	if len(signer.Keys()) != 1 {
		t.Errorf("got keys %v, want length 1", signer.Keys())
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// If the signer stops, the keys stay as they are and signing fails.
	server.Stop()
	ctx, stop = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if _, err := signer.SignClaims(ctx, satoken.Claims{}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want one other than context.Canceled", err)
	}
	if got := len(signer.Candidates(ctx, "kid-1")); got != 1 {
		t.Errorf("kid-1: got %d keys, want 1", got)
	}
	if got := len(signer.Candidates(ctx, "other")); got != 0 {
		t.Errorf("unknown key ID: got %d keys, want none", got)
	}
	seen := map[string]bool{}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		seen[f.GetName()] = true
	}
	for _, name := range []string{
		"fetch_keys_success_timestamp", "fetch_keys_data_timestamp",
		"fetch_keys_request_total", "sign_request_total", "request_duration_seconds",
	} {
		if !seen["apiserver_externaljwt_"+name] {
			t.Errorf("got no metric %s, want one", name)
		}
	}
}
