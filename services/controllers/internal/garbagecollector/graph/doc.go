// Package graph keeps the ownership of all objects of the cluster in memory.
//
// A Builder lists and watches the metadata of every deletable resource and passes it to a Graph.
// It discovers resources again after a definition changes, and periodically. A Graph keeps a node
// per object: its identity, owners and a few flags, but not the object. A node is virtual while its
// object is known only from the owner references of other objects.
//
//	Builder ─► monitor for each resource ─► Graph.Observe, Graph.Remove ─► Tasks (garbage collector)
//	                                                                    └─► Changed (quotas)
//
// A Graph is guarded by one lock, which is held while Tasks and Changed are called. They must not
// call the Graph. The garbage collector and the quota controller call this package.
package graph
