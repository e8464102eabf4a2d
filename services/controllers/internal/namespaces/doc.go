// Package namespaces deletes the content of terminating namespaces and then finalizes them
// (specification: namespace deletion).
//
// A namespace is due a few seconds after its deletion, when API servers no longer admit new
// objects. Pods are deleted first, and nothing else before they are gone. Then the objects of all
// other resources are deleted through metadata-only requests, also if some resources fail. Five
// conditions of the namespace report the progress. While objects remain, the namespace is due again
// after half of their estimated time. When nothing remains, the finalizer "kubernetes" is removed.
//
// Package app runs a Controller on the leader.
package namespaces
