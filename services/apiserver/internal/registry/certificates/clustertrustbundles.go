package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"strings"

	certificatesv1alpha1 "k8s.io/api/certificates/v1alpha1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
)

// clusterTrustBundles are only served in beta, and so off by default. They are
// stored in the version that the release before knows.
func clusterTrustBundles() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: "v1beta1", Resource: "clustertrustbundles", Singular: "clustertrustbundle", Kind: "ClusterTrustBundle",
		New:     declare.New[certificatesv1beta1.ClusterTrustBundle],
		NewList: declare.New[certificatesv1beta1.ClusterTrustBundleList],
		Stored:  registry.Stored{Prefix: "clustertrustbundles", Version: certificatesv1alpha1.SchemeGroupVersion},
		// A signer's bundles begin with its name; see validateTrustBundle.
		ValidateName: meta.PathSegment,
		Selectable:   []registry.SelectableField{{Label: "spec.signerName"}},
		Validate:     declare.Get(validateTrustBundle),
		ValidateUpdate: declare.GetChange(func(b, old *certificatesv1beta1.ClusterTrustBundle) field.ErrorList {
			errs := validateTrustBundle(b)
			if b.Spec.SignerName != old.Spec.SignerName {
				errs = append(errs, field.Invalid(field.NewPath("spec", "signerName"), b.Spec.SignerName, "field is immutable"))
			}
			return errs
		}),
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("SignerName", columns.Doc(certificatesv1beta1.ClusterTrustBundleSpec{}, "signerName"), func(b *certificatesv1beta1.ClusterTrustBundle) string {
				return columns.OrNone(b.Spec.SignerName)
			}),
			columns.Age(),
		},
	}
}

func validateTrustBundle(b *certificatesv1beta1.ClusterTrustBundle) (errs field.ErrorList) {
	name := field.NewPath("metadata", "name")
	if signer := b.Spec.SignerName; signer != "" {
		if prefix := strings.ReplaceAll(signer, "/", ":") + ":"; !strings.HasPrefix(b.Name, prefix) {
			errs = append(errs, field.Invalid(name, b.Name, "ClusterTrustBundle for signerName "+signer+" must be named with prefix "+prefix))
		}
	} else if strings.Contains(b.Name, ":") {
		errs = append(errs, field.Invalid(name, b.Name, "ClusterTrustBundle without signer name must not have \":\" in its name"))
	}
	at := field.NewPath("spec", "trustBundle")
	rest, count := []byte(b.Spec.TrustBundle), 0
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		count++
		if _, err := x509.ParseCertificate(block.Bytes); block.Type != "CERTIFICATE" || err != nil {
			errs = append(errs, field.Invalid(at, "<value omitted>", "entries must be certificates in PEM blocks of type CERTIFICATE"))
		}
	}
	if count == 0 {
		errs = append(errs, field.Invalid(at, "<value omitted>", "at least one trust anchor must be provided"))
	}
	return errs
}
