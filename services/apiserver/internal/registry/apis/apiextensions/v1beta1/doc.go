// Package v1beta1 holds the stored form of CustomResourceDefinitions: apiextensions.k8s.io/v1beta1.
// Kubernetes 1.33 still writes it because it stores values that all versions share only once. It is
// not served.
//
// Only the parts that differ from v1 have types of their own. FromV1 and ToV1 convert;
// api/kinds/apiextensions declares the conversion.
package v1beta1
