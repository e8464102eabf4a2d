// Package crdinformer updates the set of served kinds when definitions of custom resources change.
// A Syncer reads definitions from the watch cache. Each established definition is served under its
// accepted names from the next set on. The watch cache has a store for the objects as long as the
// definition exists (DefinitionReader). A running request keeps the set that it started with.
//
//	definition changes ─► watch cache: stores ─► Syncer: resources ─► Live.Swap
package crdinformer
