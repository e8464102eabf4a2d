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

// attester permits user u to attest for the signer a.b/one and for the domain c.d. It fails for
// broken/one.
type attester struct{}

func (attester) Authorize(_ context.Context, attributes *authz.Attributes) (authz.Decision, string, error) {
	switch {
	case attributes.User.Name != "u" || attributes.Verb != "attest" || attributes.Group != "certificates.k8s.io" || attributes.ResourceName != "signers":
		return authz.Deny, "", nil
	case attributes.Name == "broken/one":
		return authz.Allow, "", errors.New("no answer")
	case attributes.Name == "a.b/one" || attributes.Name == "c.d/*":
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// bundle returns a bundle with owners of these names.
func bundle(signer, trust string, owners ...string) *certificatesv1beta1.ClusterTrustBundle {
	clusterTrustBundle := &certificatesv1beta1.ClusterTrustBundle{
		Spec: certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: trust},
	}
	for _, o := range owners {
		clusterTrustBundle.OwnerReferences = append(clusterTrustBundle.OwnerReferences, metav1.OwnerReference{Name: o})
	}
	return clusterTrustBundle
}

// TestSignerRequiresVerbAttest checks that a new or changed bundle of a signer requires the verb
// attest for the signer or its domain.
func TestSignerRequiresVerbAttest(t *testing.T) {
	plugin := &clustertrustbundleattest.Plugin{Authorizer: attester{}}
	for name, test := range map[string]struct {
		op            admission.Operation
		resource      string
		obj, old      runtime.Object
		wantForbidden bool
	}{
		"create without a signer":                         {op: admission.Create, obj: bundle("", "x")},
		"create, signer is permitted":                     {op: admission.Create, obj: bundle("a.b/one", "x")},
		"create, domain is permitted":                     {op: admission.Create, obj: bundle("c.d/any", "x")},
		"create, other signer of the domain":              {op: admission.Create, obj: bundle("a.b/two", "x"), wantForbidden: true},
		"create, authorizer fails":                        {op: admission.Create, obj: bundle("broken/one", "x"), wantForbidden: true},
		"update of the content":                           {op: admission.Update, obj: bundle("a.b/two", "y"), old: bundle("a.b/two", "x"), wantForbidden: true},
		"update of the owners":                            {op: admission.Update, obj: bundle("a.b/two", "x", "o"), old: bundle("a.b/two", "x")},
		"create with owners":                              {op: admission.Create, obj: bundle("a.b/two", "x", "o"), wantForbidden: true},
		"delete":                                          {op: admission.Delete, old: bundle("a.b/two", "x")},
		"object of another type":                          {op: admission.Create, obj: &corev1.Pod{}, wantForbidden: true},
		"other resource":                                  {op: admission.Create, resource: "others", obj: bundle("a.b/two", "x")},
		"update, signer is permitted":                     {op: admission.Update, obj: bundle("a.b/one", "y"), old: bundle("a.b/one", "x")},
		"create, domain that begins like a permitted one": {op: admission.Create, obj: bundle("c.dd/any", "x"), wantForbidden: true},
	} {
		if test.resource == "" {
			test.resource = "clustertrustbundles"
		}
		err := plugin.Validate(t.Context(), &admission.Request{
			Operation: test.op, Resource: &registry.Kind{Names: registry.Names{Group: "certificates.k8s.io", Resource: test.resource}},
			Name: "b", Object: test.obj, OldObject: test.old, User: &request.User{Name: "u"},
		})
		if (err != nil) != test.wantForbidden || err != nil && !apierrors.IsForbidden(err) {
			t.Errorf("%s: got error %v, want a Forbidden error: %t", name, err, test.wantForbidden)
		}
	}
}

// TestErrorNamesTheSigner checks the text of the error.
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
		t.Errorf("got error %v, want %q", err, want)
	}
}
