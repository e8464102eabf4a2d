package denyserviceexternalips_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/denyserviceexternalips"
	"binnacle/services/apiserver/internal/registry"
)

func service(ips ...string) *corev1.Service {
	return &corev1.Service{Spec: corev1.ServiceSpec{ExternalIPs: ips}}
}

// TestExternalIPs checks that a Service may keep and lose external IPs, but not gain any.
func TestExternalIPs(t *testing.T) {
	for name, c := range map[string]struct {
		op       admission.Operation
		sub      string
		s        *corev1.Service
		old      runtime.Object
		rejected bool
	}{
		"none":                   {op: admission.Create, s: service()},
		"new":                    {op: admission.Create, s: service("1.2.3.4"), rejected: true},
		"kept":                   {op: admission.Update, s: service("1.2.3.4"), old: service("5.6.7.8", "1.2.3.4")},
		"given up":               {op: admission.Update, s: service(), old: service("1.2.3.4")},
		"one more":               {op: admission.Update, s: service("1.2.3.4", "5.6.7.8"), old: service("1.2.3.4"), rejected: true},
		"through a sub-resource": {op: admission.Update, sub: "status", s: service("1.2.3.4"), old: service()},
	} {
		err := denyserviceexternalips.Plugin{}.Validate(t.Context(), &admission.Request{
			Operation:   c.op,
			Subresource: c.sub,
			Resource:    &registry.Kind{Names: registry.Names{Resource: "services"}},
			Name:        "s",
			Object:      c.s,
			OldObject:   c.old,
		})
		if (err != nil) != c.rejected ||
			err != nil && err.Error() != `services "s" is forbidden: Use of external IPs is denied by admission control` {
			t.Errorf("%s: got %v; want an error: %v, if any `services \"s\" is forbidden: Use of external IPs is denied by admission control`",
				name, err, c.rejected)
		}
	}
}
