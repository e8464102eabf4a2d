// Package controller deletes bootstrap tokens when they expire.
//
// An informer follows the token secrets of kube-system and keeps of each its
// name, its identity and its expiration, nothing else: no secret stays in
// memory. A name waits in a delaying queue, once it is near, until its
// moment, plus the tolerance for clocks that differ; those that are over when
// the controller starts are due at once. A due secret is deleted on the
// condition that it is still the one that was seen (uid and resourceVersion), so
// that a token whose life was prolonged at the last moment lives on. Failures
// are tried again with back-off. An expiration that cannot be read is told by an
// Event on the secret, which is left alone.
//
// A Controller is idle, lists (Check fails), or works. Run may be called again
// after it has returned, but not twice at a time. Package app calls it, on the
// replica that leads.
package controller
