// Package apiregistration declares the kinds of apiregistration.k8s.io, which determine the server
// of a group version. Package aggregate implements them.
package apiregistration
