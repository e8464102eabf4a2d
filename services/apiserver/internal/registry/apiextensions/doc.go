// Package apiextensions declares the kinds of apiextensions.k8s.io: the
// definitions of custom resources. What becomes of a definition (its names and
// conditions, the resource itself, its removal) is package customresource's.
package apiextensions
