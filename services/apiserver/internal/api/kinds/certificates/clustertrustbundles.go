package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/registry/validate"
)

// clusterTrustBundles returns a kind that is served in beta and alpha only, and so off by default.
func clusterTrustBundles() *registry.Kind {
	return declare.Kind[certificatesv1beta1.ClusterTrustBundle, certificatesv1beta1.ClusterTrustBundleList](&registry.Kind{
		Names: registry.Names{
			Group:    group,
			Version:  "v1beta1",
			Resource: "clustertrustbundles",
			Kind:     "ClusterTrustBundle",
			// A signer's bundles have its name as prefix; see validateBundleName.
			ValidateName: meta.PathSegment,
		},
		Gate: features.ClusterTrustBundle,
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, clusterTrustBundle *certificatesv1beta1.ClusterTrustBundle) {
				validateBundleName(fld, clusterTrustBundle)
				validateTrustAnchors(fld.Child("spec", "trustBundle"), clusterTrustBundle.Spec.TrustBundle)
			}),
		},
		// An unchanged bundle is not validated again, because a newer Go may parse certificates
		// more strictly.
		Update: registry.Update{
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, clusterTrustBundle, old *certificatesv1beta1.ClusterTrustBundle) {
				validateBundleName(fld, clusterTrustBundle)
				if clusterTrustBundle.Spec.TrustBundle != old.Spec.TrustBundle {
					validateTrustAnchors(fld.Child("spec", "trustBundle"), clusterTrustBundle.Spec.TrustBundle)
				}
				fld.Child("spec").CheckImmutable("signerName", clusterTrustBundle.Spec.SignerName, old.Spec.SignerName)
			}),
		},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{{Label: "spec.signerName"}},
			Columns: []registry.Column{
				columns.Name(),
				columns.Text(
					"SignerName",
					columns.Doc(certificatesv1beta1.ClusterTrustBundleSpec{}, "signerName"),
					func(clusterTrustBundle *certificatesv1beta1.ClusterTrustBundle) string {
						return columns.OrNone(clusterTrustBundle.Spec.SignerName)
					},
				),
				columns.Age(),
			},
		},
	})
}

// validateBundleName requires the name of the signer as prefix of the bundle's name.
func validateBundleName(fld validate.Field, b *certificatesv1beta1.ClusterTrustBundle) {
	signer := b.Spec.SignerName
	if b.Name != "" {
		fld.Child("metadata").CheckText("name", b.Name, validate.TrustBundleName(signer))
	}
	if signer != "" {
		fld.Child("spec").CheckSignerName("signerName", signer)
	}
}

// maxTrustBundle is the maximum size of a bundle in bytes.
const maxTrustBundle = 1 << 20

// validateTrustAnchors requires distinct CA certificates in PEM.
func validateTrustAnchors(fld validate.Field, bundle string) {
	if len(bundle) > maxTrustBundle {
		fld.TooLong("", maxTrustBundle)
		return
	}
	const omitted = "<value omitted>" // instead of the value in errors
	errorsBefore, n := fld.ErrorCount(), 0
	indices := map[string][]int{} // of equal certificates, by content
	var order []string            // contents in the order of their first occurrence
	for block, rest := pem.Decode([]byte(bundle)); block != nil; block, rest = pem.Decode(rest) {
		if problem := whyNotTrustAnchor(block); problem != "" {
			fld.Invalid("", omitted, fmt.Sprintf("entry %d %s", n, problem))
		} else {
			key := string(block.Bytes)
			if indices[key] == nil {
				order = append(order, key)
			}
			indices[key] = append(indices[key], n)
		}
		n++
	}
	if fld.ErrorCount() > errorsBefore {
		return
	}
	if n == 0 {
		fld.Invalid("", omitted, "at least one trust anchor must be provided")
	}
	for _, key := range order {
		if len(indices[key]) > 1 {
			fld.Invalid("", omitted, fmt.Sprintf("duplicate trust anchor (indices %v)", indices[key]))
		}
	}
}

// whyNotTrustAnchor returns why a block is not a CA certificate.
func whyNotTrustAnchor(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	switch certificate, err := x509.ParseCertificate(block.Bytes); {
	case err != nil:
		return "does not parse as X.509"
	case !certificate.IsCA:
		return "does not have the CA bit set"
	case !certificate.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
