//go:build race

package watchcache

// overwriteReleased means that Borrowed.Release overwrites the released memory, so that tests find
// references that remain.
const overwriteReleased = true
