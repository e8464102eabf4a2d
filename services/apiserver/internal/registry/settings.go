package registry

import (
	corev1 "k8s.io/api/core/v1"

	"binnacle/libs/features"
)

// Settings holds the settings of the server that the rules of kinds depend on. The zero value has
// every gate at its default.
type Settings struct {
	// AllowPrivileged allows privileged containers (--allow-privileged).
	AllowPrivileged bool
	// PrimaryFamily is the default IP family of services. Empty means IPv4.
	PrimaryFamily corev1.IPFamily
	// StoreJSON stores every kind as JSON (--storage-media-type=application/json).
	StoreJSON bool
	// Gates are the feature gates; nil means all at their defaults.
	Gates *features.Gates
}

// Enabled reports whether a feature gate is enabled.
func (s Settings) Enabled(gate features.Gate) bool {
	if s.Gates == nil {
		return features.New().Enabled(gate)
	}
	return s.Gates.Enabled(gate)
}
