// Package apiextensions declares the kind CustomResourceDefinition of apiextensions.k8s.io. The
// packages below crd implement the effects of a definition: its accepted names and conditions, the
// custom resource itself, and its removal. This package has no state.
package apiextensions
