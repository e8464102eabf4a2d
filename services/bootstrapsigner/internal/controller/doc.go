// Package controller maintains the signatures in the cluster-info config map of kube-public: one
// for every bootstrap token that is valid and enabled for signing, and no other ones.
//
// Two informers follow that config map and the token secrets of kube-system. Of a secret that is
// not for signing only the name is kept. Any change, the next expiration and a resync put the
// single key into the queue. The controller compares the wanted signatures with the actual ones. It
// sends the difference, if any, as a patch on the condition that the map is unchanged. It does not
// touch other keys of the map. Conflicts and other failures are retried with backoff.
//
// A Controller is idle, listing (Check fails), or working. Without a config map it waits for one.
// Run may be called again after it has returned, but not concurrently. Package app calls it on the
// leader.
package controller
