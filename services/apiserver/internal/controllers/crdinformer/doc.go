// Package crdinformer updates the API set when definitions of custom resources change. A Syncer
// reads definitions from the watch cache. Each established definition is served under its accepted
// names. The watch cache has a store for the objects as long as the definition exists
// (DefinitionReader). A running request keeps the API set that it started with.
//
//	definition changes ─► watch cache: stores ─► Syncer: resources ─► Live.Swap
package crdinformer
