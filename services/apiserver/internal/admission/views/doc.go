// Package views shows the objects of a request in the versions of their kind that
// webhooks and policies ask for: as objects, as JSON, and as trees for
// expressions. Each is made when it is first asked for and shared by all who ask.
//
// Views are of one request and for one goroutine at a time; a View that has been
// Prepared may be read by many.
package views
