// Package views converts the objects of a request to the versions that webhooks and policies need:
// as objects, as JSON, and as trees for expressions. Each form is created on first use and shared
// by all users.
//
// Views belong to one request and are not safe for concurrent use. A View whose forms have been
// created may be read concurrently.
package views
