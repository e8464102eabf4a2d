// Package v1beta1 holds the form in which definitions of custom resources are
// stored: that of apiextensions.k8s.io/v1beta1, which Kubernetes 1.33 still
// writes because it says what is common to all versions once. It is not served.
//
// Only what differs from v1 has types of its own. FromV1 and ToV1 convert;
// registry/apiextensions declares them.
package v1beta1
