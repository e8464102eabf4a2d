// Package customdocs adds custom resources and extension servers to the discovery documents and the
// OpenAPI documents.
//
// An Updater records which definitions and extension servers have changed. When a client requests
// one of the documents, the Updater first updates the documents. It computes only the group
// versions that have changed. Its methods are safe for concurrent use.
//
// Package build passes the changes of definitions to Set, and the changes of APIServices to
// ExtensionsChanged. It wraps the handlers of the documents with WithRefresh.
package customdocs
