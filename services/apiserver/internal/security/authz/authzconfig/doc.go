// Package authzconfig reads an AuthorizationConfiguration (apiserver.config.k8s.io v1, v1beta1 and
// v1alpha1; specification: "Authorization"). Parse rejects unknown and duplicate fields, sets
// defaults, and validates with the path of each field. FromFlags returns the configuration for the
// flags that the file replaces.
//
// It keeps no state and reads no other file, except to validate a kubeconfig. Package modes creates
// authorizers from its result.
package authzconfig
