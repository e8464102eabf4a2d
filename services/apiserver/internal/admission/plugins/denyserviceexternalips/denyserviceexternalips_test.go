package denyserviceexternalips_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/denyserviceexternalips"
	"binnacle/services/apiserver/internal/registry"
)

// service returns a Service with external IPs.
func service(ips ...string) *corev1.Service {
	return &corev1.Service{Spec: corev1.ServiceSpec{ExternalIPs: ips}}
}

// TestServiceMayNotGainExternalIPs checks that a Service may keep and lose external IPs, but not
// gain any.
func TestServiceMayNotGainExternalIPs(t *testing.T) {
	for name, test := range map[string]struct {
		op           admission.Operation
		subresource  string
		service      *corev1.Service
		old          runtime.Object
		wantRejected bool
	}{
		"create without IPs":          {op: admission.Create, service: service()},
		"create with an IP":           {op: admission.Create, service: service("1.2.3.4"), wantRejected: true},
		"update keeps one of two IPs": {op: admission.Update, service: service("1.2.3.4"), old: service("5.6.7.8", "1.2.3.4")},
		"update removes the IP":       {op: admission.Update, service: service(), old: service("1.2.3.4")},
		"update adds an IP":           {op: admission.Update, service: service("1.2.3.4", "5.6.7.8"), old: service("1.2.3.4"), wantRejected: true},
		"update of a subresource":     {op: admission.Update, subresource: "status", service: service("1.2.3.4"), old: service()},
	} {
		err := denyserviceexternalips.Plugin{}.Validate(t.Context(), &admission.Request{
			Operation:   test.op,
			Subresource: test.subresource,
			Resource:    &registry.Kind{Names: registry.Names{Resource: "services"}},
			Name:        "s",
			Object:      test.service,
			OldObject:   test.old,
		})
		const want = `services "s" is forbidden: Use of external IPs is denied by admission control`
		if (err != nil) != test.wantRejected || err != nil && err.Error() != want {
			t.Errorf("%s: got error %v, want error %q: %t", name, err, want, test.wantRejected)
		}
	}
}
