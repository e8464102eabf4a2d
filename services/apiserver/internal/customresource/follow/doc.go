// Package follow keeps the set of kinds that are served in line with the
// definitions of custom resources. A Follower reads them from the watch cache:
// those that are established are served, by their accepted names, with the next
// set; the watch cache itself has a store for their objects as long as the definition
// is there (Defines). A request that began before sees the set that it began with.
//
//	definition changes ─► watch cache: stores ─► Follower: resources ─► Live.Swap
package follow
