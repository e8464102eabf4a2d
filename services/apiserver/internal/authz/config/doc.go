// Package config reads an AuthorizationConfiguration (apiserver.config.k8s.io v1,
// v1beta1 and v1alpha1; specification: "Authorization"): decoding, in which
// unknown and doubled fields are errors, defaults, and validation with the path
// of each field. FromFlags makes the same of the flags that the file replaces.
//
// It keeps no state and reads no other file, except to check that a kubeconfig
// is one. Package modes makes authorizers of what it returns.
package config
