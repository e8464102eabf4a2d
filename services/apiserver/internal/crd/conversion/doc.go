// Package conversion converts custom resources between versions with the webhook of their
// definition (specification: "Custom resources", conversion). It works on encoded objects. It sends
// them to the webhook and verifies that the webhook changed only what it may: everything but
// metadata, except labels and annotations. It keeps no state except connections.
//
// Package kind calls it, and package responsewriters caches its results.
package conversion
