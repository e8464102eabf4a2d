// Package scenarios holds the end-to-end tests of the API server with the
// clients that people use: kubectl, client-go and controller-runtime. It has no
// code of its own beside tests; testdata/kinds has one file per kind that kubectl
// is tried on.
package scenarios
