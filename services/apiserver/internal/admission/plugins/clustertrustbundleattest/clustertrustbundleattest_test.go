package clustertrustbundleattest_test

import (
	"context"
	"errors"
	"testing"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/clustertrustbundleattest"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authz"
)

// attester permits attesting for one signer and for one domain.
type attester struct{}

func (attester) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	switch {
	case a.User.Name != "u" || a.Verb != "attest" || a.Group != "certificates.k8s.io" || a.ResourceName != "signers":
		return authz.Deny, "", nil
	case a.Name == "broken/one":
		return authz.Allow, "", errors.New("no answer")
	case a.Name == "a.b/one" || a.Name == "c.d/*":
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

func bundle(signer, trust string, owners ...string) *certificatesv1beta1.ClusterTrustBundle {
	b := &certificatesv1beta1.ClusterTrustBundle{
		Spec: certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: trust},
	}
	for _, o := range owners {
		b.OwnerReferences = append(b.OwnerReferences, metav1.OwnerReference{Name: o})
	}
	return b
}

// TestSignerRequiresVerbAttest allows bundles of a signer only to users with the verb attest.
func TestSignerRequiresVerbAttest(t *testing.T) {
	plugin := &clustertrustbundleattest.Plugin{Authorizer: attester{}}
	for name, c := range map[string]struct {
		op       admission.Operation
		resource string
		o, old   runtime.Object
		rejected bool
	}{
		"without a signer":       {op: admission.Create, o: bundle("", "x")},
		"by name":                {op: admission.Create, o: bundle("a.b/one", "x")},
		"by domain":              {op: admission.Create, o: bundle("c.d/any", "x")},
		"another name":           {op: admission.Create, o: bundle("a.b/two", "x"), rejected: true},
		"authorizer fails":       {op: admission.Create, o: bundle("broken/one", "x"), rejected: true},
		"other content":          {op: admission.Update, o: bundle("a.b/two", "y"), old: bundle("a.b/two", "x"), rejected: true},
		"other owners":           {op: admission.Update, o: bundle("a.b/two", "x", "o"), old: bundle("a.b/two", "x")},
		"owners on creation":     {op: admission.Create, o: bundle("a.b/two", "x", "o"), rejected: true},
		"deleted":                {op: admission.Delete, old: bundle("a.b/two", "x")},
		"no bundle":              {op: admission.Create, o: &corev1.Pod{}, rejected: true},
		"of another resource":    {op: admission.Create, resource: "others", o: bundle("a.b/two", "x")},
		"update with permission": {op: admission.Update, o: bundle("a.b/one", "y"), old: bundle("a.b/one", "x")},
		"only the domain part":   {op: admission.Create, o: bundle("c.dd/any", "x"), rejected: true},
	} {
		if c.resource == "" {
			c.resource = "clustertrustbundles"
		}
		err := plugin.Validate(t.Context(), &admission.Request{
			Operation: c.op, Resource: &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: c.resource}},
			Name: "b", Object: c.o, OldObject: c.old, User: &request.User{Name: "u"},
		})
		if (err != nil) != c.rejected || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v; want an error: %v, of type Forbidden", name, err, c.rejected)
		}
	}
}

func TestErrorNamesTheSigner(t *testing.T) {
	err := (&clustertrustbundleattest.Plugin{Authorizer: attester{}}).Validate(t.Context(), &admission.Request{
		Operation: admission.Create,
		Resource:  &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: "clustertrustbundles"}},
		Name:      "ex.test:s:a",
		Object:    bundle("ex.test/s", "x"),
		User:      &request.User{Name: "u"},
	})
	want := `clustertrustbundles.certificates.k8s.io "ex.test:s:a" is forbidden: user not permitted to attest for signerName "ex.test/s"`
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want an error, %v", err, want)
	}
}
