package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"

	"binnacle/libs/serving/metrics"
	"binnacle/services/apiserver/internal/registry"
)

const (
	// maxSigners bounds the signer names in metrics. Clients choose these names.
	maxSigners = 100
	// otherSigner is the label of signers outside kubernetes.io and of those beyond the limit.
	otherSigner  = "other"
	signerPrefix = "kubernetes.io/"
	// durationTolerance and a twentieth of the requested duration are how much the lifetime of a
	// certificate may differ from the request. Signers set the start back to tolerate clock skew.
	durationTolerance = 5 * time.Minute
)

// Durations counts issued certificates whose request has spec.expirationSeconds, and those whose
// lifetime is about as requested, by signer.
type Durations struct {
	signers *metrics.Series[string, durationCounters]
}

// durationCounters counts the requests of a signer that state a duration, and those that the
// certificate honors.
type durationCounters struct{ requested, honored prometheus.Counter }

// NewDurations returns Durations with metrics in registerer.
func NewDurations(registerer prometheus.Registerer) *Durations {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "apiserver", Subsystem: "certificates_registry", Name: name, Help: "[ALPHA] " + help,
		}, []string{"signerName"})
	}
	requested := counter(
		"csr_requested_duration_total",
		"Total number of issued CSRs with a requested duration, sliced by signer (only kubernetes.io signer names are specifically identified)",
	)
	honored := counter(
		"csr_honored_duration_total",
		"Total number of issued CSRs with a requested duration that was honored, sliced by signer (only kubernetes.io signer names are specifically identified)",
	)
	durations := &Durations{signers: metrics.NewSeries(metrics.SeriesConfig[string, durationCounters]{
		Limit: maxSigners,
		Add: func(signer string) durationCounters {
			return durationCounters{requested.WithLabelValues(signer), honored.WithLabelValues(signer)}
		},
		Overflow: func(string) string { return otherSigner },
	})}
	durations.signers.MustRegister(registerer, requested, honored)
	return durations
}

// Observe counts an update that issues the certificate.
func (d *Durations) Observe(old, obj registry.Object) {
	before := old.(*certificatesv1.CertificateSigningRequest)
	after := obj.(*certificatesv1.CertificateSigningRequest)
	issuesCertificate := len(before.Status.Certificate) == 0 && len(after.Status.Certificate) > 0
	if !issuesCertificate || after.Spec.ExpirationSeconds == nil {
		return
	}
	issued := firstCertificate(after.Status.Certificate)
	if issued == nil {
		return
	}
	counters := d.signers.WithLabels(signerLabel(after.Spec.SignerName))
	counters.requested.Inc()
	requested := time.Duration(*after.Spec.ExpirationSeconds) * time.Second
	if lifetime := issued.NotAfter.Sub(issued.NotBefore); (requested - lifetime).Abs() < durationTolerance+requested/20 {
		counters.honored.Inc()
	}
}

// signerLabel returns the value of the label signerName.
func signerLabel(signer string) string {
	if strings.HasPrefix(signer, signerPrefix) {
		return signer
	}
	return otherSigner
}

// firstCertificate returns the first certificate of a PEM bundle, or nil if it has none.
func firstCertificate(bundle []byte) *x509.Certificate {
	for {
		block, rest := pem.Decode(bundle)
		if block == nil {
			return nil
		}
		if block.Type == certificateBlock {
			certificate, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil
			}
			return certificate
		}
		bundle = rest
	}
}
