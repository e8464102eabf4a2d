// Package views converts the objects of a request to the versions that webhooks and policies need:
// as Go objects, as JSON, and as trees (maps) for CEL expressions. Each form is created on first
// use and cached.
//
// Views belong to one request and are not safe for concurrent use. A View whose forms have been
// created may be read concurrently.
package views
