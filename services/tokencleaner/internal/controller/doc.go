// Package controller deletes bootstrap tokens when they expire.
//
// An informer follows the token secrets of kube-system and keeps only the name, the identity and
// the expiration of each, so no secret stays in memory. A name whose time is near waits in a
// delaying queue until its expiration plus the tolerance for clock differences. Tokens that are
// expired when the controller starts are due at once. A due secret is deleted on the condition that
// it is unchanged (uid and resourceVersion), so a token that was just extended is kept. Failures
// are retried with backoff. A malformed expiration is reported by an Event on the secret, which
// is kept.
//
// A Controller is idle, listing (Check fails), or working. Run may be called again after it has
// returned, but not concurrently. Package app calls it on the leader.
package controller
