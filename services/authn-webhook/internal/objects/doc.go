// Package objects looks up what bearer tokens hang on: service accounts, pods,
// nodes, and the secrets that hold tokens. It watches them at the API server,
// keeping no more of each than a look-up needs.
//
// A watch is always a little late, and an answer that it gives is kept by whoever
// asked for a review. So what it says is there is confirmed with the API server
// before it counts: what was deleted counts no more from the moment that the
// deletion was acknowledged, and what was just made counts at once. Without
// Confirm, what is there counts by the word of the watch.
//
// Objects is in one of two states: waiting, until the first lists are complete,
// and synced; /readyz tells. Package app makes it, the authenticators of service
// account tokens and bootstrap tokens call it.
package objects
