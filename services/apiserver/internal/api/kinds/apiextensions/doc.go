// Package apiextensions declares the kinds of apiextensions.k8s.io: the definitions of custom
// resources. The packages below crd implement the effects of a definition: its names and
// conditions, the resource itself, its removal. This package has no state.
package apiextensions
