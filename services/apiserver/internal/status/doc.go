// Package status is the one place where errors become Status objects: those of
// paths, methods and media types with the texts of Kubernetes, and those of the
// store as clients know them. Whoever refuses a request uses it; it keeps nothing.
package status
