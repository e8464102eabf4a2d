// Package garbage controls how much garbage may accumulate before a collection, and returns unused
// memory to the system, including pages of the program's own file. The server runs Pacer.Pace from
// its start. The filter that admits large bodies reports them to a Pacer. The package holds no data
// and does not know the caches, whose budget is in package memory.
package garbage
