// Package conversion brings objects of custom resources from one version to
// another by the webhook of their definition (specification: "Custom resources",
// conversion). It knows documents only: it asks, and holds what comes back to what
// a webhook may change, which is all but the metadata, of which it may change
// labels and annotations. It keeps nothing but connections; package kind calls it,
// and package represent keeps what it returns.
package conversion
