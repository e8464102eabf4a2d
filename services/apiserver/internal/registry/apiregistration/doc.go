// Package apiregistration declares the kinds of apiregistration.k8s.io: which
// server answers for a group version. Package aggregate acts on them.
package apiregistration
