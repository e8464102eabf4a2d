// Package status converts errors to Status objects. It is the only package that does so: it has the
// errors of paths, methods and media types with the texts of Kubernetes, and converts the errors of
// the store to API errors. Every component that rejects a request uses it. It has no state.
package status
