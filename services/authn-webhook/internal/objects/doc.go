// Package objects looks up the objects that bearer tokens depend on: service accounts, pods, nodes,
// and the secrets of tokens. It watches them at the API server, and keeps only the fields that a
// lookup needs.
//
// A watch always lags slightly, and callers cache the results of reviews. Each lookup therefore reads
// the object from the API server. A token is rejected as soon as the deletion of its object is
// acknowledged, and accepted as soon as its object exists. Without Confirm, a lookup returns the
// object in the watch, if there is one.
//
// Objects has two states: waiting, until the first lists are complete, and synced; /readyz reports
// the state. Package app creates it. The authenticators of service account tokens and bootstrap
// tokens call it.
package objects
