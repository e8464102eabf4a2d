// Package apiregistration declares the kinds of apiregistration.k8s.io, which determine the server
// of a group version. Package aggregation implements them.
package apiregistration
