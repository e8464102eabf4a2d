// Package customdocs describes custom resources and extension servers in the discovery and OpenAPI
// documents.
//
// An Updater records changed definitions, and updates the documents when one of them is requested.
// It describes only the group versions that changed. Its methods are safe for concurrent use.
// Package build passes the changes of definitions to it, and serves requests through WithRefresh.
package customdocs
