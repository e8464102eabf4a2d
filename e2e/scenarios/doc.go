// Package scenarios contains the end-to-end tests of the API server with kubectl, client-go and
// controller-runtime. It has no code except tests. testdata/kinds has one file per kind for the
// kubectl tests.
package scenarios
