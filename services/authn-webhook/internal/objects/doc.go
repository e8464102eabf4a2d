// Package objects looks up the objects that bearer tokens depend on: service accounts, pods, nodes,
// and the secrets of tokens. It watches them at the API server, and keeps only the fields that a
// lookup needs.
//
// A watch always lags slightly, and callers cache the results of reviews. So an object in the watch
// is confirmed with the API server before it counts: a deleted object stops to count when its
// deletion is acknowledged, and a new object counts at once. Without Confirm, an object in the
// watch counts directly.
//
// Objects has two states: waiting, until the first lists are complete, and synced; /readyz reports
// the state. Package app creates it. The authenticators of service account tokens and bootstrap
// tokens call it.
package objects
