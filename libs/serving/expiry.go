package serving

import (
	"context"
	"crypto/x509"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"binnacle/libs/serving/tlsfiles"
)

// Certificate is one that a process uses, or a bundle of those that it trusts.
type Certificate struct {
	// Use says what for: "serving", "client-ca", "api-client" and so on.
	Use    string
	Source tlsfiles.Dated
}

// file names the certificate for people; "" for one that is in no file.
func (c Certificate) file() string {
	if files := c.Source.Files(); len(files) > 0 {
		return files[0]
	}
	return ""
}

func sources(certs []Certificate) []tlsfiles.Source {
	out := make([]tlsfiles.Source, len(certs))
	for i, c := range certs {
		out[i] = c.Source
	}
	return out
}

// ends is the metric of when certificates end: the first of a chain or bundle.
type ends []Certificate

func endsDesc() *prometheus.Desc {
	return prometheus.NewDesc("binnacle_certificate_expiration_timestamp_seconds",
		"[ALPHA] When the certificate ends, in seconds since 1970; of a chain or bundle the one that ends first.", []string{"use", "file"}, nil)
}

// Describe implements prometheus.Collector.
func (e ends) Describe(out chan<- *prometheus.Desc) { out <- endsDesc() }

// Collect implements prometheus.Collector.
func (e ends) Collect(out chan<- prometheus.Metric) {
	seen := map[[2]string]bool{} // a file may serve one use twice
	for _, c := range e {
		id := [2]string{c.Use, c.file()}
		if seen[id] {
			continue
		}
		seen[id] = true
		out <- prometheus.MustNewConstMetric(endsDesc(), prometheus.GaugeValue, float64(c.Source.EndsFirst().NotAfter.Unix()), id[0], id[1])
	}
}

// Times of the warnings. A certificate of a year is warned of a month before its
// end, one of a day five hours before.
const (
	warnBefore   = 30 * 24 * time.Hour
	warnPart     = 5 // of its whole life
	endsInterval = 10 * time.Minute
	warnAgain    = 24 * time.Hour
)

// nearEnd tells whether a certificate should have been replaced by now.
func nearEnd(c *x509.Certificate, now time.Time) bool {
	return c.NotAfter.Sub(now) < min(warnBefore, c.NotAfter.Sub(c.NotBefore)/warnPart)
}

// warnOfEnds tells of certificates that end soon or have ended, once a day each
// and when that is news, until ctx ends.
func warnOfEnds(ctx context.Context, log *slog.Logger, certs []Certificate) error {
	told := make([]struct {
		cert  *x509.Certificate
		ended bool
		at    time.Time
	}, len(certs))
	tick := time.NewTicker(endsInterval)
	defer tick.Stop()
	for {
		now := time.Now()
		for i, c := range certs {
			first := c.Source.EndsFirst()
			ended, t := !now.Before(first.NotAfter), &told[i]
			if !nearEnd(first, now) || first.Equal(t.cert) && t.ended == ended && now.Sub(t.at) < warnAgain {
				continue
			}
			t.cert, t.ended, t.at = first, ended, now
			args := []any{"use", c.Use, "file", c.file(), "subject", first.Subject.String(), "end", first.NotAfter.UTC().Format(time.RFC3339)}
			if ended {
				log.Error("a certificate has ended", args...)
			} else {
				log.Warn("a certificate ends soon", append(args, "in", first.NotAfter.Sub(now).Round(time.Second).String())...)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
