package tlsfiles

import (
	"context"
	"crypto/x509"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificate is a certificate that a process uses, or a bundle of CAs that it trusts.
type Certificate struct {
	// Use names the purpose, such as "serving", "client-ca" or "api-client".
	Use    string
	Source ExpiringSource
}

// file returns the first file of the certificate, or "" if it has none.
func (c Certificate) file() string {
	if files := c.Source.Files(); len(files) > 0 {
		return files[0]
	}
	return ""
}

// Sources returns the files of certificates, for Watch.
func Sources(certs []Certificate) []Source {
	out := make([]Source, len(certs))
	for i, c := range certs {
		out[i] = c.Source
	}
	return out
}

// ExpiryCollector reports when certificates expire. Of a chain or bundle it reports the earliest
// time.
type ExpiryCollector []Certificate

func expiryDesc() *prometheus.Desc {
	return prometheus.NewDesc("binnacle_certificate_expiration_timestamp_seconds",
		"[ALPHA] Expiration time of the certificate in Unix seconds; the earliest one of a chain or bundle.",
		[]string{"use", "file"}, nil)
}

// Describe implements prometheus.Collector.
func (e ExpiryCollector) Describe(out chan<- *prometheus.Desc) { out <- expiryDesc() }

// Collect implements prometheus.Collector.
func (e ExpiryCollector) Collect(out chan<- prometheus.Metric) {
	seen := map[[2]string]bool{} // two uses may share a file
	for _, certificate := range e {
		id := [2]string{certificate.Use, certificate.file()}
		if seen[id] {
			continue
		}
		seen[id] = true
		out <- prometheus.MustNewConstMetric(expiryDesc(), prometheus.GaugeValue,
			float64(certificate.Source.FirstExpiring().NotAfter.Unix()), id[0], id[1])
	}
}

// Times of the warnings. A certificate that is valid for a year is reported a month before it
// expires, one that is valid for a day about five hours before.
const (
	warnBefore          = 30 * 24 * time.Hour
	warnFraction        = 5 // of its lifetime
	expiryCheckInterval = time.Minute
	warnInterval        = 24 * time.Hour
)

// expiresSoon reports whether a certificate should have been replaced by now.
func expiresSoon(certificate *x509.Certificate, now time.Time) bool {
	return certificate.NotAfter.Sub(now) < min(warnBefore, certificate.NotAfter.Sub(certificate.NotBefore)/warnFraction)
}

// WarnOfExpiry logs certificates that expire soon or have expired, at every change and once a day,
// until ctx ends.
func WarnOfExpiry(ctx context.Context, log *slog.Logger, certs []Certificate) error {
	warned := make([]struct {
		cert    *x509.Certificate
		expired bool
		expiry  time.Time
	}, len(certs))
	tick := time.NewTicker(expiryCheckInterval)
	defer tick.Stop()
	for {
		now := time.Now()
		for i, certificate := range certs {
			earliest := certificate.Source.FirstExpiring()
			expired, previous := !now.Before(earliest.NotAfter), &warned[i]
			if !expiresSoon(earliest, now) || earliest.Equal(previous.cert) && previous.expired == expired && now.Sub(previous.expiry) < warnInterval {
				continue
			}
			previous.cert = earliest
			previous.expired = expired
			previous.expiry = now
			args := []any{"use", certificate.Use, "file", certificate.file(), "subject", earliest.Subject.String(), "end",
				earliest.NotAfter.UTC().Format(time.RFC3339)}
			if expired {
				log.Error("certificate expired", args...)
			} else {
				log.Warn("certificate expires soon", append(args, "in", earliest.NotAfter.Sub(now).Round(time.Second).String())...)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
