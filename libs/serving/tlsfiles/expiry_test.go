package tlsfiles

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"maps"
	"math/big"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// newPair returns a certificate that is valid from now for life.
func newPair(t *testing.T, life time.Duration) *Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotBefore: time.Now(), NotAfter: time.Now().Add(life),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyPEM, err := EncodeECKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p, err := FixedPair(EncodeCertificate(der), keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCertificateExpiryIsLogged checks when warnings are logged for certificates that expire soon
// or have expired.
func TestCertificateExpiryIsLogged(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		name        string
		life, after time.Duration
		soon, ended int // number of log lines
	}{
		{name: "fresh, valid for a year", life: 365 * day, after: 300 * day, soon: 0, ended: 0},
		{name: "a month before expiration", life: 365 * day, after: 335*day + expiryCheckInterval, soon: 1, ended: 0},
		{name: "once a day", life: 365 * day, after: 340*day + expiryCheckInterval, soon: 6, ended: 0},
		{name: "fresh, valid for a day", life: day, after: 19 * time.Hour, soon: 0, ended: 0},
		{name: "a fifth of its life before expiration", life: day, after: 20 * time.Hour, soon: 1, ended: 0},
		{name: "expired", life: day, after: 25 * time.Hour, soon: 1, ended: 1},
		{name: "expired long ago", life: day, after: 3*day + time.Hour, soon: 1, ended: 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				log := slog.New(slog.NewTextHandler(&out, nil))
				ctx, cancel := context.WithTimeout(t.Context(), test.after)
				defer cancel()
				err := WarnOfExpiry(ctx, log, []Certificate{{Use: "serving", Source: newPair(t, test.life)}})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v, want error %v", err, context.DeadlineExceeded)
				}
				soon, ended := strings.Count(out.String(), "expires soon"), strings.Count(out.String(), "certificate expired")
				if soon != test.soon || ended != test.ended {
					t.Errorf("got %d warnings, %d errors, want %d, %d:\n%s", soon, ended, test.soon, test.ended, out.String())
				}
			})
		})
	}
}

// replacedSource is a source whose certificate changes at the given times. Each call parses it
// again.
type replacedSource struct {
	Source
	pairs []*Pair
	times []time.Time // when the next pair replaces the current one
}

func (r replacedSource) Files() []string { return nil }

func (r replacedSource) FirstExpiring() *x509.Certificate {
	i := 0
	for i < len(r.times) && !time.Now().Before(r.times[i]) {
		i++
	}
	c, err := x509.ParseCertificate(r.pairs[i].Certificate().Certificate[0])
	if err != nil {
		panic(err)
	}
	return c
}

// TestReplacedCertificateExpiryIsLoggedAgain checks that a new certificate is reported at once, and
// the same one once a day.
func TestReplacedCertificateExpiryIsLoggedAgain(t *testing.T) {
	for _, replaces := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			source, want := replacedSource{pairs: []*Pair{newPair(t, 24*time.Hour)}}, 1
			if replaces {
				source.pairs = append(source.pairs, newPair(t, 25*time.Hour))
				source.times, want = []time.Time{time.Now().Add(22 * time.Hour)}, 2
			}
			var out bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 23*time.Hour)
			defer cancel()
			_ = WarnOfExpiry(ctx, slog.New(slog.NewTextHandler(&out, nil)), []Certificate{{Source: source}})
			if n := strings.Count(out.String(), "expires soon"); n != want {
				t.Errorf("replaced %t: %d warnings, want %d:\n%s", replaces, n, want, out.String())
			}
		})
	}
}

// TestCertificateExpiryMetric checks that the metric has one series for each use and file.
func TestCertificateExpiryMetric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		short := Certificate{Use: "serving", Source: newPair(t, time.Hour)}
		r.MustRegister(ExpiryCollector{short, short, {Use: "api-client", Source: newPair(t, 2*time.Hour)}})
		families, err := r.Gather()
		if err != nil || len(families) != 1 || families[0].GetName() != "binnacle_certificate_expiration_timestamp_seconds" {
			t.Fatalf("got %v, %v, want only binnacle_certificate_expiration_timestamp_seconds", families, err)
		}
		got := map[string]float64{}
		for _, m := range families[0].Metric {
			got[m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
		}
		now := float64(time.Now().Unix())
		if want := map[string]float64{"serving": now + 3600, "api-client": now + 7200}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}
