package podspec

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

const (
	// minTokenLifetime and maxTokenLifetime are in seconds.
	minTokenLifetime = 10 * 60
	maxTokenLifetime = 1 << 32
)

// projectedRules validates volumes with several sources, whose files must be distinct.
func (c *check) projectedRules(at validate.At, p *corev1.ProjectedVolumeSource) {
	at.FileMode("defaultMode", p.DefaultMode)
	paths := validate.Set[string]{}
	unique := func(path, shown string) {
		if path != "" && !paths.Add(path) {
			at.Invalid("", shown, "conflicting duplicate paths")
		}
	}
	validate.Each(at, "sources", p.Sources, func(place validate.At, s *corev1.VolumeProjection) {
		u := place.Choice("")
		items := func(at validate.At, name string, items []corev1.KeyToPath) {
			at.Present("name", name != "")
			validate.Each(at, "items", items, func(at validate.At, k *corev1.KeyToPath) {
				keyToPathRules(at, k)
				unique(k.Path, name)
			})
		}
		validate.Member(u, "secret", s.Secret, func(at validate.At, s *corev1.SecretProjection) { items(at, s.Name, s.Items) })
		validate.Member(u, "configMap", s.ConfigMap, func(at validate.At, s *corev1.ConfigMapProjection) { items(at, s.Name, s.Items) })
		validate.Member(u, "downwardAPI", s.DownwardAPI, func(at validate.At, d *corev1.DownwardAPIProjection) {
			for i := range d.Items {
				downwardFileRules(at, &d.Items[i])
				unique(d.Items[i].Path, d.Items[i].Path)
			}
		})
		validate.Member(u, "serviceAccountToken", s.ServiceAccountToken, func(place validate.At, t *corev1.ServiceAccountTokenProjection) {
			tokenLifetimeRules(place, t.ExpirationSeconds)
			// The error path is that of the volume.
			if t.Path == "" {
				at.Required("path", "")
			} else if !c.kept.tokenPath {
				filePath(at, "path", t.Path)
			}
		})
		// Errors have an older name of the field.
		validate.Member(u, "clusterTrustBundlePEM", s.ClusterTrustBundle, func(at validate.At, b *corev1.ClusterTrustBundleProjection) {
			trustBundleRules(at, b)
			unique(b.Path, b.Path)
		})
		place.Absent("", u.Count() > 1, "may not specify more than 1 volume type per source")
	})
}

func tokenLifetimeRules(at validate.At, seconds *int64) {
	if seconds == nil {
		return
	}
	if *seconds < minTokenLifetime {
		at.Invalid("expirationSeconds", *seconds, "may not specify a duration less than 10 minutes")
	}
	if *seconds > maxTokenLifetime {
		at.Invalid("expirationSeconds", *seconds, "may not specify a duration larger than 2^32 seconds")
	}
}

// trustBundleRules requires a bundle by name, or bundles by signer.
func trustBundleRules(at validate.At, b *corev1.ClusterTrustBundleProjection) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		at.Invalid("", *b, "only one of name and signerName may be used")
	case b.Name != nil:
		if *b.Name == "" {
			at.Required("name", "must be a valid object name")
		}
		signer := ""
		if i := strings.LastIndexByte(*b.Name, ':'); i >= 0 {
			signer = strings.ReplaceAll((*b.Name)[:i], ":", "/")
		}
		for _, msg := range validate.TrustBundleName(signer)(*b.Name) {
			at.Invalid("name", *b.Name, "not a valid clustertrustbundlename: "+msg)
		}
		if b.LabelSelector != nil {
			at.Invalid("labelSelector", *b.LabelSelector, "labelSelector must be unset if name is specified")
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			at.Required("signerName", "must be a valid signer name")
		}
		at.SignerName("signerName", *b.SignerName)
		at.Selector("labelSelector", b.LabelSelector, false)
	default:
		at.Required("", "either name or signerName must be specified")
	}
	at.Present("path", b.Path != "")
	filePath(at, "path", b.Path)
}

func hasForeignTokenPath(volumes []corev1.Volume) bool {
	return slices.ContainsFunc(volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ServiceAccountToken != nil && len(validate.Check(func(at validate.At) {
				filePath(at, "path", s.ServiceAccountToken.Path)
			})) > 0
		})
	})
}
