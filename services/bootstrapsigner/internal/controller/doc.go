// Package controller keeps the signatures in the cluster-info config map of
// kube-public: one for every bootstrap token that is valid and meant for
// signing, none for others.
//
// Two informers follow that one config map and the token secrets of
// kube-system; of a secret that is not for signing nothing but its name is kept.
// Any change, the next expiration and a resync put the one key there is into the
// queue. The work compares the signatures that ought to be with those that are,
// and sends the difference, if any, as a patch on the condition that the map is
// the one that was seen. Nothing else in the map is touched. A conflict or
// another failure is tried again with back-off.
//
// A Controller is idle, lists (Check fails), or works; without a config map it
// waits for one. Run may be called again after it has returned, but not twice at
// a time. Package app calls it, on the replica that leads.
package controller
