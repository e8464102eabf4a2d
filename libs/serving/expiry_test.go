package serving

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

	"binnacle/libs/serving/tlsfiles"
)

// lasting is a certificate that began now and ends so much later.
func lasting(t *testing.T, life time.Duration) *tlsfiles.Pair {
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
	keyPEM, err := tlsfiles.EncodeECKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p, err := tlsfiles.FixedPair(tlsfiles.EncodeCertificate(der), keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestTheEndsOfCertificatesAreTold(t *testing.T) {
	const day = 24 * time.Hour
	tests := []struct {
		name        string
		life, after time.Duration
		soon, ended int // lines of the log by then
	}{
		{"fresh, of a year", 365 * day, 300 * day, 0, 0},
		{"a month before the end", 365 * day, 335*day + endsInterval, 1, 0},
		{"once a day", 365 * day, 340*day + endsInterval, 6, 0},
		{"fresh, of a day", day, 19 * time.Hour, 0, 0},
		{"a fifth of its life before the end", day, 20 * time.Hour, 1, 0},
		{"ended", day, 25 * time.Hour, 1, 1},
		{"ended long ago", day, 3*day + time.Hour, 1, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				log := slog.New(slog.NewTextHandler(&out, nil))
				ctx, cancel := context.WithTimeout(t.Context(), tt.after)
				defer cancel()
				err := warnOfEnds(ctx, log, []Certificate{{Use: "serving", Source: lasting(t, tt.life)}})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v", err)
				}
				soon, ended := strings.Count(out.String(), "ends soon"), strings.Count(out.String(), "has ended")
				if soon != tt.soon || ended != tt.ended {
					t.Errorf("%d times soon, %d times ended:\n%s", soon, ended, out.String())
				}
			})
		})
	}
}

// replaced is a source whose certificates, read anew each time, come one after the other.
type replaced struct {
	tlsfiles.Source
	in []*tlsfiles.Pair
	at []time.Time // when the next one comes
}

func (r replaced) Files() []string { return nil }

func (r replaced) EndsFirst() *x509.Certificate {
	i := 0
	for i < len(r.at) && !time.Now().Before(r.at[i]) {
		i++
	}
	c, err := x509.ParseCertificate(r.in[i].Certificate().Certificate[0])
	if err != nil {
		panic(err)
	}
	return c
}

// TestTheEndsOfReplacedCertificatesAreTold at once, and those of the same ones once a day.
func TestTheEndsOfReplacedCertificatesAreTold(t *testing.T) {
	for _, replaces := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			source, want := replaced{in: []*tlsfiles.Pair{lasting(t, 24*time.Hour)}}, 1
			if replaces {
				source.in = append(source.in, lasting(t, 25*time.Hour))
				source.at, want = []time.Time{time.Now().Add(22 * time.Hour)}, 2
			}
			var out bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 23*time.Hour)
			defer cancel()
			_ = warnOfEnds(ctx, slog.New(slog.NewTextHandler(&out, nil)), []Certificate{{Source: source}})
			if n := strings.Count(out.String(), "ends soon"); n != want {
				t.Errorf("replaced %t: told %d times, want %d:\n%s", replaces, n, want, out.String())
			}
		})
	}
}

func TestTheEndsOfCertificatesAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prometheus.NewRegistry()
		short := Certificate{Use: "serving", Source: lasting(t, time.Hour)}
		r.MustRegister(ends{short, short, {Use: "api-client", Source: lasting(t, 2*time.Hour)}})
		families, err := r.Gather()
		if err != nil || len(families) != 1 || families[0].GetName() != "binnacle_certificate_expiration_timestamp_seconds" {
			t.Fatalf("%v, %v", families, err)
		}
		got := map[string]float64{}
		for _, m := range families[0].Metric {
			got[m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
		}
		now := float64(time.Now().Unix())
		if want := map[string]float64{"serving": now + 3600, "api-client": now + 7200}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
}
